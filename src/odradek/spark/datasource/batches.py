"""Converts columns of records to Arrow, in exactly the schema that Spark expects.

Only the selected columns are wrapped, without a copy. Spark checks only the first batch of a task,
so the others must be right unchecked.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from odradek.records.columns import BinaryColumn, Columns
from odradek.spark.datasource.schema import HEADERS
from odradek.spark.datasource.splits import Split

__all__ = ["MAX_BATCH_BYTES", "arrow_schema", "batches_of"]

# Batches of 1 to 10 MB reach the JVM fastest; a larger one, after decompression, is cut.
MAX_BATCH_BYTES: Final = 8 << 20

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_TIMESTAMP_MS: Final = pa.timestamp("ms", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    HEADERS: pa.list_(pa.field("element", _HEADER)),
}


@lru_cache(maxsize=64)
def arrow_schema(names: tuple[str, ...]) -> Any:
    """The `pyarrow.Schema` of some columns."""
    return pa.schema([(name, _TYPES[name]) for name in names])


def batches_of(columns: Columns, split: Split, names: tuple[str, ...]) -> Iterator[Any]:
    """The records of a split that are in `columns`, as `pyarrow.RecordBatch`es.

    `columns` has no records before the split; those beyond its end are left out.
    """
    offsets = _numbers(columns.offset, columns.count, pa.int64())
    # Offsets ascend.
    count = int(offsets.to_numpy().searchsorted(split.end))
    if not count:
        return
    arrays = [_array(name, columns, split, offsets) for name in names]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))
    size = len(columns.key.data) + len(columns.value.data)
    rows = max(count * MAX_BATCH_BYTES // size, 1) if size > MAX_BATCH_BYTES else count
    for start in range(0, count, rows):
        yield batch.slice(start, min(rows, count - start))


def _array(name: str, columns: Columns, split: Split, offsets: Any) -> Any:
    count = columns.count
    match name:
        case "key":
            return _binary(columns.key, count, pa.binary())
        case "value":
            return _binary(columns.value, count, pa.binary())
        case "topic":
            return _repeated(split.topic, _room_for(count)).slice(0, count)
        case "partition":
            return _repeated_number(split.partition, _room_for(count)).slice(0, count)
        case "offset":
            return offsets
        case "timestamp":
            return _numbers(columns.timestamp, count, _TIMESTAMP_MS).cast(_TIMESTAMP, safe=False)
        case "timestampType":
            return _numbers(columns.timestamp_type, count, pa.int32())
    assert name == HEADERS, f"no column {name}"
    return _headers(columns)


def _binary(column: BinaryColumn, count: int, kind: Any) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, count, buffers, null_count=column.null_count)


def _numbers(data: bytearray, count: int, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], null_count=0)


def _headers(columns: Columns) -> Any:
    """Null for a record without headers, as in Spark's own source."""
    headers, kind = columns.headers, _TYPES[HEADERS]
    if not headers.count:
        return pa.nulls(columns.count, kind)
    keys = _text(headers.key, headers.count)
    values = _binary(headers.value, headers.count, pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    offsets = _numbers(headers.offsets, columns.count + 1, pa.int32())
    numbers = offsets.to_numpy()
    is_empty = numbers[1:] == numbers[:-1]
    mask = pa.array(is_empty) if is_empty.any() else None
    return pa.ListArray.from_arrays(offsets, pairs, type=kind, mask=mask)


def _text(column: BinaryColumn, count: int) -> Any:
    """Checks that the bytes are UTF-8, which Arrow assumes, and repairs them if not."""
    texts = _binary(column, count, pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        # As Kafka's own clients do; one malformed header must not fail a query.
        raw = _binary(column, count, pa.binary()).to_pylist()
        texts = pa.array([one.decode("utf-8", "replace") for one in raw], pa.string())
    return texts


def _room_for(count: int) -> int:
    """The next power of two, so that few cached lengths serve many batches."""
    return 1 << max(count - 1, 1).bit_length()


@lru_cache(maxsize=64)
def _repeated(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)


@lru_cache(maxsize=64)
def _repeated_number(number: int, count: int) -> Any:
    return pa.repeat(pa.scalar(number, pa.int32()), count)
