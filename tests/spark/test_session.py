"""The session itself: which Java and Python run it, and how it is set up."""

import os
import sys

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceRegistration

from odradek.errors import ConfigError
from odradek.spark import register
from odradek.spark.session import build_session


def test_runs_as_it_was_asked_to(spark: SparkSession) -> None:
    """12:SP-40, 12:SP-41."""
    context = spark.sparkContext
    assert context.master == "local[2,4]"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert os.path.exists(os.path.join(os.environ["JAVA_HOME"], "bin", "java"))
    workers = context.range(2).map(lambda _: (sys.executable, sys.version_info[:2])).collect()
    assert set(workers) == {(sys.executable, sys.version_info[:2])}


def test_a_task_that_fails_is_tried_again(spark: SparkSession) -> None:
    """12:SP-41."""

    def fail_twice(number: int) -> int:
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]  # in a task
        if attempt < 2:
            raise RuntimeError("not yet")
        return attempt

    assert spark.sparkContext.range(1, numSlices=1).map(fail_twice).collect() == [2]


def test_finds_the_source_without_being_told_of_a_module(spark: SparkSession) -> None:
    """12:SP-40."""
    assert spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists("odradek")


def test_another_master_is_refused_while_a_session_runs(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"a Spark session on local\[2,4\] already"):
        build_session(master="local[1]")
    assert build_session(master="local[2]") is spark


def test_a_source_that_spark_has_found_is_not_replaced(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would warn: `replaced a statically registered data source`."""
    given: list[type] = []
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(
        DataSourceRegistration, "register", lambda self, source: given.append(source)
    )
    register(spark)
    assert given == []
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python3")
    register(spark)
    assert [one.__name__ for one in given] == ["DefaultSource"]
