"""Sinks that write one micro-batch at a time; a batch that is repeated is stored once.

Topics and files are not here: files are sinks of Spark, topics are written at least once by
`odradek.spark.datasource`, and exactly once by `odradek.spark.transactional`.
"""

from odradek.spark.pipeline.engine.sinks.batch_sink import BatchSink

__all__ = ["BatchSink"]
