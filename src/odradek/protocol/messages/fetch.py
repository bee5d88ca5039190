"""Fetch (key 1): read record batches, for consumers and followers."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Buffer
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(Message):
    replica_id: int = wire(INT32, "15+", default=-1)
    replica_epoch: int = wire(INT64, "15+", default=-1)


class FetchPartition(Message):
    partition: int = wire(INT32)
    # -1 skips the check.
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, "17+", tag=0, ignorable=True)
    # Of a voter; the default means unknown.
    high_watermark: int = wire(INT64, "18+", default=(1 << 63) - 1, tag=1, ignorable=True)


class FetchTopic(Message):
    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: Sequence[FetchPartition] = wire(array(FetchPartition))


class ForgottenTopic(Message):
    topic: str = wire(STRING, "7-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: Sequence[int] = wire(array(INT32), "7+")


class FetchRequest(Message, versions="0-18", flexible="12+"):
    """Partitions and offsets to read from, and how long to wait for records."""

    # 0-3: old record formats. Read only to be refused with an error a client understands.
    # 3: a limit for the whole answer; partitions are served in the order listed.
    # 4: isolation level and v2 batches. 5: a follower sends its log start offset.
    # 7: sessions (KIP-227). 9: current leader epoch, for fencing (KIP-320). 10: zstd.
    # 11: rack, to read from a near replica (KIP-392).
    # 12: flexible; last fetched epoch, to find where logs diverge (KIP-595).
    # 13: topic ids (KIP-516). 15: replica id and epoch move to a tagged struct (KIP-903).
    # 17: directory id of a voter (KIP-853). 18: the high watermark it knows (KIP-1166).

    cluster_id: str | None = wire(
        STRING, "12+", nullable="12+", default=None, tag=0, ignorable=True
    )
    # -1 for consumers; from 15 on in replica_state.
    replica_id: int = wire(INT32, "0-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, "3+", default=2147483647, ignorable=True)
    # 0 read uncommitted, 1 read committed.
    isolation_level: int = wire(INT8, "4+", ignorable=True)
    session_id: int = wire(INT32, "7+", ignorable=True)
    # -1: no session wanted; 0: open one.
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: Sequence[FetchTopic] = wire(array(FetchTopic))
    forgotten_topics_data: Sequence[ForgottenTopic] = wire(array(ForgottenTopic), "7+")
    rack_id: str = wire(STRING, "11+", ignorable=True)


class EpochEndOffset(Message):
    epoch: int = wire(INT32, "12+", default=-1)
    # Exclusive.
    end_offset: int = wire(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


class SnapshotId(Message):
    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


class AbortedTransaction(Message):
    producer_id: int = wire(INT64, "4+")
    first_offset: int = wire(INT64, "4+")


class PartitionData(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)
    # Null unless the isolation level asks for them.
    aborted_transactions: Sequence[AbortedTransaction] | None = wire(
        array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    # -1: continue to read from this broker.
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    # Written unchanged; may be any object with a length.
    records: Buffer | None = wire(RECORDS, nullable="0+")


class FetchableTopicResponse(Message):
    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partitions: Sequence[PartitionData] = wire(array(PartitionData))


class NodeEndpoint(Message):
    node_id: int = wire(INT32, "16+")
    host: str = wire(STRING, "16+")
    port: int = wire(INT32, "16+")
    rack: str | None = wire(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Message, versions="0-18", flexible="12+"):
    """Batches per partition; the last one may be partial."""

    # 1: throttle time. 4: last stable offset and aborted transactions. 5: log start offset.
    # 6: may say KAFKA_STORAGE_ERROR. 7: session id and an error for the whole answer.
    # 11: preferred read replica (KIP-392).
    # 12: flexible; diverging epoch and current leader as tags (KIP-595). 13: topic ids.
    # 16: addresses of the leaders named (KIP-951).

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: Sequence[FetchableTopicResponse] = wire(array(FetchableTopicResponse))
    node_endpoints: Sequence[NodeEndpoint] = wire(array(NodeEndpoint), "16+", tag=0)
