"""Fetch: reads the request.

Partitions have a fixed size, tags aside, so a topic's partitions are one `iter_unpack`::

    versions  layout of a partition
    0-4       index, offset, max bytes
    5-8       index, offset, log start, max bytes
    9-11      index, leader epoch, offset, log start, max bytes
    12-       index, leader epoch, offset, last epoch, log start, max bytes, tags
"""

from struct import Struct, unpack_from
from typing import Final, NamedTuple

from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import (
    parse_compact_count,
    parse_compact_string,
    parse_count,
    parse_string,
    pass_tags,
    present,
)
from odradek.protocol.primitives import (
    fail_length,
    fail_null,
    fail_tag,
    parse_uvarint,
)

__all__ = ["FetchPartitionTuple", "FetchView", "parse_fetch_request"]

_WAIT_MIN: Final = Struct(">ii").unpack_from
_MAX_BYTES: Final = Struct(">i").unpack_from
_MAX_ISOLATION: Final = Struct(">ib").unpack_from
_MAX_ISOLATION_SESSION: Final = Struct(">ibii").unpack_from
_REPLICA_STATE: Final = Struct(">iq").unpack_from
_PARTITIONS_0: Final = Struct(">iqi")
_PARTITIONS_5: Final = Struct(">iqqi")
_PARTITIONS_9: Final = Struct(">iiqqi")
_PARTITIONS_12: Final = Struct(">iiqiqiB")

# partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes;
# -1 for epochs and log start offset the version does not carry.
FetchPartitionTuple = tuple[int, int, int, int, int, int]


class FetchView(NamedTuple):
    """A Fetch request, any version.

    Directory ids (17) and high watermarks (18) of partitions are left out: only voters of a
    metadata quorum send them, and not to this reader.
    """

    # -1 for consumers, else the follower; its epoch is -1 before 15.
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    # (name, or id from 13 on; partitions).
    topics: list[tuple[str | bytes, list[FetchPartitionTuple]]]
    forgotten_topics: list[tuple[str | bytes, tuple[int, ...]]]
    rack_id: str
    cluster_id: str | None


@decoding("FetchRequest")
def parse_fetch_request(view: memoryview, position: int, version: int) -> FetchView:
    """Reads the body of a Fetch request.

    Raises:
        DecodeError: The bytes are no such request.
    """
    replica_id = replica_epoch = -1
    if version < 15:
        (replica_id,) = _MAX_BYTES(view, position)
        position += 4
    max_wait_ms, min_bytes = _WAIT_MIN(view, position)
    position += 8
    max_bytes, isolation_level, session_id, session_epoch = 0x7FFFFFFF, 0, 0, -1
    if version >= 7:
        max_bytes, isolation_level, session_id, session_epoch = _MAX_ISOLATION_SESSION(
            view, position
        )
        position += 13
    elif version >= 4:
        max_bytes, isolation_level = _MAX_ISOLATION(view, position)
        position += 5
    elif version == 3:
        (max_bytes,) = _MAX_BYTES(view, position)
        position += 4
    forgotten: list[tuple[str | bytes, tuple[int, ...]]] = []
    rack_id: str | None = ""
    cluster_id = None
    if version < 12:
        topics, position = _parse_topics(view, position, version)
        if version >= 7:
            forgotten, position = _parse_forgotten(view, position)
        if version >= 11:
            rack_id, position = parse_string(view, position, "rack_id")
    else:
        by_id = version >= 13
        topics, position = _parse_flexible_topics(view, position, by_id=by_id)
        forgotten, position = _parse_flexible_forgotten(view, position, by_id=by_id)
        rack_id, position = parse_compact_string(view, position, "rack_id")
        if view[position]:
            cluster_id, state = _parse_tags(view, position, with_replica_state=version >= 15)
            if state is not None:
                replica_id, replica_epoch = state
    return FetchView(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        present(rack_id, "rack_id", position),
        cluster_id,
    )


def _parse_topics(
    view: memoryview, position: int, version: int
) -> tuple[list[tuple[str | bytes, list[FetchPartitionTuple]]], int]:
    count, position = parse_count(view, position, "topics", 6)
    if count < 0:
        fail_null("topics", position)
    layout = _PARTITIONS_9 if version >= 9 else _PARTITIONS_5 if version >= 5 else _PARTITIONS_0
    topics: list[tuple[str | bytes, list[FetchPartitionTuple]]] = []
    for _ in range(count):
        name, position = parse_string(view, position, "topic")
        partition_count, position = parse_count(view, position, "partitions", layout.size)
        if name is None or partition_count < 0:
            fail_null("topics", position)
        end = position + partition_count * layout.size
        rows = layout.iter_unpack(view[position:end])
        if version >= 9:
            partitions = [
                (index, epoch, at, -1, start, most) for index, epoch, at, start, most in rows
            ]
        elif version >= 5:
            partitions = [(index, -1, at, -1, start, most) for index, at, start, most in rows]
        else:
            partitions = [(index, -1, at, -1, -1, most) for index, at, most in rows]
        topics.append((name, partitions))
        position = end
    return topics, position


