"""OffsetCommit of many partitions: decided, stored and answered in portions.

Each portion is a commit of its own: the group is checked again, and its offsets are durable
together. If the group changes in between, the partitions of later portions get its error.
"""

import uuid
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.handlers.offset_commit import find_refused
from odradek.broker.slices import (
    Gathering,
    Steps,
    StepsOrNone,
    body_of,
    in_slices,
    portions,
    reply_in_slices,
    start_in_slices,
)
from odradek.coordinator.group.coordinator import Rejected
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.hot.offset_commit import CommittedPartition, OffsetCommitView
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_many_commits"]

_FIRST_ID_VERSION: Final = 10
# Partitions of a portion: a few microseconds each.
_COMMITTED_AT_ONCE: Final = 100


class _Row(NamedTuple):
    """A partition of the request."""

    place: int  # In the answer.
    topic: str  # Empty for an unknown id.
    committed: CommittedPartition


# Notes the outcome of a portion: the refused partitions, the error of all others, and those whose
# metadata is too large.
_Settle: TypeAlias = Callable[
    [list[_Row], Mapping[tuple[str, int], ErrorCode], ErrorCode, Rejected], None
]


@in_slices
def handle_many_commits(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when all offsets are on every replica in sync."""
    message = body_of(OffsetCommitRequest, request)
    rows = yield from _rows(message, request.header.api_version, context)
    errors = [ErrorCode.NONE] * len(rows)
    if not is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * len(rows)
        return (yield from _answer(request, message, errors, context))
    gathering = Gathering(
        lambda: start_in_slices(request, _answer(request, message, errors, context), context)
    )

    def settle(
        portion: list[_Row],
        refused: Mapping[tuple[str, int], ErrorCode],
        error: ErrorCode,
        too_large: Rejected,
    ) -> None:
        for place, topic, committed in portion:
            key = (topic, committed[0])
            code = refused.get(key)
            if code is None:
                is_too_large = too_large is not None and key in too_large
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else error
            errors[place] = code
        gathering.end()

    for portion in portions(rows, _COMMITTED_AT_ONCE):
        gathering.begin()
        _commit(message, portion, settle, request, context)
        yield
    gathering.end()
    return None


def _rows(
    message: OffsetCommitRequest, version: int, context: BrokerContext
) -> Generator[None, None, list[_Row]]:
    rows: list[_Row] = []
    for topic in message.topics:
        name = topic.name
        if version >= _FIRST_ID_VERSION:
            name = context.cache.get_topic_name(uuid.UUID(bytes=topic.topic_id)) or ""
        for row in topic.partitions:
            committed = (
                row.partition_index,
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata,
            )
            rows.append(_Row(len(rows), name, committed))
            yield
        yield
    return rows


def _commit(
    message: OffsetCommitRequest,
    portion: list[_Row],
    settle: _Settle,
    request: Request,
    context: BrokerContext,
) -> None:
    version = request.header.api_version
    topics: dict[str, list[CommittedPartition]] = {}
    for row in portion:
        topics.setdefault(row.topic, []).append(row.committed)
    refused = (
        find_refused(request, list(topics.items()), context, by_id=version >= _FIRST_ID_VERSION)
        or {}
    )
    kept = {
        topic: [row for row in rows if (topic, row[0]) not in refused]
        for topic, rows in topics.items()
    }
    wanted = [(topic, rows) for topic, rows in kept.items() if rows]
    if not wanted:
        settle(portion, refused, ErrorCode.NONE, None)
        return
    view = OffsetCommitView(
        message.group_id,
        message.generation_id_or_member_epoch,
        message.member_id,
        message.group_instance_id,
        message.retention_time_ms,
        wanted,
    )
    outcome = context.groups.commit(view, version, partial(settle, portion, refused))
    if outcome is not None:
        settle(portion, refused, *outcome)


def _answer(
    request: Request, message: OffsetCommitRequest, errors: list[ErrorCode], context: BrokerContext
) -> Steps:
    remaining = iter(errors)
    topics = []
    for topic in message.topics:
        rows = []
        for row in topic.partitions:
            rows.append(
                OffsetCommitResponsePartition(
                    partition_index=row.partition_index, error_code=next(remaining)
                )
            )
            yield
        topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
        )
        yield
    return (yield from reply_in_slices(request, OffsetCommitResponse(topics=topics), context))
