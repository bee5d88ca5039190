"""Reads a pipeline file into the graph, every error with its place; imports no Spark."""

from odradek.spark.pipeline.file.load import Loaded, load
from odradek.spark.pipeline.file.problems import Problem, Severity

__all__ = ["Loaded", "Problem", "Severity", "load"]