def _parse_forgotten(
    view: memoryview, position: int
) -> tuple[list[tuple[str | bytes, tuple[int, ...]]], int]:
    count, position = parse_count(view, position, "forgotten_topics_data", 6)
    if count < 0:
        fail_null("forgotten_topics_data", position)
    forgotten: list[tuple[str | bytes, tuple[int, ...]]] = []
    for _ in range(count):
        name, position = parse_string(view, position, "topic")
        partition_count, position = parse_count(view, position, "partitions", 4)
        if name is None or partition_count < 0:
            fail_null("forgotten_topics_data", position)
        partitions = unpack_from(f">{partition_count}i", view, position)
        forgotten.append((name, partitions))
        position += partition_count * 4
    return forgotten, position


def _parse_topic_key(view: memoryview, position: int, *, by_id: bool) -> tuple[str | bytes, int]:
    if by_id:
        if position + 16 > len(view):
            fail_length("topic_id", 16, position, len(view))
        return bytes(view[position : position + 16]), position + 16
    name, position = parse_compact_string(view, position, "topic")
    return present(name, "topic", position), position


def _parse_flexible_topics(
    view: memoryview, position: int, *, by_id: bool
) -> tuple[list[tuple[str | bytes, list[FetchPartitionTuple]]], int]:
    count, position = parse_compact_count(view, position, "topics", 3)
    if count < 0:
        fail_null("topics", position)
    topics: list[tuple[str | bytes, list[FetchPartitionTuple]]] = []
    for _ in range(count):
        topic, position = _parse_topic_key(view, position, by_id=by_id)
        partition_count, position = parse_compact_count(view, position, "partitions", 33)
        if partition_count < 0:
            fail_null("partitions", position)
        end = position + partition_count * 33
        rows = list(_PARTITIONS_12.iter_unpack(view[position:end]))
        if any(row[6] for row in rows):
            # A partition has tags, which shifts all that follows: they are read one by one.
            rows, end = _parse_tagged_partitions(view, position, partition_count)
        topics.append((topic, [row[:6] for row in rows]))
        position = pass_tags(view, end)
    return topics, position


def _parse_tagged_partitions(
    view: memoryview, position: int, count: int
) -> tuple[list[tuple[int, ...]], int]:
    rows = []
    for _ in range(count):
        row = _PARTITIONS_12.unpack_from(view, position)
        position = pass_tags(view, position + 32)
        rows.append(row)
    return rows, position


def _parse_flexible_forgotten(
    view: memoryview, position: int, *, by_id: bool
) -> tuple[list[tuple[str | bytes, tuple[int, ...]]], int]:
    count, position = parse_compact_count(view, position, "forgotten_topics_data", 3)
    if count < 0:
        fail_null("forgotten_topics_data", position)
    forgotten: list[tuple[str | bytes, tuple[int, ...]]] = []
    for _ in range(count):
        topic, position = _parse_topic_key(view, position, by_id=by_id)
        partition_count, position = parse_compact_count(view, position, "partitions", 4)
        if partition_count < 0:
            fail_null("partitions", position)
        partitions = unpack_from(f">{partition_count}i", view, position)
        forgotten.append((topic, partitions))
        position = pass_tags(view, position + partition_count * 4)
    return forgotten, position


def _parse_tags(
    view: memoryview, position: int, *, with_replica_state: bool
) -> tuple[str | None, tuple[int, int] | None]:
    """The tags of the request: 0 is the cluster id, 1 the follower's id and epoch."""
    count, position = parse_uvarint(view, position)
    cluster_id = None
    replica_state = None
    previous = -1
    for _ in range(count):
        tag, position = parse_uvarint(view, position)
        size_bytes, position = parse_uvarint(view, position)
        end = position + size_bytes
        if tag <= previous or end > len(view):
            fail_tag(tag, previous, size_bytes, len(view) - position)
        previous = tag
        if tag == 0:
            cluster_id, position = parse_compact_string(view, position, "cluster_id")
        elif tag == 1 and with_replica_state:
            replica_id, replica_epoch = _REPLICA_STATE(view, position)
            replica_state = replica_id, replica_epoch
            position = pass_tags(view, position + 12)
        else:
            position = end
        if position != end:
            fail_tag(tag, -1, size_bytes, end - position)
    return cluster_id, replica_state
