"""Pipelines: the file that declares one, the graph it describes, the engine that runs it."""
