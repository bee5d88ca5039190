"""AlterPartitionReassignments (key 45): start or cancel moves of replicas. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "ReassignablePartition",
    "ReassignablePartitionResponse",
    "ReassignableTopic",
    "ReassignableTopicResponse",
]


class ReassignablePartition(Message):
    partition_index: int = wire(INT32)
    replicas: Sequence[int] | None = wire(array(INT32), nullable="0+", default=None)


class ReassignableTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[ReassignablePartition] = wire(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Message, versions="0", flexible="0+"):
    """Target replicas; null cancels."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[ReassignableTopic] = wire(array(ReassignableTopic))


class ReassignablePartitionResponse(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[ReassignablePartitionResponse] = wire(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Message, versions="0", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    responses: Sequence[ReassignableTopicResponse] = wire(array(ReassignableTopicResponse))
