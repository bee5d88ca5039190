"""OffsetCommit: a group's positions, stored before they are acknowledged."""

import uuid
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.coordinator.group.coordinator import Rejected
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response, SendResponse
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.offset_commit import (
    CommittedPartition,
    encode_offset_commit_response,
    encode_one_commit_answer,
    parse_offset_commit_request,
)
from odradek.security.authorizer import ALLOW_EVERYTHING
from odradek.security.operations import Operation, ResourceType

__all__ = ["find_refused", "handle_offset_commit"]

_READ = Operation.READ
_GROUP = ResourceType.GROUP
_TOPIC = ResourceType.TOPIC
_NONE = ErrorCode.NONE
_TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE

_Topics: TypeAlias = Sequence[tuple[str, list[CommittedPartition]]]
_Refused: TypeAlias = Mapping[tuple[str, int], ErrorCode]


def handle_offset_commit(request: Request, context: BrokerContext) -> Response | None:
    """Answers when the offsets are on every replica in sync."""
    version = request.header.api_version
    view = parse_offset_commit_request(request.payload, request.body_offset, version)
    ids = view.topic_ids
    if ids is not None:
        view = view.with_topics(_named(view.topics, ids, context))
    asked = view.topics
    authorizer = context.authorizer
    sender = request.context
    if authorizer is not ALLOW_EVERYTHING and not authorizer.is_allowed(
        sender.principal, sender.client_address, _READ, _GROUP, view.group_id
    ):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return _answer(request, asked, error, None, context, ids)
    refused = find_refused(request, asked, context, by_id=ids is not None)
    if refused:
        kept = [
            (topic, [row for row in rows if (topic, row[0]) not in refused])
            for topic, rows in asked
        ]
        view = view.with_topics([(topic, rows) for topic, rows in kept if rows])
    if not view.topics:
        return _answer(request, asked, _NONE, refused, context, ids)

    waiting = _Waiting(request, context, asked, refused, ids)
    outcome = context.groups.commit(view, version, waiting.answer)
    return None if outcome is None else waiting.respond(*outcome)


class _Waiting:
    """A commit whose offsets are being appended."""

    __slots__ = ("_asked", "_context", "_ids", "_refused", "_request")

    def __init__(
        self,
        request: Request,
        context: BrokerContext,
        asked: _Topics,
        refused: _Refused | None,
        ids: Sequence[bytes] | None,
    ) -> None:
        self._request = request
        self._context = context
        self._asked = asked
        self._refused = refused
        self._ids = ids

    def answer(self, error: ErrorCode, too_large: Rejected) -> None:
        """Sends the answer."""
        self._request.reply(self.respond(error, too_large))

    def respond(self, error: ErrorCode, too_large: Rejected) -> Response:
        """Makes the answer."""
        errors = self._refused
        if too_large:
            errors = {**dict.fromkeys(too_large, _TOO_LARGE), **(errors or {})}
        return _answer(self._request, self._asked, error, errors, self._context, self._ids)


def _named(
    topics: _Topics, ids: Sequence[bytes], context: BrokerContext
) -> list[tuple[str, list[CommittedPartition]]]:
    """The topics with the name of each id; an empty name for an unknown id."""
    name_of = context.cache.get_topic_name
    return [
        (name_of(uuid.UUID(bytes=topic_id)) or "", rows)
        for topic_id, (_, rows) in zip(ids, topics, strict=True)
    ]


def find_refused(
    request: Request, topics: _Topics, context: BrokerContext, *, by_id: bool
) -> dict[tuple[str, int], ErrorCode] | None:
    """Partitions that do not exist, or that the client has no right to; mostly none."""
    known = context.cache.image.topics
    authorizer = context.authorizer
    if len(topics) == 1 and authorizer is ALLOW_EVERYTHING:
        name, rows = topics[0]
        only = known.get(name)
        if only is not None and len(rows) == 1 and rows[0][0] in only.partitions:
            return None  # As nearly always.
    refused: dict[tuple[str, int], ErrorCode] | None = None
    sender = request.context
    for name, rows in topics:
        topic = known.get(name)
        if by_id and not name:
            refused = refused or {}
            refused.update({(name, row[0]): ErrorCode.UNKNOWN_TOPIC_ID for row in rows})
            continue
        if authorizer is not ALLOW_EVERYTHING and not authorizer.is_allowed(
            sender.principal, sender.client_address, _READ, _TOPIC, name
        ):
            refused = refused or {}
            refused.update({(name, row[0]): ErrorCode.TOPIC_AUTHORIZATION_FAILED for row in rows})
            continue
        for row in rows:
            if topic is None or row[0] not in topic.partitions:
                refused = refused or {}
                refused[name, row[0]] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _answer(
    request: Request,
    topics: _Topics,
    error: ErrorCode,
    others: _Refused | None,
    context: BrokerContext,
    ids: Sequence[bytes] | None,
) -> Response:
    """The answer: `error` for all partitions except those with an error of their own."""
    header = request.header
    version = header.api_version
    throttle_ms = request_throttle_ms(request, context) if context.quotas.limits_traffic else 0
    if not others and len(topics) == 1 and 8 <= version <= 9:
        name, rows = topics[0]
        if len(rows) == 1:  # The usual case.
            one = encode_one_commit_answer(
                header.correlation_id, throttle_ms, name, rows[0][0], error
            )
            return SendResponse(request, [one])
    if others:
        results = [
            (name, [(row[0], others.get((name, row[0]), error)) for row in rows])
            for name, rows in topics
        ]
    else:
        results = [(name, [(row[0], error) for row in rows]) for name, rows in topics]
    body = encode_offset_commit_response(
        version, results, throttle_time_ms=throttle_ms, topic_ids=ids
    )
    start = encode_response_header(header.api_key, version, header.correlation_id)
    return SendResponse(request, [start + body])
