"""OffsetDelete (key 47): delete stored offsets of a group. No version is flexible."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


class OffsetDeleteRequestPartition(Message):
    partition_index: int = wire(INT32)


class OffsetDeleteRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteRequestPartition] = wire(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, versions="0"):
    """Partitions whose offsets are deleted."""

    group_id: str = wire(STRING)
    topics: Sequence[OffsetDeleteRequestTopic] = wire(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class OffsetDeleteResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[OffsetDeleteResponsePartition] = wire(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, versions="0"):
    """An error for the group, and one per partition."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32)
    topics: Sequence[OffsetDeleteResponseTopic] = wire(array(OffsetDeleteResponseTopic))
