"""Reads a pipeline file into the graph, every error with its place; imports no Spark."""
