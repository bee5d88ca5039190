"""OffsetCommit (key 8): store a group's position."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


class OffsetCommitRequestPartition(Message):
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable="0+")


class OffsetCommitRequestTopic(Message):
    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition] = wire(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, versions="2-10", flexible="8+"):
    """Offsets to store; generation -1 with an empty member id commits outside a group."""

    # 2-4: a retention time, -1 for the broker's. 5: removed, the broker alone decides.
    # 6: leader epoch of the offset (KIP-320). 7: static members (KIP-345).
    # 8: flexible.
    # 9: the generation may be a member epoch (KIP-848). 10: topic ids instead of names.

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, default=-1)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = wire(INT64, "2-4", default=-1, ignorable=True)
    topics: Sequence[OffsetCommitRequestTopic] = wire(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class OffsetCommitResponseTopic(Message):
    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: Sequence[OffsetCommitResponsePartition] = wire(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, versions="2-10", flexible="8+"):
    """An error per partition."""

    # 3: throttle time.
    # 8: flexible.
    # 9: may say STALE_MEMBER_EPOCH or GROUP_ID_NOT_FOUND. 10: topic ids; may say UNKNOWN_TOPIC_ID.

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: Sequence[OffsetCommitResponseTopic] = wire(array(OffsetCommitResponseTopic))
