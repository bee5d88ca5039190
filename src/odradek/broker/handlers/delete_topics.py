"""DeleteTopics: the controller deletes topics; answered when metadata no longer shows them."""

import uuid
from dataclasses import dataclass
from typing import Final

from odradek.broker.authorization import check_allowed, is_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.handlers._topic_changes import (
    NOT_CONTROLLER_MESSAGE,
    TIMED_OUT_MESSAGE,
    find_repeated,
    is_gone,
)
from odradek.broker.quotas.client_quotas import MutationQuota
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import DeletedTopic
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_delete_topics"]

_FIRST_DISABLED_VERSION: Final = 3
_FIRST_STRICT_QUOTA_VERSION: Final = 5
_FIRST_ID_VERSION: Final = 6


@dataclass(slots=True)
class _Row:
    """One topic of the request, with its answer."""

    name: str | None
    topic_id: uuid.UUID | None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    is_by_id: bool = False  # Asked for by id, not by name.

    def refuse(self, error: ApiError) -> None:
        self.error, self.message = error.code, str(error)


async def handle_delete_topics(request: Request, context: BrokerContext) -> Response | None:
    """Deletes topics, then waits until metadata has lost them, up to the client's timeout."""
    started_ms = context.clock.monotonic_ms()
    version = request.header.api_version
    message, _ = parse_message(DeleteTopicsRequest, request.payload, version, request.body_offset)
    quota = context.quotas.mutation_quota(request, is_strict=version >= _FIRST_STRICT_QUOTA_VERSION)
    rows = _rows(message, version, context)
    _refuse(rows, request, quota, context)
    wanted = {row.name: row for row in rows if row.name is not None and row.error is ErrorCode.NONE}
    if wanted:
        note_local_end(request, context)
        try:
            ids = {
                name: row.topic_id
                for name, row in wanted.items()
                if row.is_by_id and row.topic_id is not None
            }
            for deleted in await context.controller.delete_topics(list(wanted), ids):
                _take_result(wanted[deleted.name], deleted)
        except ApiError as error:
            for row in wanted.values():
                row.refuse(error)
    pending = [name for name, row in wanted.items() if row.error is ErrorCode.NONE]

    def answer(unseen: frozenset[str]) -> Response:
        for name in unseen:
            wanted[name].refuse(ApiError(ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT_MESSAGE))
        response = DeleteTopicsResponse(responses=[_result(row) for row in rows])
        return reply_throttled(request, response, context, throttle_ms=quota.throttle_ms())

    if not pending:
        return answer(frozenset())
    context.metadata_waiter.park(
        pending,
        # Also waits until the name is free: metadata loses a topic before brokers and store do.
        lambda name: (
            is_gone(context.cache.image, name, wanted[name].topic_id)
            and not context.controller.is_deleting(name)
        ),
        lambda unseen: request.reply(answer(unseen)),
        timeout_ms=message.timeout_ms,
        started_ms=started_ms,
    )
    return None


def _rows(message: DeleteTopicsRequest, version: int, context: BrokerContext) -> list[_Row]:
    if version >= _FIRST_ID_VERSION:
        return [_row_of(topic, context) for topic in message.topics]
    return [_Row(name, context.cache.get_topic_id(name)) for name in message.topic_names]


def _row_of(topic: DeleteTopicState, context: BrokerContext) -> _Row:
    if topic.topic_id == ZERO_UUID:
        row = _Row(topic.name, None)
        if topic.name is None:
            row.refuse(ApiError(ErrorCode.INVALID_REQUEST, "expected a name or an id"))
        else:
            row.topic_id = context.cache.get_topic_id(topic.name)
        return row
    topic_id = uuid.UUID(bytes=topic.topic_id)
    if topic.name is not None:
        row = _Row(topic.name, topic_id)
        row.refuse(ApiError(ErrorCode.INVALID_REQUEST, "expected a name or an id, found both"))
        return row
    row = _Row(context.cache.get_topic_name(topic_id), topic_id, is_by_id=True)
    if row.name is None:
        row.refuse(ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}"))
    return row


def _refuse(
    rows: list[_Row], request: Request, quota: MutationQuota, context: BrokerContext
) -> None:
    repeated = find_repeated(row.name for row in rows if row.name is not None)
    topics = context.cache.image.topics
    for row in rows:
        try:
            if not context.controller.is_active:
                raise ApiError(ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER_MESSAGE)
            if not context.delete_topics_enabled:
                code = ErrorCode.TOPIC_DELETION_DISABLED
                if request.header.api_version < _FIRST_DISABLED_VERSION:
                    code = ErrorCode.INVALID_REQUEST
                raise ApiError(code, "delete.topic.enable is false")
            if row.name is None or row.error is not ErrorCode.NONE:
                continue
            if row.name in repeated:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"topic {row.name} is named twice in the request"
                )
            _check_rights(row, request, context)
            if row.name in topics:
                quota.take(len(topics[row.name].partitions))
        except ApiError as error:
            row.refuse(error)


def _check_rights(row: _Row, request: Request, context: BrokerContext) -> None:
    """Checks the rights to a topic; hides an id's name from clients that may not describe it."""
    assert row.name is not None, "a row without a name is refused before"
    name = row.name
    if row.is_by_id and not is_allowed(
        context.authorizer, request, Operation.DESCRIBE, ResourceType.TOPIC, name
    ):
        row.name = None
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "this topic may not be deleted")
    check_allowed(context.authorizer, request, Operation.DELETE, ResourceType.TOPIC, name)


def _take_result(row: _Row, deleted: DeletedTopic) -> None:
    row.error, row.message = deleted.error, deleted.message
    row.topic_id = deleted.topic_id or row.topic_id


def _result(row: _Row) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=row.name,
        topic_id=ZERO_UUID if row.topic_id is None else row.topic_id.bytes,
        error_code=row.error,
        error_message=row.message,
    )
