"""OffsetFetch: what groups have committed; from version 8 on, several groups at once."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.broker.authorization import Operation, ResourceType
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.coordinator.group.offsets import NO_OFFSET, fetch_all, fetch_offset
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

__all__ = ["handle_offset_fetch"]

_FIRST_GROUP_ERROR_VERSION: Final = 2
_FIRST_GROUPS_VERSION: Final = 8
_NONE = ErrorCode.NONE

# partition, offset, leader epoch, metadata, error
_Row = tuple[int, int, int, str, int]


class _Fetched(NamedTuple):
    """What a group has committed, or why that is not known."""

    error: ErrorCode
    topics: Sequence[tuple[str, list[_Row]]]


def handle_offset_fetch(request: Request, context: BrokerContext) -> Response:
    """Answers from memory; -1 without an error for what was never committed."""
    version = request.header.api_version
    message, _ = parse_message(OffsetFetchRequest, request.payload, version, request.body_offset)
    is_stable = message.require_stable
    if version >= _FIRST_GROUPS_VERSION:
        groups = []
        for group in message.groups:
            found = _fetch(request, group.group_id, group.topics, context, is_stable=is_stable)
            groups.append(_group_row(group.group_id, found))
        return reply_throttled(request, OffsetFetchResponse(groups=groups), context)
    found = _fetch(request, message.group_id, message.topics, context, is_stable=is_stable)
    topics = found.topics
    if found.error is not _NONE and version < _FIRST_GROUP_ERROR_VERSION:
        # There is no other place to tell.
        failed = (-1, -1, "", found.error)
        topics = [
            (topic.name, [(partition, *failed) for partition in topic.partition_indexes])
            for topic in message.topics or ()
        ]
    response = OffsetFetchResponse(
        error_code=found.error,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=error,
                    )
                    for partition, offset, leader_epoch, metadata, error in rows
                ],
            )
            for name, rows in topics
        ],
    )
    return reply_throttled(request, response, context)


def _fetch(
    request: Request,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    context: BrokerContext,
    *,
    is_stable: bool,
) -> _Fetched:
    """The offsets of one group: of the topics asked for, or of all that the client may see."""
    allowed = context.authorizer.is_allowed
    if not allowed(request, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _Fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    error, group = context.groups.service.find_for_fetch(group_id)
    if error is not _NONE:
        return _Fetched(error, ())
    if topics is None:
        everything = fetch_all(group, is_stable) if group is not None else []
        visible = [
            (name, rows)
            for name, rows in everything
            if allowed(request, Operation.DESCRIBE, ResourceType.TOPIC, name)
        ]
        return _Fetched(_NONE, visible)
    forbidden = (-1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found: list[tuple[str, list[_Row]]] = []
    for topic in topics:
        name = topic.name
        if not allowed(request, Operation.DESCRIBE, ResourceType.TOPIC, name):
            rows: list[_Row] = [(number, *forbidden) for number in topic.partition_indexes]
        elif group is None:
            rows = [(number, *NO_OFFSET) for number in topic.partition_indexes]
        else:
            rows = [
                (number, *fetch_offset(group, name, number, is_stable))
                for number in topic.partition_indexes
            ]
        found.append((name, rows))
    return _Fetched(_NONE, found)


def _group_row(group_id: str, found: _Fetched) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group_id,
        error_code=found.error,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        metadata=metadata,
                        error_code=error,
                    )
                    for partition, offset, leader_epoch, metadata, error in rows
                ],
            )
            for name, rows in found.topics
        ],
    )
