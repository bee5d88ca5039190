"""Keys and values of the topic of transactions, `__transaction_state`. Pure.

Big-endian; STRING, counts and tagged fields as in the wire protocol. One record is the state of one
transactional id; a value of null forgets the id::

    key 0      transactional id STRING

    value 0    producer id int64, producer epoch int16, timeout ms int32, state int8,
               nullable array of (topic STRING, array of partition int32),
               last update ms int64, start ms int64 (-1: no transaction)
    value 1    the same in the flexible form: compact lengths, and tagged fields after each topic
               and at the end: 0 previous producer id int64 (-1), 1 next producer id int64 (-1),
               2 version of the client's protocol int16 (0), 3 next producer epoch int16 (-1)

A tagged field that has the value in parentheses is left out. Tagged fields with other numbers are
kept. A value of another version is an error; keys of other versions belong to newer brokers
(`UnknownKeyVersionError`).
"""

import sys
from array import array
from collections.abc import Mapping
from dataclasses import field
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeAlias

from odradek.coordinator.transaction.state import TransactionState
from odradek.errors import DecodeError
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.model import TopicPartition
from odradek.protocol.primitives import encode_uvarint, parse_uvarint

__all__ = [
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Partitions",
    "TransactionRecord",
    "TransactionState",
    "UnknownKeyVersionError",
    "encode_transaction_key",
    "encode_transaction_value",
    "parse_transaction_key",
    "parse_transaction_value",
]

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

_KEY_VERSION: Final = 0
_FLEXIBLE_VERSION: Final = 1
_MAX_STRING_BYTES: Final = 0x7FFF

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_HEAD: Final = Struct(">hqhib")  # Version, producer id and epoch, timeout, state.
_TIMES: Final = Struct(">qq")
_HEAD_BYTES: Final = _HEAD.size

# The tags of value 1.
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
_KNOWN_TAGS: Final = 4

# Numbers of partitions by topic: the partitions of a transaction.
Partitions: TypeAlias = Mapping[str, frozenset[int]]


