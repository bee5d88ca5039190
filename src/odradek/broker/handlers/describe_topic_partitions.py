"""DescribeTopicPartitions: topics page by page, sorted by name.

A page ends after a number of partitions, also within a topic, and names the next one as its cursor;
the next request begins there. With a limit of 2, topics a (3 partitions) and b (1) give a page of
a-0 and a-1, cursor (a, 2); then one of a-2 and b-0, no cursor. A topic with an error does not count
towards the limit.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

from odradek.broker.authorization import allowed_operations, is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import PartitionMetadata, TopicMetadata
from odradek.metadata.image import ClusterImage
from odradek.metadata.topic_names import find_name_problem
from odradek.network.request import Request
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_describe_topic_partitions"]

_FIRST_PARTITION: Final = 0


class _Start(NamedTuple):
    """The start of a page."""

    topic: str
    partition: int


@in_slices
def handle_describe_topic_partitions(request: Request, context: BrokerContext) -> Steps:
    """Answers one page of the image that is published when the request arrives.

    Topics are read one after another until the page is full, beginning at the cursor: topics before
    or after a page cost it nothing.
    """
    message = body_of(DescribeTopicPartitionsRequest, request)
    image = context.cache.image
    asked = sorted({topic.name for topic in message.topics})
    try:
        start = _start(message, asked)
    except ApiError as error:
        rows = [_error_row(name, error.code, context) for name in asked]
        response = DescribeTopicPartitionsResponse(topics=rows)
        return (yield from reply_in_slices(request, response, context))
    names = asked or context.cache.get_sorted_topics(image)
    limit = min(max(message.response_partition_limit, 1), context.max_described_partitions)
    page = _Page(start, limit)
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for index in range(bisect_left(names, start.topic), len(names)):
        name = names[index]
        if page.next_cursor is None and _may_describe(name, request, context):
            _add_topic(page, name, image, request, context)
        elif asked and not _may_describe(name, request, context):
            denied.append(_error_row(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, context))
        if page.next_cursor is not None and not asked:
            break
        yield
    response = DescribeTopicPartitionsResponse(
        topics=[*denied, *page.rows], next_cursor=page.next_cursor
    )
    return (yield from reply_in_slices(request, response, context))


class _Page:
    """The topics of one answer."""

    __slots__ = ("next_cursor", "room", "rows", "start")

    def __init__(self, start: _Start, limit: int) -> None:
        self.start = start
        self.room = limit  # Partitions that may still be added.
        self.rows: list[DescribeTopicPartitionsResponseTopic] = []
        self.next_cursor: Cursor | None = None  # Set when the page is full and more follows.


def _add_topic(
    page: _Page, name: str, image: ClusterImage, request: Request, context: BrokerContext
) -> None:
    """Adds a topic, as much of it as there is room for."""
    found = context.cache.get_topic_metadata(
        [name], request.context.listener, image=image, error_unavailable_listeners=True
    )
    if not found:
        page.rows.append(_error_row(name, _why_missing(name), context))
        return
    first = page.start.partition if name == page.start.topic else _FIRST_PARTITION
    partitions = [p for p in found[0].partitions if p.partition >= first]
    room = page.room
    if len(partitions) > room:
        page.next_cursor = Cursor(topic_name=name, partition_index=partitions[room].partition)
        if not room:
            return
    page.rows.append(_row(found[0], partitions[:room], request, context))
    page.room -= min(len(partitions), room)


def _may_describe(name: str, request: Request, context: BrokerContext) -> bool:
    return is_allowed(context.authorizer, request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def _start(message: DescribeTopicPartitionsRequest, asked: list[str]) -> _Start:
    cursor = message.cursor
    if cursor is None:
        return _Start("", _FIRST_PARTITION)
    if cursor.partition_index < _FIRST_PARTITION:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    if asked and cursor.topic_name not in asked:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's topic is not among those asked for")
    return _Start(cursor.topic_name, cursor.partition_index)


def _why_missing(name: str) -> ErrorCode:
    if find_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error_row(
    name: str, error: ErrorCode, context: BrokerContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, is_internal=name in context.internal_topics
    )


def _row(
    topic: TopicMetadata,
    partitions: list[PartitionMetadata],
    request: Request,
    context: BrokerContext,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=ZERO_UUID if topic.id is None else topic.id.bytes,
        is_internal=topic.name in context.internal_topics,
        partitions=[_partition(partition) for partition in partitions],
        topic_authorized_operations=allowed_operations(
            context.authorizer, request, ResourceType.TOPIC, topic.name
        ),
    )


def _partition(partition: PartitionMetadata) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        # No replica outside the ISR is eligible. The schema also allows null for that, but Java's
        # admin client (3.9.1, 4.3.1) fails on it with a NullPointerException.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=partition.offline_replicas,
    )
