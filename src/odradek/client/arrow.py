"""Columns to Apache Arrow and nothing else: the only module that imports pyarrow for readers.

The buffers are wrapped as they are, without a copy and without an object per record. The schema is
that of Spark's Kafka source, plus headers where asked for.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

try:
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no stubs
except ImportError as error:
    raise ImportError(
        "columnar reading needs pyarrow: pip install 'odradek[arrow]'", name="pyarrow"
    ) from error

from odradek.records.codec import ConsumerRecord
from odradek.records.columns import BinaryColumn, Columns

__all__ = ["SCHEMA", "SCHEMA_WITH_HEADERS", "batch_of_columns", "batch_of_records"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TIMESTAMP_MS = pa.timestamp("ms", tz="UTC")
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestamp_type", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", pa.list_(pa.field("element", _HEADER))))


def batch_of_columns(topic: str, partition: int, columns: Columns, *, headers: bool) -> Any:
    """The records of one partition as a `pyarrow.RecordBatch`."""
    count = columns.count
    arrays = [
        _binary(columns.key, count, pa.binary()),
        _binary(columns.value, count, pa.binary()),
        _repeated(topic, _room_for(count)).slice(0, count),
        _repeated_number(partition, _room_for(count)).slice(0, count),
        _numbers(columns.offset, count, pa.int64()),
        _numbers(columns.timestamp, count, _TIMESTAMP_MS).cast(_TIMESTAMP, safe=False),
        _numbers(columns.timestamp_type, count, pa.int32()),
    ]
    if headers:
        arrays.append(_headers(columns))
    schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batch_of_records(records: Sequence[ConsumerRecord], *, headers: bool) -> Any:
    """Records that exist already as a `pyarrow.RecordBatch`."""
    arrays = [
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.topic for record in records], pa.string()),
        pa.array([record.partition for record in records], pa.int32()),
        pa.array([record.offset for record in records], pa.int64()),
        pa.array([record.timestamp for record in records], pa.int64())
        .cast(_TIMESTAMP_MS)
        .cast(_TIMESTAMP, safe=False),
        pa.array([int(record.timestamp_type) for record in records], pa.int32()),
    ]
    if headers:
        told = [
            [{"key": key, "value": value} for key, value in record.headers] or None
            for record in records
        ]
        arrays.append(pa.array(told, SCHEMA_WITH_HEADERS.field("headers").type))
    schema = SCHEMA_WITH_HEADERS if headers else SCHEMA
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(column: BinaryColumn, count: int, kind: Any) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    return pa.Array.from_buffers(
        kind,
        count,
        [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
        null_count=column.null_count,
    )


def _numbers(data: bytearray, count: int, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], null_count=0)


def _headers(columns: Columns) -> Any:
    """Null for a record without headers."""
    headers = columns.headers
    keys = _binary(headers.key, headers.count, pa.string())
    # Nobody has checked that they are UTF-8, and Arrow takes it for granted.
    keys.validate(full=True)
    pairs = pa.StructArray.from_arrays(
        [keys, _binary(headers.value, headers.count, pa.binary())], fields=list(_HEADER)
    )
    offsets = pa.Array.from_buffers(
        pa.int32(), columns.count + 1, [None, pa.py_buffer(headers.offsets)]
    )
    lists = pa.ListArray.from_arrays(offsets, pairs, type=SCHEMA_WITH_HEADERS.field("headers").type)
    if not headers.count:
        return pa.nulls(columns.count, lists.type)
    numbers = offsets.to_numpy()
    is_empty = numbers[1:] == numbers[:-1]
    if not is_empty.any():
        return lists
    return pa.ListArray.from_arrays(offsets, pairs, type=lists.type, mask=pa.array(is_empty))


def _room_for(count: int) -> int:
    """The next power of two: few lengths are cached, and each serves many batches."""
    return 1 << max(count - 1, 1).bit_length()


@lru_cache(maxsize=64)
def _repeated(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)


@lru_cache(maxsize=64)
def _repeated_number(number: int, count: int) -> Any:
    return pa.repeat(pa.scalar(number, pa.int32()), count)
