"""The sinks of a pipeline that copies and sums up numbers while faults happen, and what they hold.

The sink `table` needs a PostgreSQL; without one the pipeline runs with the others, and the test of
that sink is skipped, which is seen.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from tests.support.numbers import Row, copied_rows, delta_rows, differences, row_of, sums
from tests.support.postgres import missing_postgres, running_postgres

__all__ = ["SINKS", "HeldNumbers", "held_numbers", "maybe_postgres", "sinks_text"]

SINKS = ("files", "lake", "copy", "sums", "table")

_TEXT = """\
sinks:
  files: {from: rows, files: {path: "${FOLDER}/files"}}
  lake: {from: rows, delta: {path: "${FOLDER}/lake"}}
  copy: {from: rows, topic: "${COPY}"}
  sums: {from: buckets, output_mode: update, delta: {path: "${FOLDER}/sums", merge_key: [bucket]}}
"""
_TABLE = """\
  table: {from: rows, jdbc: {url: "${DATABASE}", table: numbers, key: [part, place]}}
"""


def sinks_text(database: str | None) -> str:
    """The sinks as a pipeline file has them, of rows (`part`, `place`, `id`) and `buckets`."""
    return _TEXT + (_TABLE if database else "")


@contextlib.contextmanager
def maybe_postgres() -> Iterator[str | None]:
    """The URL of a database; None where there is no PostgreSQL."""
    if missing_postgres() is not None:
        yield None
        return
    with running_postgres() as url:
        yield url


@dataclass(frozen=True, slots=True)
class HeldNumbers:
    """What there has to be, and what each sink has."""

    expected: list[Row]
    rows: dict[str, list[Row]]
    sums: list[dict[str, Any]]

    def check(self, sink: str) -> None:
        """Nothing is missing, and nothing is there twice; in a topic it may be."""
        if sink == "sums":
            found = {one["bucket"]: (one["many"], one["total"]) for one in self.sums}
            assert len(self.sums) == len(found)
            assert found == sums(self.expected)
        else:
            assert differences(self.rows[sink], self.expected) == {}


def held_numbers(
    spark: SparkSession,
    folder: Path,
    *,
    bootstrap: str,
    copy: str,
    database: str | None,
    expected: list[Row],
) -> HeldNumbers:
    """Reads all sinks, files as Spark does."""
    files = spark.read.parquet(f"{folder}/files").collect()
    rows = {
        "files": [row_of(one.asDict()) for one in files],
        "lake": [row_of(one) for one in delta_rows(folder / "lake")],
        "copy": sorted(set(copied_rows(bootstrap, copy))),
    }
    if database:
        rows["table"] = _database_rows(database)
    return HeldNumbers(expected, rows, delta_rows(folder / "sums"))


def _database_rows(url: str) -> list[Row]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select part, place, id from numbers").fetchall()
    return [(part, place, number) for part, place, number in rows]
