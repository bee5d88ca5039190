"""Sinks that take a micro-batch at a time: written once or again, it is there once.

Topics and files are sinks of Spark and not here; see `odradek.spark.datasource` for topics.
"""

from odradek.spark.pipeline.engine.sinks.batch_sink import BatchSink

__all__ = ["BatchSink"]
