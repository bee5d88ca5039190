"""DescribeTopicPartitions (key 75): topics page by page. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "Cursor",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTopicPartitionsResponsePartition",
    "DescribeTopicPartitionsResponseTopic",
    "TopicRequest",
]


class TopicRequest(Message):
    name: str = wire(STRING)


class Cursor(Message):
    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


class DescribeTopicPartitionsRequest(Message, versions="0", flexible="0+"):
    """Topics by name, none for all, from a cursor on."""

    topics: Sequence[TopicRequest] = wire(array(TopicRequest))
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: Cursor | None = wire(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    replica_nodes: Sequence[int] = wire(array(INT32))
    isr_nodes: Sequence[int] = wire(array(INT32))
    eligible_leader_replicas: Sequence[int] | None = wire(array(INT32), nullable="0+", default=None)
    last_known_elr: Sequence[int] | None = wire(array(INT32), nullable="0+", default=None)
    offline_replicas: Sequence[int] = wire(array(INT32))


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="0+")
    topic_id: bytes = wire(UUID)
    is_internal: bool = wire(BOOL)
    partitions: Sequence[DescribeTopicPartitionsResponsePartition] = wire(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = wire(INT32, default=-2147483648)


class DescribeTopicPartitionsResponse(Message, versions="0", flexible="0+"):
    """One page, and where the next begins."""

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[DescribeTopicPartitionsResponseTopic] = wire(
        array(DescribeTopicPartitionsResponseTopic)
    )
    # First partition not sent; null when this was the last page.
    next_cursor: Cursor | None = wire(Cursor, nullable="0+", default=None)
