"""DescribeProducers (key 61): producers with state in a partition. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "PartitionResponse",
    "ProducerState",
    "TopicRequest",
    "TopicResponse",
]


class TopicRequest(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


class DescribeProducersRequest(Message, versions="0", flexible="0+"):
    """Partitions to describe."""

    topics: Sequence[TopicRequest] = wire(array(TopicRequest))


class ProducerState(Message):
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


class PartitionResponse(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    active_producers: Sequence[ProducerState] = wire(array(ProducerState))


class TopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[PartitionResponse] = wire(array(PartitionResponse))


class DescribeProducersResponse(Message, versions="0", flexible="0+"):
    """Producers per partition."""

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TopicResponse] = wire(array(TopicResponse))
