"""Keys and values of the offsets topic, `__consumer_offsets`. Pure.

Big-endian. STRING is an int16 length and UTF-8, null is -1; BYTES is an int32 length and data;
an array begins with an int32 count. Each key and value opens with an int16 version::

    key 0, 1   group STRING, topic STRING, partition int32      one committed offset (1 written)
    key 2      group STRING                                     the registration of a group

    offset value 0   offset int64, metadata STRING, timestamp int64
                 1   offset, metadata, commit timestamp, expire timestamp int64 (-1: none)
                 2   offset, metadata, commit timestamp
                 3   offset, leader epoch int32 (-1: none), metadata, commit timestamp   (written)

    group value  protocol type STRING, generation int32, protocol STRING, leader STRING,
                 from 2 on: current state timestamp int64 (-1: none), array of members:
                   member id STRING, from 3 on: instance id STRING, client id STRING,
                   client host STRING, from 1 on: rebalance timeout int32, session timeout int32,
                   subscription BYTES, assignment BYTES                                  (3 written)

Version 4 of both values is the flexible form of 3: compact lengths, and tagged fields after each
member and at the end. Kafka 4 writes offset values so, with the topic's id in tag 0.

Key versions from 3 on belong to newer brokers and are skipped; an unknown value version is an
error, since skipping it would lose a commit.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from odradek.errors import DecodeError
from odradek.protocol.primitives import parse_uvarint, skip_tagged_fields

__all__ = [
    "MAX_STRING_BYTES",
    "GroupKey",
    "GroupValue",
    "MemberValue",
    "OffsetAndMetadata",
    "OffsetKey",
    "encode_group_key",
    "encode_group_value",
    "encode_offset_key",
    "encode_offset_value",
    "fits_string",
    "parse_group_value",
    "parse_key",
    "parse_offset_value",
]

MAX_STRING_BYTES: Final = 0x7FFF
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_EXPIRING_VALUE_VERSION: Final = 1
_FLEXIBLE_VERSION: Final = 4

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_HEAD: Final = Struct(">hqih")  # Version, offset, leader epoch, length of the metadata.
_EXPIRING_HEAD: Final = Struct(">hqh")
_TIMES: Final = Struct(">qq")
_TIMEOUTS: Final = Struct(">ii")


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"[{self.group_id},{self.topic},{self.partition}]"


class GroupKey(NamedTuple):
    """The key of a group's registration."""

    group_id: str

    def __str__(self) -> str:
        return self.group_id


