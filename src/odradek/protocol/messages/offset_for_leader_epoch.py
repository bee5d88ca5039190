"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, to find where two logs diverge."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Message):
    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = wire(INT32)


class OffsetForLeaderTopic(Message):
    topic: str = wire(STRING)
    partitions: Sequence[OffsetForLeaderPartition] = wire(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message, versions="0-4", flexible="4+"):
    """Epochs to look up."""

    # 2: current leader epoch, for fencing (KIP-320). 3: replica id; -2 is a client that may see
    # everything.
    # 4: flexible.

    replica_id: int = wire(INT32, "3+", default=-2, ignorable=True)
    topics: Sequence[OffsetForLeaderTopic] = wire(array(OffsetForLeaderTopic))


class EpochEndOffset(Message):
    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, "1+", default=-1, ignorable=True)
    # Exclusive.
    end_offset: int = wire(INT64, default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = wire(STRING)
    partitions: Sequence[EpochEndOffset] = wire(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message, versions="0-4", flexible="4+"):
    """The largest epoch not above the one asked, and its end; -1 and -1 when unknown."""

    # 1: the epoch found. 2: throttle time.
    # 4: flexible.

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: Sequence[OffsetForLeaderTopicResult] = wire(array(OffsetForLeaderTopicResult))
