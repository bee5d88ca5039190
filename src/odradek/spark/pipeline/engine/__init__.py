"""The engine, which runs a pipeline's graph on Spark."""
