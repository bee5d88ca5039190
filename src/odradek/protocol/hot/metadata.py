"""Metadata: reads the request, writes the response.

A partition is one `struct` call, counts of replicas included; the layouts that occur are few, so
they are kept.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import (
    encode_compact_string,
    encode_string,
    parse_compact_count,
    parse_compact_string,
    parse_count,
    parse_string,
    pass_tags,
)
from odradek.protocol.primitives import (
    ZERO_UUID,
    encode_uvarint,
    fail_null,
)

__all__ = [
    "UNKNOWN_OPERATIONS",
    "BrokerTuple",
    "MetadataTopic",
    "MetadataView",
    "PartitionTuple",
    "encode_metadata_frame",
    "encode_metadata_response",
    "encode_topic_metadata",
    "parse_metadata_request",
]

# Authorised operations that the request did not ask for.
UNKNOWN_OPERATIONS: Final = -(1 << 31)
# Layouts of partitions kept: versions times the counts of replicas, in-sync and offline ones.
_LAYOUTS_KEPT: Final = 1024
# Counts up to here fit one varint byte, being written plus one.
_ONE_BYTE_COUNT: Final = 126

_INT16: Final = Struct(">h").pack
_INT32: Final = Struct(">i").pack


class MetadataView(NamedTuple):
    """A Metadata request, any version."""

    # (topic id or zeros, name or null); None asks for all topics.
    topics: list[tuple[bytes, str | None]] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


@decoding("MetadataRequest")
def parse_metadata_request(view: memoryview, position: int, version: int) -> MetadataView:
    """Reads the body of a Metadata request. Version 0 asks for all topics with an empty list.

    Raises:
        DecodeError: The bytes are no such request.
    """
    flexible = version >= 9
    topics: list[tuple[bytes, str | None]] | None = None
    if flexible:
        least_bytes = 18 if version >= 10 else 2
        count, position = parse_compact_count(view, position, "topics", least_bytes)
    else:
        count, position = parse_count(view, position, "topics", 2)
    if count >= 0:
        topics = []
        for _ in range(count):
            topic_id = ZERO_UUID
            if version >= 10:
                topic_id = bytes(view[position : position + 16])
                position += 16
            name, position = (parse_compact_string if flexible else parse_string)(
                view, position, "name"
            )
            if name is None and version < 10:
                fail_null("name", position)
            if flexible:
                position = pass_tags(view, position)
            topics.append((topic_id, name))
    elif version == 0:
        fail_null("topics", position)
    auto_create, cluster_operations, topic_operations = True, False, False
    if version >= 4:
        auto_create = view[position] != 0
        position += 1
    if 8 <= version <= 10:
        cluster_operations = view[position] != 0
        position += 1
    if version >= 8:
        topic_operations = view[position] != 0
        position += 1
    if flexible:
        pass_tags(view, position)
    return MetadataView(topics, auto_create, cluster_operations, topic_operations)


# id, host, port, rack
BrokerTuple = tuple[int, str, int, str | None]
# error, index, leader or -1, leader epoch, replicas, in-sync replicas, offline replicas
PartitionTuple = tuple[int, int, int, int, Sequence[int], Sequence[int], Sequence[int]]


class MetadataTopic(NamedTuple):
    """One topic of a Metadata response."""

    error_code: int
    # Null only if it was asked for by id and is unknown; from 12 on.
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[PartitionTuple]
    authorized_operations: int = UNKNOWN_OPERATIONS


def encode_metadata_response(
    version: int,
    *,
    brokers: Sequence[BrokerTuple],
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[MetadataTopic],
    throttle_time_ms: int = 0,
    cluster_authorized_operations: int = UNKNOWN_OPERATIONS,
    error_code: int = 0,
) -> bytes:
    """Writes the body of a Metadata response; drops fields that a version lacks."""
    before, after = encode_metadata_frame(
        version,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=controller_id,
        topic_count=len(topics),
        throttle_time_ms=throttle_time_ms,
        cluster_authorized_operations=cluster_authorized_operations,
        error_code=error_code,
    )
    out = [before]
    for topic in topics:
        _encode_topic(version, topic, out)
    out.append(after)
    return b"".join(out)


def encode_metadata_frame(
    version: int,
    *,
    brokers: Sequence[BrokerTuple],
    cluster_id: str | None,
    controller_id: int,
    topic_count: int,
    throttle_time_ms: int = 0,
    cluster_authorized_operations: int = UNKNOWN_OPERATIONS,
    error_code: int = 0,
) -> tuple[bytes, bytes]:
    """The bytes before and after the topics in the body of a Metadata response."""
    flexible = version >= 9
    string = encode_compact_string if flexible else encode_string
    out = [_INT32(throttle_time_ms)] if version >= 3 else []
    out.append(_count(len(brokers), flexible=flexible))
    for node_id, host, port, rack in brokers:
        out += (_INT32(node_id), string(host), _INT32(port))
        if version >= 1:
            out.append(string(rack))
        if flexible:
            out.append(b"\0")
    if version >= 2:
        out.append(string(cluster_id))
    if version >= 1:
        out.append(_INT32(controller_id))
    out.append(_count(topic_count, flexible=flexible))
    after = []
    if 8 <= version <= 10:
        after.append(_INT32(cluster_authorized_operations))
    if version >= 13:
        after.append(_INT16(error_code))
    if flexible:
        after.append(b"\0")
    return b"".join(out), b"".join(after)


def encode_topic_metadata(version: int, topic: MetadataTopic) -> bytes:
    """Writes one topic of the body of a Metadata response."""
    out: list[bytes] = []
    _encode_topic(version, topic, out)
    return b"".join(out)


def _encode_topic(version: int, topic: MetadataTopic, out: list[bytes]) -> None:
    flexible = version >= 9
    out.append(_INT16(topic.error_code))
    if topic.name is None and version < 12:
        raise ValueError(f"Metadata v{version} cannot describe a topic without a name")
    out.append((encode_compact_string if flexible else encode_string)(topic.name))
    if version >= 10:
        if len(topic.topic_id) != 16:
            raise ValueError(f"topic_id: a uuid has 16 bytes, not {len(topic.topic_id)}")
        out.append(topic.topic_id)
    if version >= 1:
        out.append(b"\1" if topic.is_internal else b"\0")
    out.append(_count(len(topic.partitions), flexible=flexible))
    for error_code, index, leader_id, leader_epoch, replicas, isr, offline in topic.partitions:
        if flexible:
            counts = len(replicas), len(isr), len(offline)
            if max(counts) > _ONE_BYTE_COUNT:
                out.append(_many_replicas(error_code, index, leader_id, leader_epoch))
                for nodes in (replicas, isr, offline):
                    out += (encode_uvarint(len(nodes) + 1), *map(_INT32, nodes))
                out.append(b"\0")
                continue
            pack = _flexible_partition(*counts)
            out.append(
                pack(
                    error_code,
                    index,
                    leader_id,
                    leader_epoch,
                    counts[0] + 1,
                    *replicas,
                    counts[1] + 1,
                    *isr,
                    counts[2] + 1,
                    *offline,
                )
            )
            continue
        epoch = (leader_epoch,) if version >= 7 else ()
        unavailable = (len(offline), *offline) if version >= 5 else ()
        values = (*epoch, len(replicas), *replicas, len(isr), *isr, *unavailable)
        out.append(_plain_partition(len(values))(error_code, index, leader_id, *values))
    if version >= 8:
        out.append(_INT32(topic.authorized_operations))
    if flexible:
        out.append(b"\0")


_many_replicas: Final = Struct(">hiii").pack


@lru_cache(_LAYOUTS_KEPT)
def _flexible_partition(replicas: int, isr: int, offline: int) -> Callable[..., bytes]:
    return Struct(f">hiiiB{replicas}iB{isr}iB{offline}ix").pack


@lru_cache(_LAYOUTS_KEPT)
def _plain_partition(values: int) -> Callable[..., bytes]:
    return Struct(f">hii{values}i").pack


def _count(count: int, *, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else _INT32(count)
