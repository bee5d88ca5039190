"""CreateTopics: the controller creates topics; answered when metadata shows all their leaders."""

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from odradek.broker.authorization import is_allowed
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
from odradek.metadata.admin_requests import BROKER_DEFAULT, NewTopic, TopicResult
from odradek.network.request import Request, Response
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_create_topics"]

_FIRST_CONFIGS_VERSION: Final = 5
_FIRST_STRICT_QUOTA_VERSION: Final = 6
# Settings of one topic in a request: more than there are.
_MAX_CONFIGS: Final = 1_000


async def handle_create_topics(request: Request, context: BrokerContext) -> Response | None:
    """Creates topics, then waits until metadata shows them, up to the client's timeout."""
    started_ms = context.clock.monotonic_ms()
    version = request.header.api_version
    message = body_of(CreateTopicsRequest, request)
    quota = context.quotas.mutation_quota(request, is_strict=version >= _FIRST_STRICT_QUOTA_VERSION)
    results: dict[str, TopicResult] = {}
    wanted = await finish_in_slices(
        _select(message, request, quota, results, context), request, context
    )
    if wanted:
        note_local_end(request, context)
        made = await change_in_portions(
            request,
            wanted,
            lambda some: context.controller.create_topics(
                some, validate_only=message.validate_only
            ),
            lambda topic, error: _refused(topic.name, error),
        )
        results.update((result.name, result) for result in made)
    created = [r.name for r in results.values() if r.error is ErrorCode.NONE]

    def answer(unseen: frozenset[str]) -> Steps:
        settings: _Settings = {}
        rows = []
        for result in results.values():
            told = _timed_out(result) if result.name in unseen else result
            rows.append(_row(told, settings, request, context))
            yield
        response = CreateTopicsResponse(topics=rows)
        throttle_ms = quota.throttle_ms()
        return (yield from reply_in_slices(request, response, context, throttle_ms=throttle_ms))

    if message.validate_only or not created:
        return await finish_in_slices(answer(frozenset()), request, context)
    context.metadata_waiter.park(
        created,
        lambda name: has_leaders(
            context.cache.image, name, results[name].partition_count, results[name].topic_id
        ),
        lambda unseen: start_in_slices(request, answer(unseen), context),
        timeout_ms=message.timeout_ms,
        started_ms=started_ms,
    )
    return None


def _select(
    message: CreateTopicsRequest,
    request: Request,
    quota: MutationQuota,
    results: dict[str, TopicResult],
    context: BrokerContext,
) -> Generator[None, None, list[NewTopic]]:
    """The topics for the controller; the refusals of others are put into `results`.

    `results` gets every name once, in the order of the request.
    """
    repeated = find_repeated(topic.name for topic in message.topics)
    yield
    may_create_all = is_allowed(context.authorizer, request, Operation.CREATE)
    counts = []
    for topic in message.topics:
        counts.append(_partition_count(topic, context))
        yield
    excess = find_excess(counts)
    wanted: list[NewTopic] = []
    for topic in message.topics:
        name = topic.name
        if name in results:
            continue
        results[name] = TopicResult(name=name)
        try:
            if not context.controller.is_active:
                raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
            if excess is not None:
                raise excess
            if name in repeated:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"topic {name} is named twice in the request"
                )
            if not may_create_all and not is_allowed(
                context.authorizer, request, Operation.CREATE, ResourceType.TOPIC, name
            ):
                raise ApiError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not allowed to create topic {name}"
                )
            new = _new_topic(topic)
            quota.take(_partition_count(topic, context))
        except ApiError as error:
            results[name] = _refused(name, error)
        else:
            wanted.append(new)
        yield
    return wanted


def _new_topic(topic: CreatableTopic) -> NewTopic:
    if len(topic.configs) > _MAX_CONFIGS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"topic {topic.name}: expected at most {_MAX_CONFIGS} settings, found"
            f" {len(topic.configs)}",
        )
    assignment = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"topic {topic.name}: a partition comes twice"
        )
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=assignment or None,
        configs={config.name: config.value for config in topic.configs},
    )


def _partition_count(topic: CreatableTopic, context: BrokerContext) -> int:
    if topic.assignments:
        return len(topic.assignments)
    if topic.num_partitions == BROKER_DEFAULT:
        return context.broker_settings().topics.num_partitions
    return max(topic.num_partitions, 0)


def _refused(name: str, error: ApiError) -> TopicResult:
    return TopicResult(name=name, error=error.code, message=str(error))


def _timed_out(result: TopicResult) -> TopicResult:
    return TopicResult(
        name=result.name, error=ErrorCode.REQUEST_TIMED_OUT, message=TIMED_OUT_MESSAGE
    )


# The rows of equal overrides: most topics of a request have the same, or none.
_Settings: TypeAlias = dict[frozenset[tuple[str, str]], Sequence[CreatableTopicConfigs]]


def _row(
    result: TopicResult, settings: _Settings, request: Request, context: BrokerContext
) -> CreatableTopicResult:
    row = CreatableTopicResult(
        name=result.name,
        topic_id=ZERO_UUID if result.topic_id is None else result.topic_id.bytes,
        error_code=result.error,
        error_message=result.message,
    )
    if result.error is not ErrorCode.NONE or request.header.api_version < _FIRST_CONFIGS_VERSION:
        return row
    if not is_allowed(
        context.authorizer, request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name
    ):
        return replace(row, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return replace(
        row,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=_configs(result, settings, context),
    )


def _configs(
    result: TopicResult, settings: _Settings, context: BrokerContext
) -> Sequence[CreatableTopicConfigs]:
    overrides = frozenset(result.configs.items())
    rows = settings.get(overrides)
    if rows is None:
        rows = settings[overrides] = [
            CreatableTopicConfigs(
                name=row.name,
                value=row.value,
                read_only=row.is_read_only,
                config_source=row.source,
                is_sensitive=row.is_sensitive,
            )
            for row in context.topic_configs.rows(result.configs)
        ]
    return rows
