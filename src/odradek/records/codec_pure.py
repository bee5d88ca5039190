"""Records to the bytes of a batch and back: the pure twin of `_codec.pyx`; see `codec`.

A batch is encoded or decoded as a whole, so that the loop over its records is one call. Both twins
give the same bytes for any records, which are those of the Java client, equal records for any
bytes, and the same error, down to its message, for a malformed record: the loops only detect *that*
a record cannot be encoded, `unusable_record` says why.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, final

from odradek.errors import InvalidRecordError, InvariantViolation, RecordTooLargeError
from odradek.records.batch import HEADER_SIZE, BatchHeader, Buffer
from odradek.records.malformed import malformed_record, malformed_region
from odradek.records.record import Fields, Headers, read_fields
from odradek.records.varint import encode_varint, encode_varlong, wrap_int64

__all__ = [
    "ConsumerRecord",
    "NewRecord",
    "check_offset_deltas",
    "count_fitting_pure",
    "decode_records_pure",
    "describe_record",
    "encode_record",
    "encode_records_pure",
    "estimate_record_size_pure",
    "iter_fields",
    "oversized_record",
    "unusable_record",
]

# Timestamp, key, value, headers. A bytearray or memoryview may replace bytes, a list a tuple.
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]

# Arguments of a `ConsumerRecord`.
_Arguments: TypeAlias = tuple[
    str, int, int, int, int, bytes | None, bytes | None, Headers, int | None
]

_MAX_INT32: Final = 0x7FFF_FFFF
_MIN_INT64: Final = -0x8000_0000_0000_0000
_MAX_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF
# Length, timestamp and offset at their longest, and the attributes.
_RECORD_OVERHEAD: Final = 5 + 10 + 5 + 1
# Bytes that `_encode_fields` makes of attributes and two deltas of 0.
_ZERO_DELTAS_SIZE: Final = 3
_NULL: Final = encode_varint(-1)

# The same small numbers occur again and again: offsets in a batch, lengths of fields.
_varint: Final = lru_cache(maxsize=1 << 14)(encode_varint)
_varlong: Final = lru_cache(maxsize=1 << 12)(encode_varlong)


def encode_records_pure(
    records: Sequence[NewRecord],
    base_timestamp: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    prefix_size: int = 0,
) -> tuple[bytearray, int]:
    """Encodes the records of a batch behind `prefix_size` bytes left for its header.

    Args:
        base_timestamp: Subtracted from all timestamps; that of the first record if None.
        offset_deltas: One per record, if they are not 0, 1, 2, ….

    Returns:
        The bytes, uncompressed, and the largest timestamp, at least -1.

    Raises:
        TypeError: A field of a record has the wrong type.
        ValueError: A timestamp is not an int64, a header key not text, an offset delta not an
            int32, or there are not as many offset deltas as records.
        RecordTooLargeError: The batch would have more bytes than an int32 length allows.
    """
    if offset_deltas is not None:
        check_offset_deltas(offset_deltas, len(records))
    encoded = bytearray(prefix_size)
    max_timestamp = -1
    for index, record in enumerate(tuple(records)):
        try:
            timestamp, key, value, headers = _checked(record)
            if base_timestamp is None:
                base_timestamp = timestamp
            delta = wrap_int64(timestamp - base_timestamp)
            offset_delta = index if offset_deltas is None else offset_deltas[index]
            parts = _encode_fields(offset_delta, delta, key, value, headers)
            size = sum(map(len, parts))
            head = _encode_length(size)
            if len(encoded) + len(head) + size > _MAX_INT32:
                raise OverflowError
        except (TypeError, ValueError):
            raise unusable_record(index, record) from None
        except OverflowError:
            raise oversized_record(index) from None
        encoded += head
        encoded += b"".join(parts)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
    return encoded, max_timestamp


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> bytes:
    """Encodes one record of a batch, length included; the layout is in `malformed`."""
    body = b"".join(_encode_fields(offset_delta, timestamp_delta, key, value, headers))
    return _encode_length(len(body)) + body


def estimate_record_size_pure(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The most bytes that a record of these fields takes in a batch, by the Java client's rule.

    Raises:
        TypeError: A field has the wrong type.
        ValueError: A header key is not text.
        RecordTooLargeError: A field has more bytes than an int32 length allows.
    """
    return _estimate(None, (0, key, value, headers))


