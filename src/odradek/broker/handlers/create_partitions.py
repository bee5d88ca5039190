"""CreatePartitions: the controller enlarges topics; answered when new partitions have leaders."""

from collections.abc import Generator, Mapping
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end
from odradek.broker.handlers._topic_changes import (
    NOT_CONTROLLER_MESSAGE,
    TIMED_OUT_MESSAGE,
    change_in_portions,
    find_excess,
    find_repeated,
    has_leaders,
)
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.broker.slices import Steps, body_of, finish_in_slices, reply_in_slices, start_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import CreatePartitionsResult, NewPartitions
from odradek.network.request import Request, Response
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
    message = body_of(CreatePartitionsRequest, request)
    quota = context.quotas.mutation_quota(request, is_strict=version >= _FIRST_STRICT_QUOTA_VERSION)
    results: dict[str, CreatePartitionsResult] = {}
    wanted = await finish_in_slices(
        _select(message, request, quota, results, context), request, context
    )
    if wanted:
        note_local_end(request, context)
        made = await change_in_portions(
            request,
            wanted.values(),
            lambda some: context.controller.create_partitions(
                some, validate_only=message.validate_only
            ),
            lambda topic, error: _refused(topic.name, error),
        )
        results.update((result.name, result) for result in made)
    grown = [name for name, result in results.items() if result.error is ErrorCode.NONE]

    def answer(unseen: frozenset[str]) -> Steps:
        late = ApiError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT_MESSAGE)
        rows = []
        for name, result in results.items():
            rows.append(_row(_refused(name, late) if name in unseen else result))
            yield
        response = CreatePartitionsResponse(results=rows)
        throttle_ms = quota.throttle_ms()
        return (yield from reply_in_slices(request, response, context, throttle_ms=throttle_ms))

    if message.validate_only or not grown:
        return await finish_in_slices(answer(frozenset()), request, context)
    context.metadata_waiter.park(
        grown,
        lambda name: has_leaders(context.cache.image, name, wanted[name].total_count, None),
        lambda unseen: start_in_slices(request, answer(unseen), context),
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
) -> Generator[None, None, Mapping[str, NewPartitions]]:
    """The topics for the controller; the refusals of others are put into `results`."""
    repeated = find_repeated(topic.name for topic in message.topics)
    yield
    counts = []
    for topic in message.topics:
        counts.append(_added_count(topic, context))
        yield
    excess = find_excess(counts)
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
        yield
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


def _row(result: CreatePartitionsResult) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=result.name, error_code=result.error, error_message=result.message
    )
