"""ListOffsets (key 2): offsets by time, and the two ends of a partition."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


class ListOffsetsPartition(Message):
    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64)


class ListOffsetsTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsPartition] = wire(array(ListOffsetsPartition))


class ListOffsetsRequest(Message, versions="1-11", flexible="6+"):
    """Timestamps to look up; negative ones name a place in the log."""

    # 1: one offset per partition. 2: isolation level. 4: current leader epoch, for fencing.
    # 6: flexible.
    # 7: -3 asks for the largest timestamp (KIP-734). 8: -4, local log start (KIP-405).
    # 9: -5, end of the tiered part (KIP-1005). 10: a time limit for lookups in tiers (KIP-1075).
    # 11: -6, first offset not uploaded yet (KIP-1023).

    # -1 for consumers.
    replica_id: int = wire(INT32)
    # 0 read uncommitted, 1 read committed.
    isolation_level: int = wire(INT8, "2+")
    topics: Sequence[ListOffsetsTopic] = wire(array(ListOffsetsTopic))
    timeout_ms: int = wire(INT32, "10+", ignorable=True)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    timestamp: int = wire(INT64, default=-1)
    offset: int = wire(INT64, default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[ListOffsetsPartitionResponse] = wire(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message, versions="1-11", flexible="6+"):
    """One offset and its timestamp per partition; -1 and -1 when there is none."""

    # 2: throttle time. 4: leader epoch of the offset. 5: may say OFFSET_NOT_AVAILABLE.
    # 6: flexible.

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: Sequence[ListOffsetsTopicResponse] = wire(array(ListOffsetsTopicResponse))
