"""OffsetFetch: the committed offsets of a group; from version 8 on, of several groups."""

import uuid
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.coordinator.group.offsets import NO_OFFSET, fetch_all, fetch_offset
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_offset_fetch"]

_FIRST_GROUP_ERROR_VERSION: Final = 2
_FIRST_GROUPS_VERSION: Final = 8
_FIRST_ID_VERSION: Final = 10
_NONE = ErrorCode.NONE
_ROWS_PER_STEP: Final = 100  # Between two readings of the clock.

# partition, offset, leader epoch, metadata, error
_Row = tuple[int, int, int, str, int]


class _Fetched(NamedTuple):
    """The committed offsets of a group, or an error."""

    error: ErrorCode
    topics: Sequence[tuple[str, list[_Row]]]


@in_slices
def handle_offset_fetch(request: Request, context: BrokerContext) -> Steps:
    """Answers from memory; -1 without an error for partitions without a commit.

    A group, topic or partition that is named twice is answered once.
    """
    version = request.header.api_version
    message = body_of(OffsetFetchRequest, request)
    is_stable = message.require_stable
    if version >= _FIRST_GROUPS_VERSION:
        groups: list[OffsetFetchResponseGroup] = []
        for group in (yield from _merge_groups(message.groups)):
            if version >= _FIRST_ID_VERSION:
                row = yield from _fetch_by_id(request, group, context, is_stable=is_stable)
            else:
                found = yield from _fetch(
                    request, group.group_id, group.topics, context, is_stable=is_stable
                )
                row = yield from _group_row(group.group_id, found)
            groups.append(row)
            yield
        response = OffsetFetchResponse(groups=groups)
        return (yield from reply_in_slices(request, response, context))
    asked = None
    if message.topics is not None:
        asked = yield from _merge_topics(message.topics)
    found = yield from _fetch(request, message.group_id, asked, context, is_stable=is_stable)
    topics = found.topics
    if found.error is not _NONE and version < _FIRST_GROUP_ERROR_VERSION:
        # These versions have no other field for the error.
        failed = (-1, -1, "", found.error)
        topics = [
            (topic.name, [(partition, *failed) for partition in topic.partition_indexes])
            for topic in asked or ()
        ]
    told: list[OffsetFetchResponseTopic] = []
    for name, rows in topics:
        partitions: list[OffsetFetchResponsePartition] = []
        for partition, offset, leader_epoch, metadata, error in rows:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    metadata=metadata,
                    error_code=error,
                )
            )
            yield
        told.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
        yield
    response = OffsetFetchResponse(error_code=found.error, topics=told)
    return (yield from reply_in_slices(request, response, context))


_Topic = TypeVar("_Topic", OffsetFetchRequestTopic, OffsetFetchRequestTopics)


def _merge_groups(
    groups: Iterable[OffsetFetchRequestGroup],
) -> Generator[None, None, list[OffsetFetchRequestGroup]]:
    """Every group once, with all its requested topics; null means all topics."""
    same: dict[str, list[OffsetFetchRequestGroup]] = {}
    for group in groups:
        same.setdefault(group.group_id, []).append(group)
        yield
    merged = []
    for copies in same.values():
        topics = None
        if all(copy.topics is not None for copy in copies):
            topics = yield from _merge_topics(
                topic for copy in copies for topic in copy.topics or ()
            )
        merged.append(replace(copies[0], topics=topics))
        yield
    return merged


def _merge_topics(topics: Iterable[_Topic]) -> Generator[None, None, list[_Topic]]:
    """Every topic once, with every partition once."""
    same: dict[tuple[str, bytes], list[_Topic]] = {}
    for topic in topics:
        topic_id = topic.topic_id if isinstance(topic, OffsetFetchRequestTopics) else ZERO_UUID
        same.setdefault((topic.name, topic_id), []).append(topic)
        yield
    merged = []
    for copies in same.values():
        numbers = dict.fromkeys(number for copy in copies for number in copy.partition_indexes)
        merged.append(replace(copies[0], partition_indexes=list(numbers)))
        yield
    return merged


