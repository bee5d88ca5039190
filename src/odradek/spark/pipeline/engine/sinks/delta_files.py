"""The tasks of a Delta sink: they write Parquet files and report them to the driver.

Executors import this module, so it needs only pyarrow: the driver writes the table's log.
"""

import json
import re
import secrets
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

__all__ = ["WRITTEN", "FileWriter", "open_filesystem"]

# The columns that a writer yields, as DDL.
WRITTEN = "path string, bytes bigint, rows bigint, partition string"
_DESCRIBED = pa.schema(
    {"path": pa.string(), "bytes": pa.int64(), "rows": pa.int64(), "partition": pa.string()}
)
_GROUP_BYTES = 16 << 20
_OPEN_FILES = 256
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


class FileWriter:
    """Runs in a task: writes its rows to files and yields a row for each file."""

    def __init__(
        self, path: str, schema: pa.Schema, partition_by: tuple[str, ...], file_bytes: int
    ) -> None:
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._file_bytes = file_bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = open_filesystem(self._path)
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
    """One Parquet file that is being written."""

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
        """Adds rows; they are written once they fill a row group."""
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
        """Ends the file; returns the facts of it that a commit needs."""
        self._write()
        self._writer.close()
        self._out.close()
        size = self._filesystem.get_file_info(self._full).size
        values = json.dumps(self._values)
        return {"path": self._path, "bytes": size, "rows": self._rows, "partition": values}

    def abandon(self) -> None:
        """Ends the file of a task that failed; it is never committed."""
        self._out.close()


def _by_partition(
    table: pa.Table, names: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows grouped by the values of the columns, each group in its original order."""
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
    """A name for a folder; readers use a partition's values in the log, not this name."""
    return _NULL_FOLDER if text is None else re.sub(r"[^A-Za-z0-9_.:-]", "_", text)


def open_filesystem(path: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path within it."""
    if "://" in path:
        found: tuple[Any, str] = pyarrow.fs.FileSystem.from_uri(path)
        return found
    return pyarrow.fs.LocalFileSystem(), path
