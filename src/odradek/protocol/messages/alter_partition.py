"""AlterPartition (key 56): a leader asks the controller to store another ISR."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, INT64, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterPartitionBrokerState",
    "AlterPartitionPartition",
    "AlterPartitionPartitionResult",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AlterPartitionTopic",
    "AlterPartitionTopicResult",
]


class AlterPartitionBrokerState(Message):
    broker_id: int = wire(INT32, "3+")
    # -1 if the leader does not know it.
    broker_epoch: int = wire(INT64, "3+", default=-1)


class AlterPartitionPartition(Message):
    partition_index: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    new_isr: Sequence[int] = wire(array(INT32), "0-2")
    new_isr_with_epochs: Sequence[AlterPartitionBrokerState] = wire(
        array(AlterPartitionBrokerState), "3+"
    )
    # 1: elected uncleanly, and its leader has not repaired the partition yet; 0: sound.
    leader_recovery_state: int = wire(INT8, "1+")
    # The version that the change replaces.
    partition_epoch: int = wire(INT32)


class AlterPartitionTopic(Message):
    topic_name: str = wire(STRING, "0-1", ignorable=True)
    topic_id: bytes = wire(UUID, "2+", ignorable=True)
    partitions: Sequence[AlterPartitionPartition] = wire(array(AlterPartitionPartition))


class AlterPartitionRequest(Message, versions="0-3", flexible="0+"):
    """The ISRs that a leader wants."""

    # 0: called AlterIsr (KIP-497).
    # 1: recovery after an unclean election (KIP-704).
    # 2: topics by id (KIP-841).
    # 3: the broker epochs of the ISR's members (KIP-903).

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    topics: Sequence[AlterPartitionTopic] = wire(array(AlterPartitionTopic))


class AlterPartitionPartitionResult(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    leader_recovery_state: int = wire(INT8, "1+", ignorable=True)
    partition_epoch: int = wire(INT32)


class AlterPartitionTopicResult(Message):
    topic_name: str = wire(STRING, "0-1", ignorable=True)
    topic_id: bytes = wire(UUID, "2+", ignorable=True)
    partitions: Sequence[AlterPartitionPartitionResult] = wire(array(AlterPartitionPartitionResult))


class AlterPartitionResponse(Message, versions="0-3", flexible="0+"):
    """The state that is stored for each partition, or an error."""

    # 2: topics by id; may say INELIGIBLE_REPLICA, NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID (KIP-841).

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    topics: Sequence[AlterPartitionTopicResult] = wire(array(AlterPartitionTopicResult))
