"""CreatePartitions (key 37): the controller adds partitions to topics."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
]


class CreatePartitionsAssignment(Message):
    broker_ids: Sequence[int] = wire(array(INT32))


class CreatePartitionsTopic(Message):
    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: Sequence[CreatePartitionsAssignment] | None = wire(
        array(CreatePartitionsAssignment), nullable="0+"
    )


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+"):
    """New totals, with replicas for the new ones if wanted."""

    # 2: flexible.
    # 3: may be answered THROTTLING_QUOTA_EXCEEDED (KIP-599).

    topics: Sequence[CreatePartitionsTopic] = wire(array(CreatePartitionsTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


class CreatePartitionsTopicResult(Message):
    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+"):
    """The outcome per topic."""

    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    results: Sequence[CreatePartitionsTopicResult] = wire(array(CreatePartitionsTopicResult))
