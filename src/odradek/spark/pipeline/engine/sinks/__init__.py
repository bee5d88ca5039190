"""Sinks that write one micro-batch at a time; a batch that is repeated is stored once.

Topics and files are not here: they are sinks of Spark; for topics see `odradek.spark.datasource`.
"""

from odradek.spark.pipeline.engine.sinks.batch_sink import BatchSink

__all__ = ["BatchSink"]