class OffsetAndMetadata(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int  # -1: not known.
    metadata: str
    commit_ms: int
    expire_ms: int = NO_TIMESTAMP  # -1: by the broker's retention.


class MemberValue(NamedTuple):
    """A member of a registered group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A group's registration."""

    protocol_type: str | None
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: Sequence[MemberValue]


def fits_string(text: str | None) -> bool:
    """Whether `text` fits into the topic's format; a compact string of the wire can be longer."""
    if text is None or len(text) * 4 <= MAX_STRING_BYTES:
        return True
    return len(text.encode()) <= MAX_STRING_BYTES


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    return b"".join(
        (
            _INT16.pack(_OFFSET_KEY_VERSION),
            _string(group_id),
            _string(topic),
            _INT32.pack(partition),
        )
    )


def encode_group_key(group_id: str) -> bytes:
    """The key of a group's registration."""
    return _INT16.pack(_GROUP_KEY_VERSION) + _string(group_id)


def encode_offset_value(value: OffsetAndMetadata) -> bytes:
    """The value of a committed offset; version 1 if it has an expiry time."""
    metadata = value.metadata.encode()
    if value.expire_ms != NO_TIMESTAMP:
        head = _EXPIRING_HEAD.pack(_EXPIRING_VALUE_VERSION, value.offset, len(metadata))
        return head + metadata + _TIMES.pack(value.commit_ms, value.expire_ms)
    head = _OFFSET_HEAD.pack(_VALUE_VERSION, value.offset, value.leader_epoch, len(metadata))
    return head + metadata + _INT64.pack(value.commit_ms)


def encode_group_value(value: GroupValue) -> bytes:
    """The value of a group's registration."""
    timestamp = NO_TIMESTAMP if value.state_timestamp_ms is None else value.state_timestamp_ms
    parts = [
        _INT16.pack(_VALUE_VERSION),
        _string(value.protocol_type or ""),
        _INT32.pack(value.generation_id),
        _string(value.protocol_name),
        _string(value.leader),
        _INT64.pack(timestamp),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def parse_key(key: bytes) -> OffsetKey | GroupKey | int:
    """Parses a key.

    Returns:
        The parsed key, or its version if that is unknown.

    Raises:
        DecodeError: It ends too early.
    """
    reader = _Reader(key, "key")
    try:
        version = reader.int16()
        if version in (0, 1):
            return OffsetKey(reader.string(), reader.string(), reader.int32())
        if version == _GROUP_KEY_VERSION:
            return GroupKey(reader.string())
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise reader.malformed(error) from error
    return version


def parse_offset_value(value: bytes) -> OffsetAndMetadata:
    """Parses the value of a committed offset.

    Raises:
        DecodeError: It is malformed, or of a version we do not know.
    """
    reader = _Reader(value, "offset value")
    try:
        version = reader.version()
        offset = reader.int64()
        leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
        metadata = reader.string()
        commit_ms = reader.int64()
        expire_ms = reader.int64() if version == _EXPIRING_VALUE_VERSION else NO_TIMESTAMP
        reader.pass_tags()
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise reader.malformed(error) from error
    return OffsetAndMetadata(offset, leader_epoch, metadata, commit_ms, expire_ms)


def parse_group_value(value: bytes) -> GroupValue:
    """Parses the value of a group's registration.

    Raises:
        DecodeError: It is malformed, or of a version we do not know.
    """
    reader = _Reader(value, "group value")
    try:
        version = reader.version()
        protocol_type = reader.string()
        generation_id = reader.int32()
        protocol_name = reader.nullable_string()
        leader = reader.nullable_string()
        timestamp = reader.int64() if version >= 2 else NO_TIMESTAMP
        members = [_parse_member(reader, version) for _ in range(reader.count())]
        reader.pass_tags()
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise reader.malformed(error) from error
    return GroupValue(
        protocol_type or None,
        generation_id,
        protocol_name,
        leader,
        None if timestamp == NO_TIMESTAMP else timestamp,
        members,
    )


def _parse_member(reader: "_Reader", version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.data()
    assignment = reader.data()
    reader.pass_tags()
    return MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16.pack(len(data)) + data


class _Reader:
    """Reads one key or value from front to back."""

    __slots__ = ("_data", "_is_flexible", "_name", "_position")

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._position = 0
        self._is_flexible = False

    def malformed(self, why: Exception) -> DecodeError:
        return DecodeError(
            f"{self._name} of {len(self._data)} bytes is malformed at {self._position}: {why}"
        )

    def version(self) -> int:
        version = self.int16()
        if not 0 <= version <= _FLEXIBLE_VERSION:
            raise DecodeError(
                f"{self._name} of version {version}, expected 0 to {_FLEXIBLE_VERSION}: "
                "written by a newer broker, this one cannot read it"
            )
        self._is_flexible = version >= _FLEXIBLE_VERSION
        return version

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

    def count(self) -> int:
        count = self._compact_length() if self._is_flexible else self.int32()
        if not 0 <= count <= len(self._data):
            raise IndexError(f"{count} elements")
        return count

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise IndexError("a null string")
        return text

    def nullable_string(self) -> str | None:
        length = self._compact_length() if self._is_flexible else self.int16()
        return None if length == -1 else self._take(length).decode()

    def data(self) -> bytes:
        return self._take(self._compact_length() if self._is_flexible else self.int32())

    def pass_tags(self) -> None:
        if self._is_flexible:
            first = self._data[self._position]
            self._position = skip_tagged_fields(self._data, self._position + 1, first)

    def _compact_length(self) -> int:
        length, self._position = parse_uvarint(self._data, self._position)
        return length - 1

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise IndexError(f"length {length}")
        data = self._data[self._position : end]
        self._position = end
        return data
