"""StopReplica (key 5): the controller tells a broker to stop replicas, or to delete them."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "StopReplicaPartitionError",
    "StopReplicaPartitionState",
    "StopReplicaPartitionV0",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaTopicState",
    "StopReplicaTopicV1",
]


class StopReplicaPartitionV0(Message):
    topic_name: str = wire(STRING, "0")
    partition_index: int = wire(INT32, "0")


class StopReplicaTopicV1(Message):
    name: str = wire(STRING, "1-2")
    partition_indexes: Sequence[int] = wire(array(INT32), "1-2")


class StopReplicaPartitionState(Message):
    partition_index: int = wire(INT32, "3+")
    leader_epoch: int = wire(INT32, "3+", default=-1)
    delete_partition: bool = wire(BOOL, "3+")


class StopReplicaTopicState(Message):
    topic_name: str = wire(STRING, "3+")
    partition_states: Sequence[StopReplicaPartitionState] = wire(
        array(StopReplicaPartitionState), "3+"
    )


class StopReplicaRequest(Message, versions="0-4", flexible="2+"):
    """Replicas to stop."""

    # 0: every partition carries its topic's name, one delete flag for all.
    # 1: broker epoch; partitions grouped by topic (KIP-380).
    # 2: flexible.
    # 3: leader epoch and delete flag per partition (KIP-570).
    # 4: whether the controller is one of a quorum, during a migration (KIP-866).

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, "4+")
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = wire(BOOL, "0-2")
    ungrouped_partitions: Sequence[StopReplicaPartitionV0] = wire(
        array(StopReplicaPartitionV0), "0"
    )
    topics: Sequence[StopReplicaTopicV1] = wire(array(StopReplicaTopicV1), "1-2")
    topic_states: Sequence[StopReplicaTopicState] = wire(array(StopReplicaTopicState), "3+")


class StopReplicaPartitionError(Message):
    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class StopReplicaResponse(Message, versions="0-4", flexible="2+"):
    """An error per partition."""

    # 2: flexible.
    # 3: may say FENCED_LEADER_EPOCH.

    error_code: int = wire(INT16)
    partition_errors: Sequence[StopReplicaPartitionError] = wire(array(StopReplicaPartitionError))
