"""OffsetCommit: reads the request, writes the response."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeAlias, final

from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import (
    encode_compact_string,
    encode_string,
    parse_compact_count,
    parse_compact_string,
    parse_count,
    parse_string,
    pass_tags,
    present,
)
from odradek.protocol.primitives import encode_uvarint, fail_length, fail_null

__all__ = [
    "OffsetCommitView",
    "encode_offset_commit_response",
    "encode_one_commit_answer",
    "parse_offset_commit_request",
]

_INT32: Final = Struct(">i")
_UNPACK_INT32: Final = _INT32.unpack_from
_INT64: Final = Struct(">q")
_PARTITION: Final = Struct(">iq").unpack_from
_PARTITION_EPOCH: Final = Struct(">iqi").unpack_from
# Of an answer about one partition, with its header: the bytes before the topic's name, and after
# it. The head of a short name holds its length.
_ONE_HEAD: Final = Struct(">ixiBB").pack
_ONE_LONG_HEAD: Final = Struct(">ixiB").pack
_ONE_TAIL: Final = Struct(">Bihxxx").pack
_RESULT: Final = Struct(">ih").pack
_RESULT_TAGS: Final = Struct(">ihx").pack

# The end of a request about one partition without metadata: offset, leader epoch, the length of the
# metadata and three counts of tags as one number.
_USUAL_END: Final = Struct(">qiI").unpack_from
_USUAL_END_BYTES: Final = 16
_EMPTY_METADATA: Final = 1 << 24  # A length of 0; without metadata it is 0, too.
# The beginnings of longer requests are not remembered: with 4,096 of these it is a megabyte.
_MAX_KNOWN_BYTES: Final = 256

# partition, offset, leader epoch or -1, metadata
CommittedPartition = tuple[int, int, int, str | None]
# Group id, generation id, member id, instance id, topic, partition.
_UsualStart: TypeAlias = tuple[str, int, str, str | None, str, int]


@final
class OffsetCommitView:
    """An OffsetCommit request, any version. Replaced, never edited."""

    __slots__ = (
        "generation_id", "group_id", "group_instance_id", "member_id", "retention_time_ms",
        "topic_ids", "topics",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        retention_time_ms: int,
        topics: list[tuple[str, list[CommittedPartition]]],
        topic_ids: list[bytes] | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.retention_time_ms = retention_time_ms  # -1: the broker's setting.
        # From 10 on the names are empty, and `topic_ids` has an id for each.
        self.topics = topics
        self.topic_ids = topic_ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetCommitView) and self._fields() == other._fields()

    def __repr__(self) -> str:
        return f"OffsetCommitView{self._fields()!r}"

    def with_topics(self, topics: list[tuple[str, list[CommittedPartition]]]) -> "OffsetCommitView":
        """The same request for other topics."""
        return OffsetCommitView(
            self.group_id,
            self.generation_id,
            self.member_id,
            self.group_instance_id,
            self.retention_time_ms,
            topics,
            self.topic_ids,
        )

    def _fields(self) -> tuple[object, ...]:
        return (
            self.group_id,
            self.generation_id,
            self.member_id,
            self.group_instance_id,
            self.retention_time_ms,
            self.topics,
            self.topic_ids,
        )


def parse_offset_commit_request(view: memoryview, position: int, version: int) -> OffsetCommitView:
    """Reads the body of an OffsetCommit request.

    Raises:
        DecodeError: The bytes are no such request.
    """
    if 8 <= version <= 9:
        end = len(view) - _USUAL_END_BYTES
        if position < end <= position + _MAX_KNOWN_BYTES:
            offset, leader_epoch, rest = _USUAL_END(view, end)
            if rest == _EMPTY_METADATA or not rest:
                start = _parse_usual_start(view[position:end].tobytes())
                if start is not None:
                    group_id, generation_id, member_id, instance_id, name, partition = start
                    row = (partition, offset, leader_epoch, "" if rest else None)
                    return OffsetCommitView(
                        group_id, generation_id, member_id, instance_id, -1, [(name, [row])]
                    )
    return _parse_any(view, position, version)


@decoding("OffsetCommitRequest")
def _parse_any(view: memoryview, position: int, version: int) -> OffsetCommitView:
    flexible = version >= 8
    read = parse_compact_string if flexible else parse_string
    count_of = parse_compact_count if flexible else parse_count
    group_id, position = read(view, position, "group_id")
    (generation_id,) = _INT32.unpack_from(view, position)
    member_id, position = read(view, position + 4, "member_id")
    group_instance_id = None
    retention_time_ms = -1
    if version >= 7:
        group_instance_id, position = read(view, position, "group_instance_id")
    elif version <= 4:
        (retention_time_ms,) = _INT64.unpack_from(view, position)
        position += 8
    count, position = count_of(view, position, "topics", 3 if flexible else 6)
    if count < 0:
        fail_null("topics", position)
    topics: list[tuple[str, list[CommittedPartition]]] = []
    topic_ids: list[bytes] | None = [] if version >= 10 else None
    for _ in range(count):
        name: str | None = ""
        if topic_ids is None:
            name, position = read(view, position, "name")
        else:
            if position + 16 > len(view):
                fail_length("topic_id", 16, position, len(view))
            topic_ids.append(bytes(view[position : position + 16]))
            position += 16
        partition_count, position = count_of(view, position, "partitions", 14)
        if name is None or partition_count < 0:
            fail_null("topics", position)
        partitions: list[CommittedPartition] = []
        for _ in range(partition_count):
            leader_epoch = -1
            if version >= 6:
                partition, offset, leader_epoch = _PARTITION_EPOCH(view, position)
                position += 16
            else:
                partition, offset = _PARTITION(view, position)
                position += 12
            metadata, position = read(view, position, "committed_metadata")
            partitions.append((partition, offset, leader_epoch, metadata))
            if flexible:
                position = pass_tags(view, position)
        if flexible:
            position = pass_tags(view, position)
        topics.append((name, partitions))
    if flexible:
        pass_tags(view, position)
    return OffsetCommitView(
        present(group_id, "group_id", position),
        generation_id,
        present(member_id, "member_id", position),
        group_instance_id,
        retention_time_ms,
        topics,
        topic_ids,
    )


# A member commits the same partitions again and again, as long as its generation lasts.
@lru_cache(4_096)
def _parse_usual_start(data: bytes) -> _UsualStart | None:
    """A flexible request for one partition up to its number, with short strings; None for others.

    Lengths below 128 are one byte each: the length of a compact string is one less.
    """
    try:
        size = data[0]
        (generation_id,) = _UNPACK_INT32(data, size)
        member_at = size + 4
        member_size = data[member_at]
        at = member_at + member_size
        instance_size = data[at]
        at += instance_size or 1
        topics_at = at
        topic_count = data[at]
        name_size = data[at + 1]
        at += 1 + name_size
        partition_count = data[at]
        (partition,) = _UNPACK_INT32(data, at + 1)
        if (
            (size | member_size | instance_size | name_size) >= 0x80
            or not (size and member_size and name_size)
            or topic_count != 2
            or partition_count != 2
            or at + 5 != len(data)
        ):
            return None
        instance_at = topics_at - instance_size
        return (
            data[1:size].decode(),
            generation_id,
            data[member_at + 1 : member_at + member_size].decode(),
            data[instance_at + 1 : topics_at].decode() if instance_size else None,
            data[topics_at + 2 : topics_at + 1 + name_size].decode(),
            partition,
        )
    except (IndexError, struct_error, UnicodeDecodeError):
        return None


def encode_offset_commit_response(
    version: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    *,
    throttle_time_ms: int = 0,
    topic_ids: Sequence[bytes] | None = None,
) -> bytes:
    """Writes the body of an OffsetCommit response; `topics` holds (name, (partition, error)s).

    Args:
        topic_ids: From 10 on: written in place of the names.
    """
    if topic_ids is not None:
        return _encode_by_id(topics, topic_ids, throttle_time_ms)
    out = [_INT32.pack(throttle_time_ms)] if version >= 3 else []
    if version < 8:
        out.append(_INT32.pack(len(topics)))
        for name, results in topics:
            out.append(encode_string(name))
            out.append(_INT32.pack(len(results)))
            out += [_RESULT(partition, error_code) for partition, error_code in results]
    else:
        out.append(encode_uvarint(len(topics) + 1))
        for name, results in topics:
            out.append(encode_compact_string(name))
            out.append(encode_uvarint(len(results) + 1))
            out += [_RESULT_TAGS(partition, error_code) for partition, error_code in results]
            out.append(b"\0")
        out.append(b"\0")
    return b"".join(out)


def encode_one_commit_answer(
    correlation_id: int, throttle_time_ms: int, name: str, partition: int, error_code: int
) -> bytes:
    """Writes header and body of an OffsetCommit response 8 or 9 about one partition."""
    data = name.encode()
    size = len(data) + 1
    if size < 0x80:  # A length of one byte, as nearly always.
        head = _ONE_HEAD(correlation_id, throttle_time_ms, 2, size) + data
    else:
        head = _ONE_LONG_HEAD(correlation_id, throttle_time_ms, 2) + encode_compact_string(name)
    return head + _ONE_TAIL(2, partition, error_code)


def _encode_by_id(
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    topic_ids: Sequence[bytes],
    throttle_time_ms: int,
) -> bytes:
    out = [_INT32.pack(throttle_time_ms), encode_uvarint(len(topics) + 1)]
    for topic_id, (_, results) in zip(topic_ids, topics, strict=True):
        out += (topic_id, encode_uvarint(len(results) + 1))
        out += [_RESULT_TAGS(partition, error_code) for partition, error_code in results]
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)
