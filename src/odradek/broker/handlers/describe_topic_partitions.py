"""DescribeTopicPartitions: topics page by page, sorted by name.

A page ends after a number of partitions, wherever that is, and names the first one it left out; the
next request begins there. With a limit of 2, topics a (3 partitions) and b (1) are told as a-0 and
a-1, cursor (a, 2); then a-2 and b-0, no cursor. A topic in error takes no place of the limit.
"""

from typing import Final, NamedTuple

from odradek.broker.authorization import Operation, ResourceType, topic_operations
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import PartitionMetadata, TopicMetadata
from odradek.metadata.topic_names import find_name_problem
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace

__all__ = ["handle_describe_topic_partitions"]

_FIRST_PARTITION: Final = 0


class _Start(NamedTuple):
    """Where a page begins."""

    topic: str
    partition: int


def handle_describe_topic_partitions(request: Request, context: BrokerContext) -> Response:
    """Tells one page of one image, the one that is published now."""
    version = request.header.api_version
    message, _ = parse_message(
        DescribeTopicPartitionsRequest, request.payload, version, request.body_offset
    )
    asked = sorted({topic.name for topic in message.topics})
    try:
        start = _start(message, asked)
    except ApiError as error:
        rows = [_error_row(name, error.code, context) for name in asked]
        return reply_throttled(request, DescribeTopicPartitionsResponse(topics=rows), context)
    names = asked or sorted(context.cache.image.topics)
    limit = min(max(message.response_partition_limit, 1), context.max_described_partitions)
    names = [name for name in names if name >= start.topic]
    known = [name for name in names if _may_describe(name, request, context)]
    response = _page(known, start, limit, request, context)
    if asked:
        denied = sorted(set(names) - set(known))
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows = [_error_row(name, code, context) for name in denied]
        response = replace(response, topics=[*rows, *response.topics])
    return reply_throttled(request, response, context)


def _may_describe(name: str, request: Request, context: BrokerContext) -> bool:
    return context.authorizer.is_allowed(request, Operation.DESCRIBE, ResourceType.TOPIC, name)


def _start(message: DescribeTopicPartitionsRequest, asked: list[str]) -> _Start:
    cursor = message.cursor
    if cursor is None:
        return _Start("", _FIRST_PARTITION)
    if cursor.partition_index < _FIRST_PARTITION:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    if asked and cursor.topic_name not in asked:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the cursor's topic is not among those asked for")
    return _Start(cursor.topic_name, cursor.partition_index)


def _page(
    names: list[str], start: _Start, limit: int, request: Request, context: BrokerContext
) -> DescribeTopicPartitionsResponse:
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    found = {
        topic.name: topic
        for topic in context.cache.get_topic_metadata(
            names, request.context.listener, error_unavailable_listeners=True
        )
    }
    room = limit
    for name in names:
        topic = found.get(name)
        if topic is None:
            rows.append(_error_row(name, _why_missing(name), context))
            continue
        first = start.partition if name == start.topic else _FIRST_PARTITION
        partitions = [p for p in topic.partitions if p.partition >= first]
        if not room and partitions:
            cursor = Cursor(topic_name=name, partition_index=partitions[0].partition)
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)
        rows.append(_row(topic, partitions[:room], request, context))
        if len(partitions) > room:
            cursor = Cursor(topic_name=name, partition_index=partitions[room].partition)
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)
        room -= len(partitions)
    return DescribeTopicPartitionsResponse(topics=rows)


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
        topic_authorized_operations=topic_operations(context.authorizer, request, topic.name),
    )


def _partition(partition: PartitionMetadata) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        # Nobody is kept eligible outside the ISR. Null would say the same and the schema allows it,
        # but Java's admin (3.9.1, 4.3.1) dies of a NullPointerException on it.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=partition.offline_replicas,
    )