def _fetch(
    request: Request,
    group_id: str,
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    context: BrokerContext,
    *,
    is_stable: bool,
) -> Generator[None, None, _Fetched]:
    """The offsets of one group: of the requested topics, or of all that the client may see."""
    may_describe = partial(is_allowed, context.authorizer, request, Operation.DESCRIBE)
    if not may_describe(ResourceType.GROUP, group_id):
        return _Fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    error, offsets = context.groups.find_offsets(group_id)
    if error is not _NONE:
        return _Fetched(error, ())
    if topics is None:
        everything = fetch_all(offsets, is_stable) if offsets is not None else []
        visible = [
            (name, rows) for name, rows in everything if may_describe(ResourceType.TOPIC, name)
        ]
        return _Fetched(_NONE, visible)
    forbidden = (-1, -1, "", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found: list[tuple[str, list[_Row]]] = []
    for topic in topics:
        name = topic.name
        if not may_describe(ResourceType.TOPIC, name):
            rows: list[_Row] = [(number, *forbidden) for number in topic.partition_indexes]
        elif offsets is None:
            rows = [(number, *NO_OFFSET) for number in topic.partition_indexes]
        else:
            rows = []
            for number in topic.partition_indexes:
                if len(rows) % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
                    yield
                    if not context.groups.is_serving(offsets):
                        # Deleted, or coordinated elsewhere: the client tries again; an empty
                        # answer would mean that the group has no commits.
                        return _Fetched(ErrorCode.NOT_COORDINATOR, ())
                rows.append((number, *fetch_offset(offsets, name, number, is_stable)))
        found.append((name, rows))
        yield
    return _Fetched(_NONE, found)


def _fetch_by_id(
    request: Request, group: OffsetFetchRequestGroup, context: BrokerContext, *, is_stable: bool
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """The offsets of one group whose client names topics by their ids."""
    name_of = context.cache.get_topic_name
    unknown = (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
    if group.topics is None:
        found = yield from _fetch(request, group.group_id, None, context, is_stable=is_stable)
        ids = {name: topic.id for name, topic in context.cache.image.topics.items()}
        # A deleted topic has no id to answer with.
        rows = [(known, rows) for name, rows in found.topics if (known := ids.get(name))]
        topics = []
        for known, partitions in rows:
            topics.append((yield from _topic_row("", partitions, known.bytes)))
        return OffsetFetchResponseGroup(
            group_id=group.group_id, error_code=found.error, topics=topics
        )
    names: list[str | None] = []
    named: list[OffsetFetchRequestTopics] = []
    for topic in group.topics:
        name = name_of(uuid.UUID(bytes=topic.topic_id))
        names.append(name)
        if name is not None:
            numbers = topic.partition_indexes
            named.append(OffsetFetchRequestTopics(name=name, partition_indexes=numbers))
        yield
    found = yield from _fetch(request, group.group_id, named, context, is_stable=is_stable)
    if found.error is not _NONE:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=found.error)
    known_rows = iter(found.topics)
    topics = []
    for name, topic in zip(names, group.topics, strict=True):
        if name is None:
            partitions = [(number, *unknown) for number in topic.partition_indexes]
        else:
            _, partitions = next(known_rows)
        topics.append((yield from _topic_row("", partitions, topic.topic_id)))
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=_NONE, topics=topics)


def _topic_row(
    name: str, rows: Iterable[_Row], topic_id: bytes = ZERO_UUID
) -> Generator[None, None, OffsetFetchResponseTopics]:
    partitions: list[OffsetFetchResponsePartitions] = []
    for partition, offset, leader_epoch, metadata, error in rows:
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                metadata=metadata,
                error_code=error,
            )
        )
        yield
    yield
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)


def _group_row(group_id: str, found: _Fetched) -> Generator[None, None, OffsetFetchResponseGroup]:
    topics = []
    for name, rows in found.topics:
        topics.append((yield from _topic_row(name, rows)))
    return OffsetFetchResponseGroup(group_id=group_id, error_code=found.error, topics=topics)
