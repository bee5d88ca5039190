"""AlterPartitionReassignments: the controller begins or cancels moves of replicas."""

from collections.abc import Mapping

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import ReassignmentOutcome
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_alter_partition_reassignments"]


async def handle_alter_partition_reassignments(
    request: Request, context: BrokerContext
) -> Response:
    """Answers when the moves are stored and announced; of a partition named twice the last counts.

    A move goes on by itself afterwards, and ListPartitionReassignments shows it until its end.
    """
    version = request.header.api_version
    message, _ = parse_message(
        AlterPartitionReassignmentsRequest, request.payload, version, request.body_offset
    )
    targets = {
        TopicPartition(topic.name, one.partition_index): (
            None if one.replicas is None else tuple(one.replicas)
        )
        for topic in message.topics
        for one in topic.partitions
    }
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
        note_local_end(request, context)
        outcomes = await context.controller.alter_reassignments(
            targets, allows_other_count=message.allow_replication_factor_change
        )
    except ApiError as error:
        refusal = AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=str(error)
        )
        return reply_throttled(request, refusal, context)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=_topics(outcomes),
    )
    return reply_throttled(request, response, context)


def _topics(
    outcomes: Mapping[TopicPartition, ReassignmentOutcome],
) -> list[ReassignableTopicResponse]:
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for tp, outcome in outcomes.items():
        topics.setdefault(tp.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=tp.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
    return [ReassignableTopicResponse(name=name, partitions=rows) for name, rows in topics.items()]
