"""Produce (key 0): append record batches to partitions."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID, Buffer
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Message):
    index: int = wire(INT32)
    # A view into the request; valid as long as its buffer.
    records: Buffer | None = wire(RECORDS, nullable="0+")


class TopicProduceData(Message):
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partition_data: Sequence[PartitionProduceData] = wire(array(PartitionProduceData))


class ProduceRequest(Message, versions="0-13", flexible="9+"):
    """Batches for any number of partitions; one v2 batch per partition."""

    # 0-2: old record formats. Read only to be refused with an error a client understands.
    # 3: v2 batches and the transactional id (KIP-98).
    # 7: zstd may be used (KIP-110).
    # 9: flexible.
    # 12: inside a transaction the write also adds the partition, if transaction.version is 2
    # (KIP-890).
    # 13: topic ids instead of names (KIP-516).

    transactional_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    # 0 no answer, 1 the leader has it, -1 all in-sync replicas have it.
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: Sequence[TopicProduceData] = wire(array(TopicProduceData))


class BatchIndexAndErrorMessage(Message):
    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


class PartitionProduceResponse(Message):
    index: int = wire(INT32)
    error_code: int = wire(INT16)
    # -1 on an error.
    base_offset: int = wire(INT64)
    # -1 unless the broker set the timestamps.
    log_append_time_ms: int = wire(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: Sequence[BatchIndexAndErrorMessage] = wire(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: bytes = wire(UUID, "13+", ignorable=True)
    partition_responses: Sequence[PartitionProduceResponse] = wire(array(PartitionProduceResponse))


class NodeEndpoint(Message):
    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


class ProduceResponse(Message, versions="0-13", flexible="9+"):
    """The offset of each batch, or why it was refused."""

    # 1: throttle time. 2: append time. 4: may say KAFKA_STORAGE_ERROR. 5: log start offset.
    # 8: which records were at fault, and a message (KIP-467).
    # 9: flexible.
    # 10: the new leader, so that the client need not ask (KIP-951).
    # 11: may say TRANSACTION_ABORTABLE (KIP-890). 13: topic ids.

    responses: Sequence[TopicProduceResponse] = wire(array(TopicProduceResponse))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    node_endpoints: Sequence[NodeEndpoint] = wire(array(NodeEndpoint), "10+", tag=0)