def count_fitting_pure(records: Sequence[NewRecord], start: int, max_bytes: int) -> int:
    """How many records from `start` on surely fit in a batch of `max_bytes`; at least one.

    Raises:
        TypeError, ValueError, RecordTooLargeError: See `encode_records_pure`.
    """
    if start < 0:
        raise ValueError(f"start {start}, expected 0 or more")
    left = max_bytes - HEADER_SIZE
    for index in range(start, len(records)):
        left -= _estimate(index, records[index])
        if left < 0 and index > start:
            return index - start
    return max(0, len(records) - start)


def check_offset_deltas(offset_deltas: Sequence[int], record_count: int) -> None:
    """Raises ValueError unless there is one offset delta from 0 to 2**31 - 1 per record."""
    if len(offset_deltas) != record_count:
        raise ValueError(f"{len(offset_deltas)} offset deltas for {record_count} records")
    if offset_deltas and not 0 <= min(offset_deltas) <= max(offset_deltas) <= _MAX_INT32:
        raise ValueError(
            f"offset deltas from {min(offset_deltas)} to {max(offset_deltas)}, "
            f"expected 0 to {_MAX_INT32}"
        )


def unusable_record(index: int | None, record: Any) -> Exception:
    """The error for the record at `index`, which cannot be encoded."""
    where = "record" if index is None else f"record {index}"
    if not _is_listed(record, 4):
        return TypeError(f"{where}: expected (timestamp, key, value, headers), not {record!r:.80}")
    timestamp, key, value, headers = record
    if not isinstance(timestamp, int):
        return TypeError(f"{where}: its timestamp is {_kind(timestamp)}, expected an int")
    if not _MIN_INT64 <= timestamp <= _MAX_INT64:
        return ValueError(f"{where}: its timestamp {timestamp} is no int64")
    for name, field in (("key", key), ("value", value)):
        if not _is_bytes(field):
            return _no_bytes(f"{where}: its {name}", field)
    if not _is_listed(headers):
        return TypeError(f"{where}: its headers are {_kind(headers)}, expected a tuple of pairs")
    for header in headers:
        if not _is_listed(header, 2):
            return TypeError(f"{where}: a header is {header!r:.80}, expected (key, value)")
        name, content = header
        if not isinstance(name, str):
            return TypeError(f"{where}: a header key is {_kind(name)}, expected a str")
        try:
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            return ValueError(f"{where}: the header key {name!a:.80} is no text: {error.reason}")
        if not _is_bytes(content):
            return _no_bytes(f"{where}: the value of header {name!r:.80}", content)
    raise InvariantViolation(f"{where} was refused but is whole")


def oversized_record(index: int | None) -> RecordTooLargeError:
    """The error for the record with which a batch exceeds an int32 length."""
    upto = "this record" if index is None else f"record {index}"
    return RecordTooLargeError(
        f"with {upto} the batch has more than {_MAX_INT32} bytes; send fewer or smaller records"
    )


def _estimate(index: int | None, record: NewRecord) -> int:
    try:
        _, key, value, headers = _checked(record)
        fields = _encode_fields(0, 0, key, value, headers)
    except (TypeError, ValueError):
        raise unusable_record(index, record) from None
    except OverflowError:
        raise oversized_record(index) from None
    return _RECORD_OVERHEAD - _ZERO_DELTAS_SIZE + sum(map(len, fields))


def _checked(record: Any) -> NewRecord:
    """The record with plain bytes in it; any error means that it cannot be encoded."""
    timestamp, key, value, headers = record if type(record) is tuple else _plain_tuple(record)
    if not isinstance(timestamp, int):
        raise TypeError
    if not _MIN_INT64 <= timestamp <= _MAX_INT64:
        raise ValueError
    if type(key) is not bytes:
        key = _plain_bytes(key)
    if type(value) is not bytes:
        value = _plain_bytes(value)
    if type(headers) is not tuple or headers:
        headers = tuple([_checked_header(header) for header in _plain_tuple(headers)])
    return timestamp, key, value, headers


def _checked_header(header: Any) -> tuple[str, bytes | None]:
    name, content = _plain_tuple(header)
    if not isinstance(name, str):
        raise TypeError
    return name, _plain_bytes(content)


def _plain_tuple(value: Any) -> Any:
    if not isinstance(value, tuple | list):
        raise TypeError
    return tuple(value)


