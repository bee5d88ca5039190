"""CreateTopics (key 19): the controller creates topics."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING, UUID
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


class CreatableReplicaAssignment(Message):
    partition_index: int = wire(INT32)
    broker_ids: Sequence[int] = wire(array(INT32))


class CreatableTopicConfig(Message):
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


class CreatableTopic(Message):
    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: Sequence[CreatableReplicaAssignment] = wire(array(CreatableReplicaAssignment))
    configs: Sequence[CreatableTopicConfig] = wire(array(CreatableTopicConfig))


class CreateTopicsRequest(Message, versions="2-7", flexible="5+"):
    """Topics with counts, or with an assignment per partition."""

    # 4: -1 partitions or replicas means the broker's default (KIP-464).
    # 5: flexible.

    topics: Sequence[CreatableTopic] = wire(array(CreatableTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL)


class CreatableTopicConfigs(Message):
    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = wire(BOOL, "5+")


class CreatableTopicResult(Message):
    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, "7+", ignorable=True)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    topic_config_error_code: int = wire(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = wire(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = wire(INT16, "5+", default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = wire(
        array(CreatableTopicConfigs), "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, versions="2-7", flexible="5+"):
    """The outcome per topic."""

    # 2: throttle time.
    # 5: flexible; counts and configs of the new topic (KIP-525).
    # 7: its id (KIP-516).

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[CreatableTopicResult] = wire(array(CreatableTopicResult))
