"""ListPartitionReassignments: replicas that are being moved, as the controller knows them."""

from collections.abc import Generator, Iterable, Mapping
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE
from odradek.broker.slices import Steps, body_of, finish_in_slices, portions, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.security.operations import Operation

__all__ = ["handle_list_partition_reassignments"]

# Partitions that the controller looks up in one turn.
_LISTED_AT_ONCE: Final = 500


async def handle_list_partition_reassignments(request: Request, context: BrokerContext) -> Response:
    """Answers from the controller; partitions that are not being moved are left out."""
    message = body_of(ListPartitionReassignmentsRequest, request)
    wanted = await finish_in_slices(_wanted(message), request, context)
    try:
        check_allowed(context.authorizer, request, Operation.DESCRIBE)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
        note_local_end(request, context)
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        asked: Iterable[list[TopicPartition] | None]
        asked = [None] if wanted is None else portions(wanted, _LISTED_AT_ONCE)
        for portion in asked:
            moves.update(await context.controller.list_reassignments(portion))
    except ApiError as error:
        refusal = ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=str(error)
        )
        return reply_throttled(request, refusal, context)
    return await finish_in_slices(_answer(moves, request, context), request, context)


def _wanted(
    message: ListPartitionReassignmentsRequest,
) -> Generator[None, None, list[TopicPartition] | None]:
    """The partitions of the request, each once; None for all."""
    if message.topics is None:
        return None
    wanted: dict[TopicPartition, None] = {}
    for topic in message.topics:
        for partition in topic.partition_indexes:
            wanted[TopicPartition(topic.name, partition)] = None
            yield
        yield
    return list(wanted)


def _answer(
    moves: Mapping[TopicPartition, ReplicaAssignment], request: Request, context: BrokerContext
) -> Steps:
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for tp in sorted(moves):
        yield
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
    response = ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=topic, partitions=rows) for topic, rows in topics.items()
        ],
    )
    return (yield from reply_in_slices(request, response, context))
