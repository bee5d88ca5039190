"""Runs a pipeline's graph on Spark."""
