"""A session on this machine for work that is short: a pipeline's tests, a look at its queries."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from odradek.spark.pipeline.graph.model import Pipeline
from odradek.spark.session import build_session

__all__ = ["local_session", "quieten_pyspark"]


@contextmanager
def local_session(pipeline: Pipeline, spark_log: str = "off") -> Iterator[SparkSession]:
    """A session with the settings of a pipeline, whatever master that has.

    Args:
        pipeline: whose settings it has.
        spark_log: what Spark logs, `off` to `info`.

    Raises:
        ConfigError: a setting cannot be used, or there is no Java.
    """
    quieten_pyspark()
    session = build_session(
        master="local[2]",
        conf=pipeline.spark.conf,
        app_name=f"odradek-{pipeline.name}-test",
        quick_start=True,
    )
    try:
        session.sparkContext.setLogLevel(spark_log.upper())
        yield session
    finally:
        session.stop()


def quieten_pyspark() -> None:
    """Keeps it from logging, with Java's stack, what is told in a line of its own."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