def _plain_bytes(field: Any) -> bytes | None:
    if field is None:
        return None
    if not isinstance(field, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(field)


def _encode_length(length: int) -> bytes:
    if length > _MAX_INT32:
        raise OverflowError
    return _varint(length)


def _encode_fields(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> list[bytes]:
    """All of a record but its length."""
    parts = [b"\x00", _varlong(timestamp_delta), _varint(offset_delta)]
    for field in (key, value):
        parts += (_NULL,) if field is None else (_encode_length(len(field)), field)
    parts.append(_varint(len(headers)))
    for name, content in headers:
        encoded_name = name.encode("utf-8", "surrogateescape")
        parts += (_encode_length(len(encoded_name)), encoded_name)
        parts += (_NULL,) if content is None else (_encode_length(len(content)), content)
    return parts


def _is_listed(value: object, count: int | None = None) -> bool:
    return isinstance(value, tuple | list) and count in (None, len(value))


def _is_bytes(field: object) -> bool:
    return field is None or isinstance(field, bytes | bytearray | memoryview)


def _no_bytes(what: str, field: object) -> TypeError:
    hint = "; encode it first" if isinstance(field, str) else ""
    return TypeError(f"{what} is {_kind(field)}, expected bytes or None{hint}")


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


@final
class ConsumerRecord:
    """A record, with its topic, partition and offset. Immutable."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        leader_epoch: int | None = None,
    ) -> None:
        """Makes one from its fields; `codec.decode_batch` makes those of a batch."""
        self.topic: Final = topic
        self.partition: Final = partition
        self.offset: Final = offset
        self.timestamp: Final = timestamp  # Milliseconds since 1970; -1 for none.
        self.timestamp_type: Final = timestamp_type  # A `codec.TimestampType`.
        self.key: Final = key  # None is not the same as empty.
        self.value: Final = value
        self.headers: Final = headers
        self.leader_epoch: Final = leader_epoch  # Of the leader that stored it, if known.

    def _arguments(self) -> _Arguments:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._arguments() == other._arguments()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return describe_record(*self._arguments())

    def __reduce__(self) -> tuple[Callable[..., "ConsumerRecord"], _Arguments]:
        # By the name of the twin in use, so that each twin reads the other's pickled records.
        from odradek.records.codec import restore_record

        return restore_record, self._arguments()


def describe_record(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    leader_epoch: int | None,
) -> str:
    """The `repr` of a record."""
    return (
        f"ConsumerRecord(topic={topic!r}, partition={partition}, offset={offset}, "
        f"timestamp={timestamp}, timestamp_type={int(timestamp_type)}, key={key!r}, "
        f"value={value!r}, headers={headers!r}, leader_epoch={leader_epoch})"
    )


def decode_records_pure(
    region: Buffer,
    header: BatchHeader,
    from_offset: int,
    topic: str,
    partition: int,
    timestamp_type: int,
) -> list[ConsumerRecord]:
    """Decodes the records at or above `from_offset` of a magic 2 batch, decompressed.

    Raises:
        InvalidRecordError: A record is malformed, or the records do not fill the region.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    records = []
    for timestamp_delta, offset_delta, key, value, headers in iter_fields(region, header):
        offset = wrap_int64(base_offset + offset_delta)
        if offset < from_offset:
            continue
        timestamp = append_time
        if timestamp is None:
            timestamp = wrap_int64(base_timestamp + timestamp_delta)
        origin = (topic, partition, offset, timestamp, timestamp_type)
        records.append(ConsumerRecord(*origin, key, value, headers, leader_epoch))
    return records


def iter_fields(region: Buffer, header: BatchHeader) -> Iterator[Fields]:
    """Steps through the records of a magic 2 batch, decompressed.

    Raises:
        InvalidRecordError: A record is malformed, or the records do not fill the region.
    """
    if header.record_count < 0:
        raise InvalidRecordError(f"{header.record_count} records, expected 0 or more")
    data = region if isinstance(region, bytes) else bytes(region)
    end = len(data)
    position = 0
    for index in range(header.record_count):
        try:
            fields, behind = read_fields(data, position, end)
        except (IndexError, InvalidRecordError):
            raise malformed_record(data, position, end, index) from None
        yield fields
        position = behind
    if position != end:
        raise malformed_region(position, end, header.record_count)
