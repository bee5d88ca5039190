"""Data pipelines on Spark: a data source, the pipeline file, and the engine that runs it.

The only package that imports pyspark. Importing it does not import Spark, pandas or pyarrow.
"""

from odradek.spark.declare import avro, json, pipeline, raw, sink, source, string, transform
from odradek.spark.registering import register
from odradek.spark.streams import exactly_once

__all__ = [
    "avro",
    "exactly_once",
    "json",
    "pipeline",
    "raw",
    "register",
    "sink",
    "source",
    "string",
    "transform",
]
