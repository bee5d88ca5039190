"""What a pipeline is, whatever it was written in. Nothing here imports Spark."""
