"""UpdateMetadata (key 6): the controller fills a broker's metadata cache."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, INT64, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartitionState",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopicState",
]


class UpdateMetadataPartitionState(Message):
    topic_name: str = wire(STRING, "0-4", ignorable=True)
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    zk_version: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    offline_replicas: Sequence[int] = wire(array(INT32), "4+", ignorable=True)


class UpdateMetadataTopicState(Message):
    topic_name: str = wire(STRING, "5+")
    topic_id: bytes = wire(UUID, "7+", ignorable=True)
    partition_states: Sequence[UpdateMetadataPartitionState] = wire(
        array(UpdateMetadataPartitionState), "5+"
    )


class UpdateMetadataEndpoint(Message):
    port: int = wire(INT32, "1+")
    host: str = wire(STRING, "1+")
    listener: str = wire(STRING, "3+", ignorable=True)
    security_protocol: int = wire(INT16, "1+")


class UpdateMetadataBroker(Message):
    id: int = wire(INT32)
    v0_host: str = wire(STRING, "0", ignorable=True)
    v0_port: int = wire(INT32, "0", ignorable=True)
    endpoints: Sequence[UpdateMetadataEndpoint] = wire(
        array(UpdateMetadataEndpoint), "1+", ignorable=True
    )
    rack: str | None = wire(STRING, "2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, versions="0-8", flexible="6+"):
    """Partition states that changed, and every live broker."""

    # 0: one host and port per broker. 1: several endpoints. 2: rack. 3: listener names.
    # 4: offline replicas. 5: broker epoch; partitions grouped by topic (KIP-380).
    # 6: flexible.
    # 7: topic ids (KIP-516).
    # 8: whether the controller is one of a quorum, and whether the list is complete (KIP-866).

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, "8+")
    # 0 unknown, 1 incremental, 2 complete.
    type: int = wire(INT8, "8+", tag=0)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, "5+", default=-1, ignorable=True)
    ungrouped_partition_states: Sequence[UpdateMetadataPartitionState] = wire(
        array(UpdateMetadataPartitionState), "0-4"
    )
    topic_states: Sequence[UpdateMetadataTopicState] = wire(array(UpdateMetadataTopicState), "5+")
    live_brokers: Sequence[UpdateMetadataBroker] = wire(array(UpdateMetadataBroker))


class UpdateMetadataResponse(Message, versions="0-8", flexible="6+"):
    """An error for the whole request."""

    # 6: flexible.

    error_code: int = wire(INT16)
