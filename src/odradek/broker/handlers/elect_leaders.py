"""ElectLeaders: the controller elects leaders; answered when metadata shows them."""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import NOT_CONTROLLER_MESSAGE, TIMED_OUT_MESSAGE
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import ElectionOutcome
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
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
    version = request.header.api_version
    message, _ = parse_message(ElectLeadersRequest, request.payload, version, request.body_offset)
    wanted = None
    if message.topic_partitions is not None:
        wanted = list(
            dict.fromkeys(
                TopicPartition(topic.topic, partition)
                for topic in message.topic_partitions
                for partition in topic.partitions
            )
        )
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        if not context.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
        election_type = _election_type(message.election_type)
        note_local_end(request, context)
        outcomes = dict(await context.controller.elect_leaders(wanted, election_type))
    except ApiError as error:
        return reply_throttled(request, _refusal(wanted or (), error, version), context)
    elected = [tp for tp, outcome in outcomes.items() if outcome.error is ErrorCode.NONE]

    def is_seen(tp: TopicPartition) -> bool:
        state = context.cache.get_partition_info(tp.topic, tp.partition)
        return state is not None and outcomes[tp].leader in (None, state.leader)

    def answer(unseen: frozenset[TopicPartition]) -> Response:
        late = ElectionOutcome(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT_MESSAGE)
        told = {tp: late if tp in unseen else outcome for tp, outcome in outcomes.items()}
        return reply_throttled(request, _response(told), context)

    if not elected:
        return answer(frozenset())
    context.election_waiter.park(
        elected,
        is_seen,
        lambda unseen: request.reply(answer(unseen)),
        timeout_ms=message.timeout_ms,
        started_ms=started_ms,
    )
    return None


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
    wanted: Sequence[TopicPartition], error: ApiError, version: int
) -> ElectLeadersResponse:
    outcome = ElectionOutcome(error.code, str(error))
    code = error.code if version >= _FIRST_WHOLE_ERROR_VERSION else ErrorCode.NONE
    return _response(dict.fromkeys(wanted, outcome), code)


def _response(
    outcomes: Mapping[TopicPartition, ElectionOutcome], error: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = {}
    for tp, outcome in outcomes.items():
        topics.setdefault(tp.topic, []).append(
            PartitionResult(
                partition_id=tp.partition,
                error_code=outcome.error,
                error_message=outcome.message,
            )
        )
    results = [
        ReplicaElectionResult(topic=topic, partition_result=rows) for topic, rows in topics.items()
    ]
    return ElectLeadersResponse(error_code=error, replica_election_results=results)
