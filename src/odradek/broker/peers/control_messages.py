"""Control requests and their answers in the versions of other brokers. Pure.

The controller builds its requests, and the feed serves them, in the form of the newest version. A
connection to an older broker, or a request of an older controller, needs other forms:

| request      | versions | difference                                                          |
|--------------|----------|---------------------------------------------------------------------|
| LeaderAndIsr | 2-4      | no ids, no type (such a list is never complete); answered by name   |
| UpdateMeta…  | 5-6      | no ids                                                              |
| StopReplica  | 1-2      | no leader epochs; one flag to delete for all partitions             |
"""

from collections.abc import Sequence

from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace

__all__ = [
    "answer_by_topic_id",
    "answer_by_topic_name",
    "metadata_by_topic_name",
    "roles_by_topic_name",
    "stop_by_partition",
    "stop_by_topic",
]

FIRST_LEADER_AND_ISR_BY_ID = 5
FIRST_STOP_REPLICA_BY_PARTITION = 3


def roles_by_topic_name(request: LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """The request of version 5 in the form of versions 2 to 4."""
    return replace(
        request,
        type=0,
        topic_states=[replace(topic, topic_id=ZERO_UUID) for topic in request.topic_states],
    )


def metadata_by_topic_name(request: UpdateMetadataRequest) -> UpdateMetadataRequest:
    """The request of version 7 in the form of versions 5 and 6."""
    return replace(
        request,
        topic_states=[replace(topic, topic_id=ZERO_UUID) for topic in request.topic_states],
    )


def answer_by_topic_id(
    response: LeaderAndIsrResponse, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """The answer of versions 2 to 4 in the form of version 5."""
    ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for error in response.partition_errors:
        by_topic.setdefault(error.topic_name, []).append(error)
    return LeaderAndIsrResponse(
        error_code=response.error_code,
        topics=[
            LeaderAndIsrTopicError(topic_id=ids[topic], partition_errors=errors)
            for topic, errors in by_topic.items()
            if topic in ids
        ],
    )


def answer_by_topic_name(response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
    """The answer of version 5 in the form of versions 2 to 4; its rows have the topics' names."""
    errors: Sequence[LeaderAndIsrPartitionError] = [
        error for topic in response.topics for error in topic.partition_errors
    ]
    return LeaderAndIsrResponse(error_code=response.error_code, partition_errors=errors)


def stop_by_topic(request: StopReplicaRequest) -> StopReplicaRequest:
    """The request of version 3 in the form of versions 1 and 2.

    All its partitions have the same flag: the controller makes one request for either.
    """
    states = [state for topic in request.topic_states for state in topic.partition_states]
    return replace(
        request,
        delete_partitions=any(state.delete_partition for state in states),
        topic_states=(),
        topics=tuple(
            StopReplicaTopicV1(
                name=topic.topic_name,
                partition_indexes=[state.partition_index for state in topic.partition_states],
            )
            for topic in request.topic_states
        ),
    )


def stop_by_partition(request: StopReplicaRequest) -> StopReplicaRequest:
    """The request of versions 1 and 2 in the form of version 3; leader epochs are unknown."""
    return replace(
        request,
        delete_partitions=False,
        topics=(),
        topic_states=tuple(
            StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=tuple(
                    StopReplicaPartitionState(
                        partition_index=partition, delete_partition=request.delete_partitions
                    )
                    for partition in topic.partition_indexes
                ),
            )
            for topic in request.topics
        ),
    )