class UnknownKeyVersionError(DecodeError):
    """A key of a newer broker's format; its record is skipped."""


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """The state of one transactional id, as stored."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    by_topic: Partitions = field(default_factory=dict)
    # The id that `producer_id` has replaced, or is that of the transition before this one.
    previous_producer_id: int = NO_PRODUCER_ID
    # The id after the markers, if the epochs of this one are exhausted.
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0  # `transaction.version` of the client's protocol.
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    unknown_tags: tuple[tuple[int, bytes], ...] = ()

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """All partitions, ordered."""
        return tuple(
            TopicPartition(topic, number)
            for topic in sorted(self.by_topic)
            for number in sorted(self.by_topic[topic])
        )


def encode_transaction_key(transactional_id: str) -> bytes:
    """The key of an id, which fits into a string of 32767 bytes."""
    return _INT16.pack(_KEY_VERSION) + _string(transactional_id)


def encode_transaction_value(record: TransactionRecord, version: int) -> bytes:
    """The value of a record in version 0 or 1; version 0 has no tagged fields."""
    is_flexible = version >= _FLEXIBLE_VERSION
    parts = [
        _HEAD.pack(
            version, record.producer_id, record.producer_epoch, record.timeout_ms, record.state
        ),
        _encode_partitions(record, is_flexible=is_flexible),
        _TIMES.pack(record.last_update_ms, record.start_ms),
    ]
    if is_flexible:
        tags = [*_own_tags(record), *record.unknown_tags]
        parts.append(encode_uvarint(len(tags)))
        for tag, data in tags:
            parts += (encode_uvarint(tag), encode_uvarint(len(data)), data)
    return b"".join(parts)


def _own_tags(record: TransactionRecord) -> list[tuple[int, bytes]]:
    tags = []
    if record.previous_producer_id != NO_PRODUCER_ID:
        tags.append((_PREVIOUS_ID, _INT64.pack(record.previous_producer_id)))
    if record.next_producer_id != NO_PRODUCER_ID:
        tags.append((_NEXT_ID, _INT64.pack(record.next_producer_id)))
    if record.client_transaction_version:
        tags.append((_CLIENT_VERSION, _INT16.pack(record.client_transaction_version)))
    if record.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append((_NEXT_EPOCH, _INT16.pack(record.next_producer_epoch)))
    return tags


def _encode_partitions(record: TransactionRecord, *, is_flexible: bool) -> bytes:
    topics = record.by_topic
    if record.state is TransactionState.EMPTY:
        return b"\x00" if is_flexible else b"\xff\xff\xff\xff"
    if not is_flexible:
        parts = [_INT32.pack(len(topics))]
        for topic in sorted(topics):
            parts += (_string(topic), _INT32.pack(len(topics[topic])), _numbers(topics[topic]))
        return b"".join(parts)
    parts = [encode_uvarint(len(topics) + 1)]
    for topic in sorted(topics):
        name, numbers = topic.encode(), topics[topic]
        parts += (
            encode_uvarint(len(name) + 1), name,
            encode_uvarint(len(numbers) + 1), _numbers(numbers),
            b"\x00",
        )  # fmt: skip
    return b"".join(parts)


def _numbers(numbers: frozenset[int]) -> bytes:
    ordered = array("i", sorted(numbers))
    if sys.byteorder == "little":
        ordered.byteswap()
    return ordered.tobytes()


def _string(text: str) -> bytes:
    data = text.encode()
    assert len(data) <= _MAX_STRING_BYTES, "checked where the request was read"
    return _INT16.pack(len(data)) + data


def parse_transaction_key(key: bytes) -> str:
    """The transactional id.

    Raises:
        UnknownKeyVersionError: The key has another version.
        DecodeError: It is malformed.
    """
    reader = _Reader(key, "key")
    try:
        version = reader.int16()
        if version != _KEY_VERSION:
            raise UnknownKeyVersionError(f"key of version {version}, expected {_KEY_VERSION}")
        transactional_id = reader.string()
        reader.expect_end()
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise reader.malformed(error) from error
    return transactional_id


def parse_transaction_value(value: bytes) -> TransactionRecord:
    """The state of an id.

    Raises:
        DecodeError: It is malformed, or of a version or state that is not known.
    """
    reader = _Reader(value, "value")
    try:
        return _parse_value(reader)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise reader.malformed(error) from error


def _parse_value(reader: "_Reader") -> TransactionRecord:
    version, producer_id, producer_epoch, timeout_ms, number = reader.head()
    if not 0 <= version <= _FLEXIBLE_VERSION:
        raise DecodeError(
            f"value of version {version}, expected 0 to {_FLEXIBLE_VERSION}: written by a newer"
            " broker, this one cannot read it"
        )
    reader.is_flexible = version >= _FLEXIBLE_VERSION
    if not 0 <= number < TransactionState.PREPARE_EPOCH_FENCE:
        raise IndexError(f"state {number}")
    by_topic = reader.partitions()
    last_update_ms = reader.int64()
    start_ms = reader.int64()
    tags = reader.tags()
    unknown = tuple((tag, data) for tag, data in tags.items() if tag >= _KNOWN_TAGS)
    record = TransactionRecord(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(number),
        by_topic=by_topic,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_tagged(tags, _PREVIOUS_ID, _INT64, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT_ID, _INT64, NO_PRODUCER_ID),
        client_transaction_version=_tagged(tags, _CLIENT_VERSION, _INT16, 0),
        next_producer_epoch=_tagged(tags, _NEXT_EPOCH, _INT16, NO_PRODUCER_EPOCH),
        unknown_tags=unknown,
    )
    reader.expect_end()
    _check_numbers(record)
    return record


def _check_numbers(record: TransactionRecord) -> None:
    """Refuses numbers that no marker can have: a decided transaction with them would never end.

    Raises:
        DecodeError: One is below its least value.
    """
    for name, number, least in (
        ("producer id", record.producer_id, 0),
        ("producer epoch", record.producer_epoch, 0),
        ("next producer id", record.next_producer_id, NO_PRODUCER_ID),
        ("transaction version", record.client_transaction_version, 0),
    ):
        if number < least:
            raise DecodeError(f"value with {name} {number}, expected {least} or more")


def _tagged(tags: Mapping[int, bytes], tag: int, form: Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != form.size:
        raise IndexError(f"tagged field {tag} of {len(data)} bytes")
    (value,) = form.unpack(data)
    return int(value)


class _Reader:
    """Reads one key or value from front to back."""

    __slots__ = ("_data", "_name", "_position", "is_flexible")

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._position = 0
        self.is_flexible = False

    def malformed(self, why: Exception) -> DecodeError:
        return DecodeError(
            f"{self._name} of {len(self._data)} bytes is malformed at {self._position}: {why}"
        )

    def expect_end(self) -> None:
        if self._position != len(self._data):
            raise IndexError("bytes follow the last field")

    def head(self) -> tuple[int, int, int, int, int]:
        version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(self._data, 0)
        self._position = _HEAD_BYTES
        return version, producer_id, epoch, timeout_ms, state

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._position)
        self._position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _INT64.unpack_from(self._data, self._position)
        self._position += 8
        return int(value)

    def partitions(self) -> Partitions:
        count = self._count()
        topics: dict[str, frozenset[int]] = {}
        for _ in range(max(count, 0)):
            topic = self.string()
            numbers = array("i", self._take(4 * max(self._count(), 0)))
            if sys.byteorder == "little":
                numbers.byteswap()
            topics[topic] = topics.get(topic, frozenset()) | frozenset(numbers)
            self.tags()
        return topics

    def string(self) -> str:
        if not self.is_flexible:
            return self._take(self.int16()).decode()
        return self._take(self._uvarint() - 1).decode()

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at this place; none in a form that is not flexible."""
        if not self.is_flexible:
            return {}
        found = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            found[tag] = bytes(self._take(self._uvarint()))
        return found

    def _count(self) -> int:
        """The count of an array; -1 for null."""
        count = self._uvarint() - 1 if self.is_flexible else self.int32()
        if not -1 <= count <= len(self._data):
            raise IndexError(f"{count} elements")
        return count

    def _uvarint(self) -> int:
        value, self._position = parse_uvarint(self._data, self._position)
        return value

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise IndexError(f"length {length}")
        data = self._data[self._position : end]
        self._position = end
        return data
