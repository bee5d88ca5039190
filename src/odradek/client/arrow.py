"""Columns to Apache Arrow and back: the only module of the clients that imports pyarrow.

The buffers are wrapped as they are, without a copy and without an object per record, both ways. The
schema of records that are read is that of Spark's Kafka source, plus headers where asked for. A
table to send may have columns of other types with the same content: text for bytes, dictionaries,
large and fixed sizes, any unit of time.
"""

from functools import lru_cache
from typing import Any, NamedTuple

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError(
        "columnar reading and sending needs pyarrow: pip install 'odradek[arrow]'", name="pyarrow"
    ) from error

from odradek.client.pieces import Piece
from odradek.records.batch import Buffer
from odradek.records.columns import BinaryColumn, Columns
from odradek.records.rows import BinaryInput, HeadersInput, NumberInput, Rows, group_rows

__all__ = [
    "SCHEMA",
    "SCHEMA_WITH_HEADERS",
    "ColumnNames",
    "batch_of_columns",
    "pieces_of",
]

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
    # Arrow takes text for UTF-8, and the names have not been checked yet.
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


# Sending


class ColumnNames(NamedTuple):
    """The names of the columns by their content; None if no column has it."""

    value: str = "value"
    key: str | None = "key"
    headers: str | None = "headers"
    partition: str | None = "partition"
    timestamp: str | None = "timestamp"
    topic: str | None = None


def pieces_of(table: Any, topic: str | None, names: ColumnNames, now_ms: int) -> list[Piece]:
    """The rows of a `pyarrow.RecordBatch` or `pyarrow.Table`.

    Args:
        topic: For rows whose topic column does not say.
        now_ms: For rows whose timestamp column does not say.

    Raises:
        TypeError: It is neither, or a column has a type that cannot be sent.
        ValueError: A column is missing, or a row has no topic.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    elif not isinstance(table, pa.Table):
        raise TypeError(f"expected a pyarrow.RecordBatch or Table, not a {type(table).__name__}")
    wanted = _wanted(table.schema, names)
    batches = table.select(list(wanted.values())).to_batches()
    return [_piece(batch, topic, wanted, now_ms) for batch in batches if batch.num_rows]


def _wanted(schema: Any, names: ColumnNames) -> dict[str, str]:
    """Names of columns by their content; optional columns may be missing."""
    wanted = {}
    for field, name in names._asdict().items():
        if name is None:
            continue
        found = schema.get_all_field_indices(name)
        if len(found) > 1:
            raise ValueError(f"column {name!r} is there {len(found)} times")
        if found:
            wanted[field] = name
        elif field == "value" or name != ColumnNames._field_defaults[field]:
            raise ValueError(
                f"no column {name!r} for the {field} of the records; there are "
                f"{', '.join(map(repr, schema.names)) or 'none'}"
            )
    return wanted


def _piece(batch: Any, topic: str | None, wanted: dict[str, str], now_ms: int) -> Piece:
    columns = {field: batch.column(name) for field, name in wanted.items()}
    count = batch.num_rows
    key, headers = columns.get("key"), columns.get("headers")
    timestamp, partition = columns.get("timestamp"), columns.get("partition")
    return Piece(
        Rows(
            count,
            key=None if key is None else _binary_input(key, wanted["key"]),
            value=_binary_input(columns["value"], wanted["value"]),
            headers=None if headers is None else _headers_input(headers, wanted["headers"]),
            timestamps=None if timestamp is None else _timestamps(timestamp, wanted["timestamp"]),
            timestamp=now_ms,
        ),
        None if partition is None else _partitions(partition, wanted["partition"]),
        _topics(columns.get("topic"), topic, wanted.get("topic", "")),
    )


def _binary_input(column: Any, name: str) -> BinaryInput:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        if not (pa.types.is_null(kind) or _is_binary_like(kind)):
            raise TypeError(f"column {name!r} is {kind}, expected binary or string")
        column = _cast(column, pa.binary(), name)
    validity, offsets, data = column.buffers()
    if not column.null_count:
        validity = None
    return BinaryInput(column.offset, validity, offsets or bytes(4), data or b"")


def _is_binary_like(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_large_binary(kind)
        or types.is_large_string(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
    )


def _headers_input(column: Any, name: str) -> HeadersInput:
    kind = column.type
    expected = "list<struct<key: string, value: binary>>"
    if pa.types.is_null(kind):
        column = _cast(column, SCHEMA_WITH_HEADERS.field("headers").type, name)
    elif pa.types.is_large_list(kind):
        column = _cast(column, pa.list_(kind.value_field), name)
    elif not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        raise TypeError(f"column {name!r} is {kind}, expected {expected}")
    pairs = _pairs(column)
    if not pa.types.is_struct(pairs.type) or pairs.type.num_fields != 2:
        raise TypeError(f"column {name!r} is {kind}, expected {expected}")
    # Not as the fields of the struct: a pair that is null has neither.
    keys, values = pairs.flatten()
    validity, offsets, *_ = column.buffers()
    return HeadersInput(
        column.offset,
        validity if column.null_count else None,
        offsets or bytes(4),
        len(pairs),
        _binary_input(keys, f"{name}.key"),
        _binary_input(values, f"{name}.value"),
    )


def _pairs(column: Any) -> Any:
    """All entries of a list or map, those of rows that were cut off as well."""
    if not pa.types.is_map(column.type):
        return column.values
    return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])


def _timestamps(column: Any, name: str) -> NumberInput:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms", tz=kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_integer(kind) or pa.types.is_null(kind):
        column = _cast(column, pa.int64(), name)
    else:
        raise TypeError(f"column {name!r} is {kind}, expected timestamp, or int64 in milliseconds")
    earliest = pc.min(column).as_py()
    if earliest is not None and earliest < 0:
        raise ValueError(f"column {name!r} has {earliest}, expected milliseconds since 1970")
    return _number_input(column)


def _partitions(column: Any, name: str) -> NumberInput:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column {name!r} is {kind}, expected int32")
    return _number_input(_cast(column, pa.int32(), name))


def _number_input(column: Any) -> NumberInput:
    validity, data = column.buffers()
    return NumberInput(column.offset, validity if column.null_count else None, data or b"")


def _topics(column: Any, topic: str | None, name: str) -> list[tuple[str, Buffer | None]]:
    if column is None:
        if topic is None:
            raise ValueError("no topic: neither given nor in a column")
        return [(topic, None)]
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_text or pa.types.is_string_view(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column {name!r} is {kind}, expected string")
    column = _cast(column, pa.string(), name)
    if column.null_count:
        if topic is None:
            raise ValueError(
                f"column {name!r} has {column.null_count} nulls, and no topic is given"
            )
        column = column.fill_null(topic)
    encoded = column.dictionary_encode()
    found = encoded.dictionary.to_pylist()
    if len(found) == 1:
        return [(found[0], None)]
    indices = encoded.indices.buffers()[1].slice(4 * encoded.indices.offset, 4 * len(encoded))
    numbers, ends = group_rows(indices, len(found))
    view = memoryview(numbers)
    starts = [0, *ends]
    return [
        (one, view[4 * start : 4 * end])
        for one, start, end in zip(found, starts, ends, strict=False)
    ]


def _cast(column: Any, kind: Any, name: str) -> Any:
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"column {name!r} cannot be taken as {kind}: {error}") from None
