"""AlterPartitionReassignments (key 45): start or cancel moves of replicas. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, STRING
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


class AlterPartitionReassignmentsRequest(Message, versions="0-1", flexible="0+"):
    """Target replicas; null cancels."""

    # 1: whether the number of replicas may change (KIP-860).

    timeout_ms: int = wire(INT32, default=60000)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)
    topics: Sequence[ReassignableTopic] = wire(array(ReassignableTopic))


class ReassignablePartitionResponse(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class ReassignableTopicResponse(Message):
    name: str = wire(STRING)
    partitions: Sequence[ReassignablePartitionResponse] = wire(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Message, versions="0-1", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: int = wire(INT32)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True, ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    responses: Sequence[ReassignableTopicResponse] = wire(array(ReassignableTopicResponse))
