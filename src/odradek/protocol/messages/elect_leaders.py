"""ElectLeaders (key 43): the controller elects leaders on request."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "PartitionResult",
    "ReplicaElectionResult",
    "TopicPartitions",
]


class TopicPartitions(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class ElectLeadersRequest(Message, versions="0-2", flexible="2+"):
    """Partitions, null for all; the preferred replica or, from 1 on, any that lives."""

    # 1: election type (KIP-460).
    # 2: flexible.

    # 0 preferred, 1 unclean.
    election_type: int = wire(INT8, "1+")
    topic_partitions: Sequence[TopicPartitions] | None = wire(array(TopicPartitions), nullable="0+")
    timeout_ms: int = wire(INT32, default=60000)


class PartitionResult(Message):
    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class ReplicaElectionResult(Message):
    topic: str = wire(STRING)
    partition_result: Sequence[PartitionResult] = wire(array(PartitionResult))


class ElectLeadersResponse(Message, versions="0-2", flexible="2+"):
    """The outcome per partition."""

    # 1: an error for the whole answer.
    # 2: flexible.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "1+")
    replica_election_results: Sequence[ReplicaElectionResult] = wire(array(ReplicaElectionResult))
