"""CreatePartitions: the controller enlarges topics; answered when new partitions have leaders."""

from collections.abc import Mapping
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import (
    NOT_CONTROLLER_MESSAGE,
    TIMED_OUT_MESSAGE,
    find_excess,
    find_repeated,
    has_leaders,
)
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import CreatePartitionsResult, NewPartitions
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_create_partitions"]

_FIRST_STRICT_QUOTA_VERSION: Final = 3


async def handle_create_partitions(request: Request, context: BrokerContext) -> Response | None:
    """Creates partitions, then waits until metadata shows them, up to the client's timeout."""
    started_ms = context.clock.monotonic_ms()
    version = request.header.api_version
    message, _ = parse_message(
        CreatePartitionsRequest, request.payload, version, request.body_offset
    )
    quota = context.quotas.mutation_quota(request, is_strict=version >= _FIRST_STRICT_QUOTA_VERSION)
    results: dict[str, CreatePartitionsResult] = {}
    wanted = _select(message, request, quota, results, context)
    if wanted:
        note_local_end(request, context)
        try:
            made = await context.controller.create_partitions(
                list(wanted.values()), validate_only=message.validate_only
            )
        except ApiError as error:
            made = [_refused(name, error) for name in wanted]
        results.update((result.name, result) for result in made)
    grown = [name for name, result in results.items() if result.error is ErrorCode.NONE]

    def answer(unseen: frozenset[str]) -> Response:
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT_MESSAGE)
        told = [
            _refused(name, late) if name in unseen else result for name, result in results.items()
        ]
        return reply_throttled(request, _response(told), context, throttle_ms=quota.throttle_ms())

    if message.validate_only or not grown:
        return answer(frozenset())
    context.metadata_waiter.park(
        grown,
        lambda name: has_leaders(context.cache.image, name, wanted[name].total_count, None),
        lambda unseen: request.reply(answer(unseen)),
        timeout_ms=message.timeout_ms,
        started_ms=started_ms,
    )
    return None


def _select(
    message: CreatePartitionsRequest,
    request: Request,
    quota: MutationQuota,
    results: dict[str, CreatePartitionsResult],
    context: BrokerContext,
) -> Mapping[str, NewPartitions]:
    """The topics for the controller; the refusals of others are put into `results`."""
    repeated = find_repeated(topic.name for topic in message.topics)
    excess = find_excess(_added_count(topic, context) for topic in message.topics)
    wanted: dict[str, NewPartitions] = {}
    for topic in message.topics:
        name = topic.name
        if name in results:
            continue
        results[name] = CreatePartitionsResult(name=name)
        try:
            if not context.controller.is_active:
                raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
            if excess is not None:
                raise excess
            if name in repeated:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"topic {name} is named twice in the request"
                )
            check_allowed(context.authorizer, request, Operation.ALTER, ResourceType.TOPIC, name)
            if name in context.internal_topics:
                # With another number of partitions, groups would not find their offsets.
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{name} is an internal topic and keeps its size"
                )
            quota.take(_added_count(topic, context))
        except ApiError as error:
            results[name] = _refused(name, error)
        else:
            wanted[name] = _new_partitions(topic)
    return wanted


def _added_count(topic: CreatePartitionsTopic, context: BrokerContext) -> int:
    known = context.cache.image.topics.get(topic.name)
    return max(topic.count - len(known.partitions), 0) if known is not None else 0


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    return NewPartitions(name=topic.name, total_count=topic.count, assignments=assignments)


def _refused(name: str, error: ApiError) -> CreatePartitionsResult:
    return CreatePartitionsResult(name=name, error=error.code, message=str(error))


def _response(results: list[CreatePartitionsResult]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=result.name, error_code=result.error, error_message=result.message
            )
            for result in results
        ]
    )
