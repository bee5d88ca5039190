"""The data pipeline on Spark: a data source, a pipeline file, and what runs it.

The only package that imports pyspark. Importing it brings in none of Spark, pandas or pyarrow.
"""

from odradek.spark.declare import avro, json, pipeline, raw, sink, source, string, transform

__all__ = ["avro", "json", "pipeline", "raw", "sink", "source", "string", "transform"]
