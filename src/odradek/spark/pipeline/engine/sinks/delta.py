"""Rows into a Delta table, each batch once.

The tasks of a batch write Parquet files into the table's folder, where nobody sees them yet. The
driver then makes all of them part of the table in one commit, and that commit carries Spark's id
of the query and the number of the batch. A batch that is run again, after a crash anywhere, finds
its number there and is skipped; the files of an attempt that came to nothing belong to no version
of the table, and `vacuum` removes them.

With `merge_key` the files are a stage beside the table instead, and the commit is an upsert from
it; of several rows of a batch with one key the last counts.
"""

import json
import os
import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction
from pyspark.sql import functions
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.clock import SystemClock
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import DeltaTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DeltaSink", "TableMismatchError"]

_WRITTEN = "path string, bytes bigint, rows bigint, partition string"
_DESCRIBED = pa.schema(
    {"path": pa.string(), "bytes": pa.int64(), "rows": pa.int64(), "partition": pa.string()}
)
_GROUP_BYTES = 16 << 20
_OPEN_FILES = 256
_STAGES = "_odradek_stage"  # Delta ignores folders that begin with an underscore.
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


class TableMismatchError(PipelineError):
    """The table is there and has other columns, or other partitions, than the rows."""


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
        writer = _Writer(self._target.path, schema, by, self._target.target_file_bytes)
        written = frame.mapInArrow(writer, _WRITTEN).collect()
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
        writer = _Writer(stage, schema, (), self._target.target_file_bytes)
        written = _last_of_each(frame, keys).mapInArrow(writer, _WRITTEN).collect()
        filesystem, folder = _filesystem(stage)
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


class _Writer:
    """Runs in a task: writes its rows to files and tells of each file."""

    def __init__(
        self, path: str, schema: pa.Schema, partition_by: tuple[str, ...], file_bytes: int
    ) -> None:
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._file_bytes = file_bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = _filesystem(self._path)
        kept = [name for name in self._schema.names if name not in self._partition_by]
        of_files = pa.schema([self._schema.field(name) for name in kept])
        files: dict[tuple[Any, ...], _File] = {}
        done: list[dict[str, Any]] = []
        try:
            for batch in batches:
                table = pa.Table.from_batches([batch]).cast(self._schema)
                for values, rows in _by_partition(table, self._partition_by):
                    file = files.get(values)
                    if file is None:
                        texts = map(_as_text, values)
                        named = dict(zip(self._partition_by, texts, strict=True))
                        file = files[values] = _File(filesystem, root, named, of_files)
                    file.add(rows.select(kept))
                    if file.bytes >= self._file_bytes:
                        done.append(files.pop(values).finish())
                if len(files) > _OPEN_FILES:
                    done.extend(files.pop(values).finish() for values in list(files))
            done.extend(file.finish() for file in files.values())
        except BaseException:
            for file in files.values():
                file.abandon()
            raise
        yield pa.RecordBatch.from_pylist(done, schema=_DESCRIBED)


class _File:
    """One Parquet file in the making."""

    def __init__(
        self, filesystem: Any, root: str, values: dict[str, str | None], schema: pa.Schema
    ) -> None:
        folders = [f"{_safe(name)}={_safe(value)}" for name, value in values.items()]
        self._path = "/".join([*folders, f"part-{secrets.token_hex(16)}.snappy.parquet"])
        self._values = values
        self._filesystem = filesystem
        self._full = f"{root}/{self._path}"
        filesystem.create_dir(self._full.rpartition("/")[0], recursive=True)
        self._out = filesystem.open_output_stream(self._full)
        self._writer = pq.ParquetWriter(self._out, schema)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._rows = 0
        self.bytes = 0  # As Arrow counts them; the file is smaller.

    def add(self, rows: pa.Table) -> None:
        """Takes rows; they are written when they make a group worth reading."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self._rows += rows.num_rows
        self.bytes += rows.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> dict[str, Any]:
        """Ends the file; returns what a commit has to know of it."""
        self._write()
        self._writer.close()
        self._out.close()
        size = self._filesystem.get_file_info(self._full).size
        values = json.dumps(self._values)
        return {"path": self._path, "bytes": size, "rows": self._rows, "partition": values}

    def abandon(self) -> None:
        """Ends the file of a task that failed: nobody will commit it."""
        self._out.close()


def _by_partition(
    table: pa.Table, names: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows by the values of those columns, in the order they have."""
    if not names:
        yield (), table
        return
    numbers = pa.array(range(table.num_rows), pa.int64())
    keys = table.select(list(names)).append_column("", numbers)
    groups = keys.group_by(list(names), use_threads=False).aggregate([("", "list")])
    for group in groups.to_pylist():
        yield tuple(group[name] for name in names), table.take(pa.array(group["_list"], pa.int64()))


def _as_text(value: Any) -> str | None:
    """A value of a partition as Delta's log has it."""
    if value is None or isinstance(value, str):
        return value or None  # An empty text is null there.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return str(value)


def _safe(text: str | None) -> str:
    """A name for a folder; readers take a partition's values from the log and not from here."""
    return _NULL_FOLDER if text is None else re.sub(r"[^A-Za-z0-9_.:-]", "_", text)


def _columns(frame: "DataFrame") -> pa.Schema:
    """The columns, each of which may be null: a query that is changed later may have nulls."""
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
    """A type's name, the same for the forms of strings and of nested fields that mean one thing."""
    text = str(kind)
    for long, short in (("large_", ""), ("_view", ""), (" not null", ""), ("element: ", "item: ")):
        text = text.replace(long, short)
    return text


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _filesystem(path: str) -> tuple[Any, str]:
    if "://" in path:
        found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(path)
        return found
    return pyarrow.fs.LocalFileSystem(), path


def _last_of_each(frame: "DataFrame", keys: list[str]) -> "DataFrame":
    """Of the rows with the same key, the one that came last."""
    names = frame.columns
    row = functions.struct(*[functions.col(_quoted(name)) for name in names]).alias("row")
    numbered = frame.select(row, functions.monotonically_increasing_id().alias("n"))
    by = [functions.col("row")[key] for key in keys]
    return numbered.groupBy(*by).agg(functions.max_by("row", "n").alias("row")).select("row.*")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
