"""Metadata (key 3): brokers, topics, and the leaders of partitions."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


class MetadataRequestTopic(Message):
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    name: str | None = wire(STRING, nullable="10+")


class MetadataRequest(Message, versions="0-13", flexible="9+"):
    """Which topics to describe, and whether to create missing ones."""

    # 0: no topics means all. 1: null means all, no topics means brokers only.
    # 4: the client says whether topics may be created.
    # 8: authorised operations on request (KIP-430); those of the cluster end at 10 (KIP-700).
    # 9: flexible.
    # 10: topic ids in the layout, usable only from 12 (KIP-516).

    topics: Sequence[MetadataRequestTopic] | None = wire(array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")


class MetadataResponseBroker(Message):
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Message):
    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: Sequence[int] = wire(array(INT32))
    isr_nodes: Sequence[int] = wire(array(INT32))
    offline_replicas: Sequence[int] = wire(array(INT32), "5+", ignorable=True)


class MetadataResponseTopic(Message):
    error_code: int = wire(INT16)
    name: str | None = wire(STRING, nullable="12+")
    topic_id: bytes = wire(UUID, "10+", ignorable=True)
    is_internal: bool = wire(BOOL, "1+", ignorable=True)
    partitions: Sequence[MetadataResponsePartition] = wire(array(MetadataResponsePartition))
    topic_authorized_operations: int = wire(INT32, "8+", default=-2147483648)


class MetadataResponse(Message, versions="0-13", flexible="9+"):
    """The cluster as seen through the listener that was asked."""

    # 1: racks, controller, internal flag. 2: cluster id. 3: throttle time. 5: offline replicas.
    # 7: leader epochs. 8: authorised operations; those of the cluster end at 10.
    # 9: flexible.
    # 10: topic ids. 12: a topic asked by id may have no name.
    # 13: an error for the whole answer, to send a client back to its bootstrap list (KIP-1102).

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    brokers: Sequence[MetadataResponseBroker] = wire(array(MetadataResponseBroker))
    cluster_id: str | None = wire(STRING, "2+", nullable="2+", default=None, ignorable=True)
    # -1: none known.
    controller_id: int = wire(INT32, "1+", default=-1, ignorable=True)
    topics: Sequence[MetadataResponseTopic] = wire(array(MetadataResponseTopic))
    cluster_authorized_operations: int = wire(INT32, "8-10", default=-2147483648)
    error_code: int = wire(INT16, "13+", ignorable=True)
