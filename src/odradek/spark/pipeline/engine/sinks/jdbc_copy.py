"""The tasks of a JDBC sink: they copy their rows into the stage of a batch.

Executors import this module, which needs psycopg and pyarrow.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from odradek.spark.pipeline.graph.model import JdbcTarget

__all__ = ["StageCopy", "connect", "listed"]


class StageCopy:
    """Runs in a task: copies its rows into the stage, all of them or none."""

    def __init__(self, target: JdbcTarget, stage: str, names: Sequence[str]) -> None:
        self._target = target
        self._stage = stage
        self._names = tuple(names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = 0
        statement = f"copy {self._stage} ({listed(self._names).as_string(None)}) from stdin"
        with (
            connect(self._target) as connection,
            connection.cursor().copy(statement.encode()) as copy,
        ):
            for batch in batches:
                columns = [column.to_pylist() for column in batch.columns]
                for row in zip(*columns, strict=True):
                    copy.write_row(row)
                count += batch.num_rows
        yield pa.RecordBatch.from_pydict({"rows": [count]})


def connect(target: JdbcTarget) -> "psycopg.Connection[Any]":
    """A connection to the database of a sink."""
    url = target.url.removeprefix("jdbc:")
    return psycopg.connect(
        url,
        user=target.user,
        password=target.password,
        connect_timeout=30,
        # A database that vanished without closing is noticed within a minute or two.
        keepalives_idle=30,
        tcp_user_timeout=60_000,
    )


def listed(names: Sequence[str]) -> sql.Composed:
    """Names of columns, quoted, with commas."""
    return sql.SQL(", ").join([sql.Identifier(name) for name in names])
