"""ListPartitionReassignments (key 46): reassignments in progress. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
]


class ListPartitionReassignmentsTopics(Message):
    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


class ListPartitionReassignmentsRequest(Message, versions="0", flexible="0+"):
    """Partitions to list; null is all."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[ListPartitionReassignmentsTopics] | None = wire(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


class OngoingPartitionReassignment(Message):
    partition_index: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    adding_replicas: Sequence[int] = wire(array(INT32))
    removing_replicas: Sequence[int] = wire(array(INT32))


class OngoingTopicReassignment(Message):
    name: str = wire(STRING)
    partitions: Sequence[OngoingPartitionReassignment] = wire(array(OngoingPartitionReassignment))


class ListPartitionReassignmentsResponse(Message, versions="0", flexible="0+"):
    """Reassignments in progress."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    topics: Sequence[OngoingTopicReassignment] = wire(array(OngoingTopicReassignment))
