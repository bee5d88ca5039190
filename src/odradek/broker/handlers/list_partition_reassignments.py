"""ListPartitionReassignments: replicas that are being moved, as the controller knows them."""

from collections.abc import Mapping

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE
from odradek.errors import ApiError, ErrorCode
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.security.operations import Operation

__all__ = ["handle_list_partition_reassignments"]


async def handle_list_partition_reassignments(request: Request, context: BrokerContext) -> Response:
    """Answers from the controller; partitions that are not being moved are left out."""
    version = request.header.api_version
    message, _ = parse_message(
        ListPartitionReassignmentsRequest, request.payload, version, request.body_offset
    )
    wanted = None
    if message.topics is not None:
        wanted = list(
            dict.fromkeys(
                TopicPartition(topic.name, partition)
                for topic in message.topics
                for partition in topic.partition_indexes
            )
        )
    try:
        check_allowed(context.authorizer, request, Operation.DESCRIBE)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
        note_local_end(request, context)
        moves = await context.controller.list_reassignments(wanted)
    except ApiError as error:
        refusal = ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=str(error)
        )
        return reply_throttled(request, refusal, context)
    response = ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE, error_message=None, topics=_topics(moves)
    )
    return reply_throttled(request, response, context)


def _topics(moves: Mapping[TopicPartition, ReplicaAssignment]) -> list[OngoingTopicReassignment]:
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for tp in sorted(moves):
        move = moves[tp]
        if move.is_being_reassigned:
            topics.setdefault(tp.topic, []).append(
                OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=move.replicas,
                    adding_replicas=move.adding,
                    removing_replicas=move.removing,
                )
            )
    return [OngoingTopicReassignment(name=topic, partitions=rows) for topic, rows in topics.items()]
