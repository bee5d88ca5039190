"""The Delta sink: writes rows to a Delta table, each batch once.

The tasks of a batch write Parquet files into the table's folder, where readers do not see them yet.
The driver then adds all of them to the table in one commit, which carries Spark's id of the query
and the number of the batch. A batch that is run again, after a crash at any point, finds its number
there and is skipped; the files of a failed attempt belong to no version of the table, and `vacuum`
removes them.

With `merge_key` the files are a stage beside the table instead, and the commit is an upsert from
it; of several rows of a batch with one key the last is written.
"""

import json
import os
import secrets
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction
from pyspark.sql import functions
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.clock import SystemClock
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.sinks.delta_files import WRITTEN, FileWriter, open_filesystem
from odradek.spark.pipeline.graph.model import DeltaTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeltaSink", "TableMismatchError"]

_STAGES = "_odradek_stage"  # Delta ignores folders that begin with an underscore.


class TableMismatchError(PipelineError):
    """The table exists and has other columns, or other partitions, than the rows."""


class DeltaSink:
    """Writes batches to one table."""

    def __init__(self, target: DeltaTarget) -> None:
        self._target = target

    def write(self, frame: "DataFrame", batch_id: int, query_id: str) -> int:
        """Writes a batch unless the table has it; returns the number of its rows."""
        schema = _columns(frame)
        table = self._open(schema)
        done = table.transaction_version(query_id)
        if done is not None and done >= batch_id:
            return 0
        once = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        if self._target.merge_key:
            rows = self._merge(frame, schema, table, once, batch_id, query_id)
        else:
            rows = self._append(frame, schema, table, once)
        every = self._target.compact_every
        if every and batch_id % every == every - 1:
            table.update_incremental()
            table.optimize.compact(target_size=self._target.target_file_bytes)
        return rows

    def _open(self, schema: pa.Schema) -> DeltaTable:
        path, wanted = self._target.path, list(self._target.partition_by)
        if "://" not in path:
            os.makedirs(path, exist_ok=True)
        if not DeltaTable.is_deltatable(path):
            DeltaTable.create(path, Schema.from_arrow(schema), mode="ignore", partition_by=wanted)
        table = DeltaTable(path)
        has = pa.schema(table.schema().to_arrow())
        there = {field.name: _plain(field.type) for field in has}
        comes = {field.name: _plain(field.type) for field in schema}
        if there != comes:
            raise TableMismatchError(
                f"the table {path} has the columns {_listed(there)}, the rows have"
                f" {_listed(comes)}: change the transform, or write to another path"
            )
        if table.metadata().partition_columns != wanted:
            raise TableMismatchError(
                f"the table {path} is partitioned by {table.metadata().partition_columns}, the"
                f" sink by {wanted}: change partition_by, or write to another path"
            )
        return table

    def _append(
        self, frame: "DataFrame", schema: pa.Schema, table: DeltaTable, once: CommitProperties
    ) -> int:
        by = self._target.partition_by
        writer = FileWriter(self._target.path, schema, by, self._target.target_file_bytes)
        written = frame.mapInArrow(writer, WRITTEN).collect()
        now = SystemClock().now_ms()
        actions = [
            AddAction(
                path=file.path,
                size=file.bytes,
                partition_values=json.loads(file.partition),
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in written
        ]
        table.create_write_transaction(
            list(actions), "append", table.schema(), list(by), commit_properties=once
        )
        return sum(file.rows for file in written)

    def _merge(
        self,
        frame: "DataFrame",
        schema: pa.Schema,
        table: DeltaTable,
        once: CommitProperties,
        batch_id: int,
        query_id: str,
    ) -> int:
        keys = list(self._target.merge_key)
        stage = f"{self._target.path}/{_STAGES}/{query_id}-{batch_id}-{secrets.token_hex(4)}"
        writer = FileWriter(stage, schema, (), self._target.target_file_bytes)
        written = _last_of_each(frame, keys).mapInArrow(writer, WRITTEN).collect()
        filesystem, folder = open_filesystem(stage)
        files = [f"{folder}/{file.path}" for file in written]
        rows = ds.dataset(files, schema=schema, format="parquet", filesystem=filesystem)
        same = " and ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in keys)
        table.merge(
            rows.scanner().to_reader(),
            same,
            source_alias="source",
            target_alias="target",
            commit_properties=once,
        ).when_matched_update_all().when_not_matched_insert_all().execute()
        if files:
            filesystem.delete_dir(folder)
        return sum(file.rows for file in written)


def _columns(frame: "DataFrame") -> pa.Schema:
    """The columns, all nullable, since a query that is changed later may have nulls."""
    fields = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in fields])


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind


def _plain(kind: pa.DataType) -> str:
    """A type's name, the same for equivalent forms of strings and of nested fields."""
    text = str(kind)
    for long, short in (("large_", ""), ("_view", ""), (" not null", ""), ("element: ", "item: ")):
        text = text.replace(long, short)
    return text


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _last_of_each(frame: "DataFrame", keys: list[str]) -> "DataFrame":
    """The last row of each key."""
    names = frame.columns
    row = functions.struct(*[functions.col(_quoted(name)) for name in names]).alias("row")
    numbered = frame.select(row, functions.monotonically_increasing_id().alias("n"))
    by = [functions.col("row")[key] for key in keys]
    return numbered.groupBy(*by).agg(functions.max_by("row", "n").alias("row")).select("row.*")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
