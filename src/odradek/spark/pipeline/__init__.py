"""Pipelines: the file that declares one, the graph it means, the engine that runs it."""
