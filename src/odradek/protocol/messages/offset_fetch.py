"""OffsetFetch (key 9): read a group's position."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


class OffsetFetchRequestTopic(Message):
    name: str = wire(STRING, "0-7")
    partition_indexes: Sequence[int] = wire(array(INT32), "0-7")


class OffsetFetchRequestTopics(Message):
    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partition_indexes: Sequence[int] = wire(array(INT32), "8+")


class OffsetFetchRequestGroup(Message):
    group_id: str = wire(STRING, "8+")
    member_id: str | None = wire(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    topics: Sequence[OffsetFetchRequestTopics] | None = wire(
        array(OffsetFetchRequestTopics), "8+", nullable="8+"
    )


class OffsetFetchRequest(Message, versions="1-10", flexible="6+"):
    """Partitions to look up; up to 7 of one group, then of several."""

    # 2: null topics asks for everything the group has stored.
    # 6: flexible.
    # 7: wait for open transactions, if asked to (KIP-447). 8: several groups (KIP-709).
    # 9: member id and epoch (KIP-848). 10: topic ids instead of names.

    group_id: str = wire(STRING, "0-7")
    topics: Sequence[OffsetFetchRequestTopic] | None = wire(
        array(OffsetFetchRequestTopic), "0-7", nullable="2-7"
    )
    groups: Sequence[OffsetFetchRequestGroup] = wire(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")


class OffsetFetchResponsePartition(Message):
    partition_index: int = wire(INT32, "0-7")
    committed_offset: int = wire(INT64, "0-7")
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "0-7", nullable="0-7")
    error_code: int = wire(INT16, "0-7")


class OffsetFetchResponseTopic(Message):
    name: str = wire(STRING, "0-7")
    partitions: Sequence[OffsetFetchResponsePartition] = wire(
        array(OffsetFetchResponsePartition), "0-7"
    )


class OffsetFetchResponsePartitions(Message):
    partition_index: int = wire(INT32, "8+")
    committed_offset: int = wire(INT64, "8+")
    committed_leader_epoch: int = wire(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "8+", nullable="8+")
    error_code: int = wire(INT16, "8+")


class OffsetFetchResponseTopics(Message):
    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    partitions: Sequence[OffsetFetchResponsePartitions] = wire(
        array(OffsetFetchResponsePartitions), "8+"
    )


class OffsetFetchResponseGroup(Message):
    group_id: str = wire(STRING, "8+")
    topics: Sequence[OffsetFetchResponseTopics] = wire(array(OffsetFetchResponseTopics), "8+")
    error_code: int = wire(INT16, "8+")


class OffsetFetchResponse(Message, versions="1-10", flexible="6+"):
    """Stored offsets; -1 with no error when nothing is stored."""

    # 2: an error for the whole group. 3: throttle time. 5: leader epochs.
    # 6: flexible.
    # 7: may say UNSTABLE_OFFSET_COMMIT. 8: one entry per group. 10: topic ids; may say
    # UNKNOWN_TOPIC_ID.

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: Sequence[OffsetFetchResponseTopic] = wire(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: Sequence[OffsetFetchResponseGroup] = wire(array(OffsetFetchResponseGroup), "8+")
