"""Delta tables and PostgreSQL hold each batch once, whatever happened to its attempts."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from odradek.spark.pipeline.engine.sinks.delta import DeltaSink, TableMismatchError
from odradek.spark.pipeline.engine.sinks.jdbc import JdbcSink, JdbcTableError
from odradek.spark.pipeline.graph.model import DeltaTarget, JdbcTarget
from tests.support.postgres import missing_postgres, running_postgres

_QUERY = "0b7f4c1e-5a3d-4c7e-9d43-1f2f3a4b5c6d"


def _delta(path: Path, **changes: Any) -> DeltaSink:
    fields: dict[str, Any] = {
        "path": str(path), "partition_by": (), "target_file_bytes": 1 << 20,
        "compact_every": 0, "merge_key": (),
    }  # fmt: skip
    return DeltaSink(DeltaTarget(**fields | changes))


def _table(path: Path) -> Any:
    # Arrow's threads outlive the reading, and abort a process that ends just then.
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table(use_threads=False)


def _rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(path).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture(scope="module")
def everything(spark: SparkSession) -> DataFrame:
    """A row of every type that matters, and one of nulls."""
    return spark.sql(
        """
        select 1L as id, 's e/%x' as text, timestamp '2026-01-02 03:04:05.678' as at,
               date '2026-01-02' as day, 1.5D as number, cast(2.25 as decimal(10, 2)) as price,
               true as is_new, X'00ff' as bytes, array(1, 2) as list,
               named_struct('a', 1L, 'b', 'x') as nested
        union all select 2L, null, null, null, null, null, null, null, null, null
        """
    )


def test_delta_takes_every_type_and_each_batch_once(everything: DataFrame, tmp_path: Path) -> None:
    """12:SP-43: a batch that was committed is skipped, also by a sink that never saw it."""
    table = tmp_path / "table"
    assert _delta(table).write(everything, 0, _QUERY) == 2
    assert _delta(table).write(everything, 0, _QUERY) == 0
    first, second = _rows(table)
    assert first == {
        "id": 1, "text": "s e/%x", "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
        "day": date(2026, 1, 2), "number": 1.5, "price": Decimal("2.25"), "is_new": True,
        "bytes": b"\x00\xff", "list": [1, 2], "nested": {"a": 1, "b": "x"},
    }  # fmt: skip
    assert [value for name, value in second.items() if name != "id"] == [None] * 9
    assert _delta(table).write(everything, 0, "another query") == 2
    assert len(_rows(table)) == 4


def test_delta_partitions_hold_any_text(everything: DataFrame, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = _delta(table, partition_by=("text", "is_new"))
    sink.write(everything, 0, _QUERY)
    assert [row["text"] for row in _rows(table)] == ["s e/%x", None]
    parts = DeltaTable(str(table)).partitions()
    assert {part["text"] for part in parts} == {"s e/%x", None}


def test_delta_crashed_between_files_and_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12:SP-43: files of an attempt that was never committed belong to no version of the table."""
    table = tmp_path / "table"
    rows = spark.range(1_000).repartition(3)
    with monkeypatch.context() as patch:

        def crash(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(DeltaTable, "create_write_transaction", crash)
        with pytest.raises(KeyboardInterrupt):
            _delta(table).write(rows, 7, _QUERY)
    assert _rows(table) == []
    assert list(table.glob("*.parquet")), "the attempt has left its files"
    assert _delta(table).write(rows, 7, _QUERY) == 1_000
    assert [row["id"] for row in _rows(table)] == list(range(1_000))


def test_delta_counts_the_rows_of_a_task_that_failed_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """12:SP-41, SP-43: the task is tried again, and its first attempt's file is not committed."""
    table = tmp_path / "table"

    def fail_first(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails, its rows given away")

    rows = spark.range(500).repartition(2).mapInArrow(fail_first, "id bigint")
    assert _delta(table).write(rows, 0, _QUERY) == 500
    assert [row["id"] for row in _rows(table)] == list(range(500))


def test_delta_merge_keeps_the_last_row_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = _delta(table, merge_key=("id",), compact_every=2)

    def batch(*rows: tuple[int, str]) -> DataFrame:
        return spark.createDataFrame(list(rows), "id bigint, text string").coalesce(1)

    sink.write(batch((1, "a"), (2, "b"), (1, "c")), 0, _QUERY)
    sink.write(batch((2, "x"), (3, "y")), 1, _QUERY)
    assert sink.write(batch((2, "late"), (3, "late")), 1, _QUERY) == 0
    sink.write(batch(), 2, _QUERY)
    assert [(row["id"], row["text"]) for row in _rows(table)] == [(1, "c"), (2, "x"), (3, "y")]
    assert not list(table.glob("_odradek_stage/*")), "a stage goes when it is merged"


def test_delta_files_are_compacted_every_so_often(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = _delta(table, compact_every=3)
    for number in range(3):
        sink.write(spark.range(number * 10, number * 10 + 10).repartition(2), number, _QUERY)
    assert len(DeltaTable(str(table)).file_uris()) == 1
    assert [row["id"] for row in _rows(table)] == list(range(30))


def test_delta_refuses_rows_of_another_shape(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    _delta(table).write(spark.range(1), 0, _QUERY)
    with pytest.raises(TableMismatchError, match="has the columns id int64, the rows have number"):
        _delta(table).write(spark.range(1).withColumnRenamed("id", "number"), 1, _QUERY)
    with pytest.raises(TableMismatchError, match="is partitioned by"):
        _delta(table, partition_by=("id",)).write(spark.range(1), 1, _QUERY)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of a PostgreSQL for this module."""
    reason = missing_postgres()
    if reason is not None:
        pytest.skip(reason)
    with running_postgres() as url:
        yield url


def _jdbc(url: str, table: str, *key: str) -> JdbcSink:
    return JdbcSink(JdbcTarget(url=url, table=table, key=key, user=None, password=None))


def _ask(url: str, question: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(question.encode()).fetchall()


def test_jdbc_makes_the_table_and_takes_every_type(everything: DataFrame, database: str) -> None:
    """12:SP-42: each batch once, also for a sink that never saw it."""
    assert _jdbc(f"jdbc:{database}", "types", "id").write(everything, 0, _QUERY) == 2
    assert _jdbc(database, "types", "id").write(everything, 0, _QUERY) == 0
    first, second = _ask(database, "select * from types order by id")
    assert first == (
        1, "s e/%x", datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), date(2026, 1, 2), 1.5,
        Decimal("2.25"), True, b"\x00\xff", [1, 2], {"a": 1, "b": "x"},
    )  # fmt: skip
    assert second[1:] == (None,) * 9
    noted = _ask(database, f"select batch, rows from odradek_commits where query = '{_QUERY}'")
    assert noted == [(0, 2)]


def test_jdbc_upserts_the_last_row_of_a_key(spark: SparkSession, database: str) -> None:
    """12:SP-42: new keys are inserted, known ones changed, of several rows the last counts."""

    def batch(*rows: tuple[int, str, str]) -> DataFrame:
        return spark.createDataFrame(list(rows), "a bigint, b string, c string").coalesce(1)

    sink = _jdbc(database, "upserts", "a", "b")
    text = "tab\t, line\n, back\\slash, N: \\N, quote\"'"
    sink.write(batch((1, "x", "old"), (2, "x", "keeps"), (1, "x", "new")), 0, "q")
    sink.write(batch((1, "x", text), (1, "y", "other key")), 1, "q")
    found = _ask(database, "select * from upserts order by a, b")
    assert found == [(1, "x", text), (1, "y", "other key"), (2, "x", "keeps")]


def test_jdbc_crashed_between_stage_and_merge(
    spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12:SP-42: a stage that is there already is made anew, so nothing is counted twice."""
    rows = spark.range(300).repartition(3)
    with monkeypatch.context() as patch:

        def crash(*_: Any) -> int:
            raise KeyboardInterrupt

        patch.setattr(JdbcSink, "_merge", crash)
        with pytest.raises(KeyboardInterrupt):
            _jdbc(database, "crashes", "id").write(rows, 5, "q5")
    stages = "select count(*) from pg_tables where tablename like 'odradek_stage%'"
    assert _ask(database, stages) == [(1,)]
    assert _ask(database, "select count(*) from crashes") == [(0,)]
    assert _jdbc(database, "crashes", "id").write(rows, 5, "q5") == 300
    assert _ask(database, "select count(*), count(distinct id) from crashes") == [(300, 300)]
    assert _ask(database, stages) == [(0,)]


def test_jdbc_says_what_is_wrong_with_a_table(spark: SparkSession, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("create table loose (id bigint)")
    with pytest.raises(JdbcTableError, match="needs a unique index on \\(id\\)"):
        _jdbc(database, "loose", "id").write(spark.range(1), 0, "q6")
    with pytest.raises(JdbcTableError, match="the rows have no number: they have id"):
        _jdbc(database, "fresh", "number").write(spark.range(1), 0, "q6")
    _jdbc(database, "narrow", "id").write(spark.range(1), 0, "q6")
    with pytest.raises(JdbcTableError, match="lacks one of them"):
        _jdbc(database, "narrow", "id").write(spark.range(1).selectExpr("id", "id as b"), 1, "q6")
