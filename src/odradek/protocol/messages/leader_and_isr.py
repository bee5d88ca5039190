"""LeaderAndIsr (key 4): the controller tells a broker which replicas to lead or follow."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, INT64, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "LeaderAndIsrLiveLeader",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrPartitionState",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopicError",
    "LeaderAndIsrTopicState",
]


class LeaderAndIsrPartitionState(Message):
    topic_name: str = wire(STRING, "0-1", ignorable=True)
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    partition_epoch: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    adding_replicas: Sequence[int] = wire(array(INT32), "3+", ignorable=True)
    removing_replicas: Sequence[int] = wire(array(INT32), "3+", ignorable=True)
    is_new: bool = wire(BOOL, "1+", ignorable=True)
    # 1: elected uncleanly, and its leader has not repaired the partition yet; 0: sound.
    leader_recovery_state: int = wire(INT8, "6+")


class LeaderAndIsrTopicState(Message):
    topic_name: str = wire(STRING, "2+")
    # All zero where ids are not in use.
    topic_id: bytes = wire(UUID, "5+", ignorable=True)
    partition_states: Sequence[LeaderAndIsrPartitionState] = wire(
        array(LeaderAndIsrPartitionState), "2+"
    )


class LeaderAndIsrLiveLeader(Message):
    broker_id: int = wire(INT32)
    host_name: str = wire(STRING)
    port: int = wire(INT32)


class LeaderAndIsrRequest(Message, versions="0-7", flexible="4+"):
    """New state of partitions, and the leaders they name."""

    # 0-1: every partition carries its topic's name. 1: marks partitions that are new.
    # 2: broker epoch, to fence an earlier run of a broker; partitions by topic (KIP-380).
    # 3: replicas being added and removed (KIP-455).
    # 4: flexible.
    # 5: topic ids, and whether the list is complete (KIP-516).
    # 6: recovery after an unclean election (KIP-704).
    # 7: whether the controller is one of a quorum, during a migration (KIP-866).

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, "7+")
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, "2+", default=-1, ignorable=True)
    # 0 unknown, 1 incremental, 2 complete.
    type: int = wire(INT8, "5+")
    ungrouped_partition_states: Sequence[LeaderAndIsrPartitionState] = wire(
        array(LeaderAndIsrPartitionState), "0-1"
    )
    topic_states: Sequence[LeaderAndIsrTopicState] = wire(array(LeaderAndIsrTopicState), "2+")
    live_leaders: Sequence[LeaderAndIsrLiveLeader] = wire(array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Message):
    topic_name: str = wire(STRING, "0-4", ignorable=True)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class LeaderAndIsrTopicError(Message):
    topic_id: bytes = wire(UUID, "5+")
    partition_errors: Sequence[LeaderAndIsrPartitionError] = wire(
        array(LeaderAndIsrPartitionError), "5+"
    )


class LeaderAndIsrResponse(Message, versions="0-7", flexible="4+"):
    """An error per partition."""

    # 4: flexible.
    # 5: by topic id (KIP-516).

    error_code: int = wire(INT16)
    partition_errors: Sequence[LeaderAndIsrPartitionError] = wire(
        array(LeaderAndIsrPartitionError), "0-4"
    )
    topics: Sequence[LeaderAndIsrTopicError] = wire(array(LeaderAndIsrTopicError), "5+")
