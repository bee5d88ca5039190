"""ElectLeaders: the controller elects leaders; answered when metadata shows them."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end
from odradek.broker.handlers._topic_changes import (
    NOT_CONTROLLER_MESSAGE,
    TIMED_OUT_MESSAGE,
    change_in_portions,
)
from odradek.broker.slices import Steps, body_of, finish_in_slices, reply_in_slices, start_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import ElectionOutcome
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.security.operations import Operation

__all__ = ["handle_elect_leaders"]

_FIRST_WHOLE_ERROR_VERSION: Final = 1


async def handle_elect_leaders(request: Request, context: BrokerContext) -> Response | None:
    """Elects leaders, then waits until metadata shows them, up to the client's timeout."""
    started_ms = context.clock.monotonic_ms()
    message = body_of(ElectLeadersRequest, request)
    wanted = await finish_in_slices(_wanted(message), request, context)
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
        election_type = _election_type(message.election_type)
        note_local_end(request, context)
        outcomes = await _elect(wanted, election_type, request, context)
    except ApiError as error:
        refusal = _refusal(wanted or (), error, request, context)
        return await finish_in_slices(refusal, request, context)
    elected = [tp for tp, outcome in outcomes.items() if outcome.error is ErrorCode.NONE]

    def is_seen(tp: TopicPartition) -> bool:
        state = context.cache.get_partition_info(tp.topic, tp.partition)
        return state is not None and outcomes[tp].leader in (None, state.leader)

    def answer(unseen: frozenset[TopicPartition]) -> Steps:
        late = ElectionOutcome(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT_MESSAGE)
        told = {tp: late if tp in unseen else outcome for tp, outcome in outcomes.items()}
        return _answer(told, ErrorCode.NONE, request, context)

    if not elected:
        return await finish_in_slices(answer(frozenset()), request, context)
    context.election_waiter.park(
        elected,
        is_seen,
        lambda unseen: start_in_slices(request, answer(unseen), context),
        timeout_ms=message.timeout_ms,
        started_ms=started_ms,
    )
    return None


def _wanted(
    message: ElectLeadersRequest,
) -> Generator[None, None, list[TopicPartition] | None]:
    """The partitions of the request, each once; None for all."""
    if message.topic_partitions is None:
        return None
    wanted: dict[TopicPartition, None] = {}
    for topic in message.topic_partitions:
        for partition in topic.partitions:
            wanted[TopicPartition(topic.topic, partition)] = None
            yield
        yield
    return list(wanted)


async def _elect(
    wanted: list[TopicPartition] | None,
    election_type: ElectionType,
    request: Request,
    context: BrokerContext,
) -> dict[TopicPartition, ElectionOutcome]:
    elect = context.controller.elect_leaders
    if not wanted:
        return dict(await elect(wanted, election_type))

    async def elect_some(
        some: list[TopicPartition],
    ) -> Iterable[tuple[TopicPartition, ElectionOutcome]]:
        return (await elect(some, election_type)).items()

    outcomes = await change_in_portions(
        request,
        wanted,
        elect_some,
        lambda tp, error: (tp, ElectionOutcome(error.code, str(error))),
    )
    return dict(outcomes)


def _election_type(number: int) -> ElectionType:
    """Parses the election type; version 0 has no such field, which reads as preferred."""
    try:
        return ElectionType(number)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected election type 0 (preferred) or 1 (unclean), found {number}",
        ) from None


def _refusal(
    wanted: Sequence[TopicPartition], error: ApiError, request: Request, context: BrokerContext
) -> Steps:
    outcome = ElectionOutcome(error.code, str(error))
    has_whole_error = request.header.api_version >= _FIRST_WHOLE_ERROR_VERSION
    code = error.code if has_whole_error else ErrorCode.NONE
    return _answer(dict.fromkeys(wanted, outcome), code, request, context)


def _answer(
    outcomes: Mapping[TopicPartition, ElectionOutcome],
    error: ErrorCode,
    request: Request,
    context: BrokerContext,
) -> Steps:
    topics: dict[str, list[PartitionResult]] = {}
    for tp, outcome in outcomes.items():
        yield
        topics.setdefault(tp.topic, []).append(
            PartitionResult(
                partition_id=tp.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
    results = []
    for topic, rows in topics.items():
        results.append(ReplicaElectionResult(topic=topic, partition_result=rows))
        yield
    response = ElectLeadersResponse(error_code=error, replica_election_results=results)
    return (yield from reply_in_slices(request, response, context))
