"""The JDBC sink: upserts rows into a table of PostgreSQL, each batch once.

The tasks of a batch `COPY` their rows into a stage, an unlogged table that is created again when
the batch begins. The driver then, in one transaction, merges the stage into the table, notes the
batch in `odradek_commits` and drops the stage. A batch that is run again finds its note and is
skipped.

A task that ran twice has its rows in the stage twice, and several rows may have one key: of the
rows with one key the last is written. Without a key, repeated rows could not be recognised, so it
is required.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql
from pyspark.sql import Column, functions, types

from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.sinks.jdbc_copy import StageCopy, connect, listed
from odradek.spark.pipeline.graph.model import JdbcTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["JdbcSink", "JdbcTableError"]

_NUMBER = "odradek_n"  # The column of the stage with the order of the rows.
_KEPT_NOTES = 1_000

_COMMITS: LiteralString = """
    create table if not exists odradek_commits (
        query text not null,
        batch bigint not null,
        rows bigint not null,
        committed_at timestamptz not null default now(),
        primary key (query, batch)
    )"""

_TYPES: dict[type[types.DataType], LiteralString] = {
    types.BooleanType: "boolean",
    types.ByteType: "smallint",
    types.ShortType: "smallint",
    types.IntegerType: "integer",
    types.LongType: "bigint",
    types.FloatType: "real",
    types.DoubleType: "double precision",
    types.StringType: "text",
    types.BinaryType: "bytea",
    types.DateType: "date",
    types.TimestampType: "timestamptz",
    types.TimestampNTZType: "timestamp",
    types.StructType: "jsonb",
    types.MapType: "jsonb",
    types.ArrayType: "jsonb",
}


class JdbcTableError(PipelineError):
    """The table does not fit the rows."""


class JdbcSink:
    """Writes batches to one table."""

    def __init__(self, target: JdbcTarget) -> None:
        self._target = target
        self._is_ready = False

    def write(self, frame: "DataFrame", batch_id: int, query_id: str) -> int:
        """Writes a batch unless the table has it; returns the number of rows added or changed."""
        names = frame.columns
        stage = f"odradek_stage_{query_id.replace('-', '')[:20]}_{batch_id}"
        with connect(self._target) as connection:
            if not self._is_ready:
                self._prepare(connection, frame.schema)
                self._is_ready = True
            if _is_noted(connection, query_id, batch_id):
                connection.execute(sql.SQL("drop table if exists {}").format(self._named(stage)))
                return 0
            self._make_stage(connection, stage, names)
            connection.commit()
            self._fill(frame, stage)
            return self._merge(connection, stage, names, query_id, batch_id)

    def _prepare(self, connection: "psycopg.Connection[Any]", schema: types.StructType) -> None:
        missing = [key for key in self._target.key if key not in schema.names]
        if missing:
            raise JdbcTableError(
                f"the key of a row for {self._target.table} is {', '.join(self._target.key)}, and"
                f" the rows have no {', '.join(missing)}: they have {', '.join(schema.names)}"
            )
        # Otherwise two queries that start at once would both find no table and both create it.
        connection.execute("select pg_advisory_xact_lock(hashtext('odradek_commits'))")
        connection.execute(_COMMITS)
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type_name(field)))
            for field in schema.fields
        ]
        connection.execute(
            sql.SQL("create table if not exists {} ({}, primary key ({}))").format(
                self._table(), sql.SQL(", ").join(columns), listed(self._target.key)
            )
        )
        connection.commit()
        self._check_unique(connection)

    def _check_unique(self, connection: "psycopg.Connection[Any]") -> None:
        found = connection.execute(
            """
            select array_agg(a.attname::text order by a.attname)
            from pg_index i join pg_attribute a
              on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
            where i.indrelid = %s::regclass and i.indisunique and i.indpred is null
            group by i.indexrelid""",
            [self._table().as_string(connection)],
        ).fetchall()
        unique = [tuple(row[0]) for row in found]
        if tuple(sorted(self._target.key)) not in unique:
            raise JdbcTableError(
                f"the table {self._target.table} needs a unique index on"
                f" ({', '.join(self._target.key)}) for the upsert; it has {unique or 'none'}"
            )

    def _make_stage(
        self, connection: "psycopg.Connection[Any]", stage: str, names: Sequence[str]
    ) -> None:
        connection.execute(sql.SQL("drop table if exists {}").format(self._named(stage)))
        try:
            connection.execute(
                sql.SQL(
                    "create unlogged table {} as select {}, 0::bigint as {} from {} with no data"
                ).format(self._named(stage), listed(names), sql.Identifier(_NUMBER), self._table())
            )
        except psycopg.errors.UndefinedColumn as error:
            raise JdbcTableError(
                f"the rows have the columns {', '.join(names)}, and the table"
                f" {self._target.table} lacks one of them: {error.diag.message_primary}"
            ) from error

    def _fill(self, frame: "DataFrame", stage: str) -> None:
        columns = [_plain(field) for field in frame.schema.fields]
        numbered = frame.select(*columns, functions.monotonically_increasing_id().alias(_NUMBER))
        copy = StageCopy(self._target, self._named(stage).as_string(None), numbered.columns)
        numbered.mapInArrow(copy, "rows bigint").collect()

    def _merge(
        self,
        connection: "psycopg.Connection[Any]",
        stage: str,
        names: Sequence[str],
        query_id: str,
        batch_id: int,
    ) -> int:
        others = [name for name in names if name not in self._target.key]
        change: sql.Composable = sql.SQL("do nothing")
        if others:
            pairs = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
            change = sql.SQL("do update set {}").format(sql.SQL(", ").join(pairs))
        keys = listed(self._target.key)
        with connection.transaction():
            merged = connection.execute(
                sql.SQL(
                    "insert into {table} ({names}) select {names} from ("
                    "select distinct on ({keys}) * from {stage} order by {keys}, {number} desc"
                    ") newest on conflict ({keys}) {change}"
                ).format(
                    table=self._table(), names=listed(names), keys=keys, change=change,
                    stage=self._named(stage), number=sql.Identifier(_NUMBER),
                )
            )  # fmt: skip
            rows = merged.rowcount
            connection.execute(
                "insert into odradek_commits (query, batch, rows) values (%s, %s, %s)",
                [query_id, batch_id, rows],
            )
            connection.execute(
                "delete from odradek_commits where query = %s and batch < %s",
                [query_id, batch_id - _KEPT_NOTES],
            )
            connection.execute(sql.SQL("drop table {}").format(self._named(stage)))
        return rows

    def _table(self) -> sql.Identifier:
        return sql.Identifier(*self._target.table.split("."))

    def _named(self, stage: str) -> sql.Identifier:
        """The stage, beside the table."""
        return sql.Identifier(*self._target.table.split(".")[:-1], stage)


def _plain(field: types.StructField) -> Column:
    """A column for a row of text: nested values become JSON."""
    column = functions.col("`" + field.name.replace("`", "``") + "`")
    if isinstance(field.dataType, types.StructType | types.MapType | types.ArrayType):
        column = functions.to_json(column, {"ignoreNullFields": "false"})
    return column.alias(field.name)


def _is_noted(connection: "psycopg.Connection[Any]", query_id: str, batch_id: int) -> bool:
    found = connection.execute(
        "select 1 from odradek_commits where query = %s and batch = %s", [query_id, batch_id]
    )
    return found.fetchone() is not None


def _type_name(field: types.StructField) -> LiteralString:
    kind = field.dataType
    if isinstance(kind, types.DecimalType):
        return "numeric"
    return _TYPES.get(type(kind), "text")
