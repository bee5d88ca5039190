"""AlterPartitionReassignments: the controller begins or cancels moves of replicas."""

from collections.abc import Generator, Iterable

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE, change_in_portions
from odradek.broker.slices import Steps, body_of, finish_in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import ReassignmentOutcome
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
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
    message = body_of(AlterPartitionReassignmentsRequest, request)
    targets = await finish_in_slices(_targets(message), request, context)
    allows_other_count = message.allow_replication_factor_change
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
    except ApiError as error:
        return _refuse(error.code, str(error), request, context)
    note_local_end(request, context)

    async def alter(
        some: list[TopicPartition],
    ) -> Iterable[tuple[TopicPartition, ReassignmentOutcome]]:
        outcomes = await context.controller.alter_reassignments(
            {tp: targets[tp] for tp in some}, allows_other_count=allows_other_count
        )
        return outcomes.items()

    outcomes = await change_in_portions(
        request, targets, alter, lambda tp, error: (tp, ReassignmentOutcome(error.code, str(error)))
    )
    if outcomes and outcomes[0][1].error is ErrorCode.NOT_CONTROLLER:
        # It resigned meanwhile: the client asks the next one for everything.
        return _refuse(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE, request, context)
    answer = _answer(outcomes, request, context, allows_other_count=allows_other_count)
    return await finish_in_slices(answer, request, context)


def _refuse(code: ErrorCode, message: str, request: Request, context: BrokerContext) -> Response:
    refusal = AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
    return reply_throttled(request, refusal, context)


def _targets(
    message: AlterPartitionReassignmentsRequest,
) -> Generator[None, None, dict[TopicPartition, tuple[int, ...] | None]]:
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for topic in message.topics:
        for one in topic.partitions:
            targets[TopicPartition(topic.name, one.partition_index)] = (
                None if one.replicas is None else tuple(one.replicas)
            )
            yield
        yield
    return targets


def _answer(
    outcomes: Iterable[tuple[TopicPartition, ReassignmentOutcome]],
    request: Request,
    context: BrokerContext,
    *,
    allows_other_count: bool,
) -> Steps:
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for tp, outcome in outcomes:
        topics.setdefault(tp.topic, []).append(
            ReassignablePartitionResponse(
                partition_index=tp.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
        yield
    responses: list[ReassignableTopicResponse] = []
    for name, rows in topics.items():
        responses.append(ReassignableTopicResponse(name=name, partitions=rows))
        yield
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allows_other_count,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )
    return (yield from reply_in_slices(request, response, context))
