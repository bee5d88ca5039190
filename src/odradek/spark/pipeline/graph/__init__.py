"""The model of a pipeline, and its analysis without Spark. Nothing here imports Spark."""
