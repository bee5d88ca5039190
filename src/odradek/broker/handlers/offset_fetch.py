"""OffsetFetch: no group has committed anything, as clients with manual assignment expect."""

from typing import Final

from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
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

__all__ = ["handle_offset_fetch"]

_FIRST_GROUPS_VERSION: Final = 8
_NOTHING_COMMITTED: Final = -1


def handle_offset_fetch(request: Request, context: BrokerContext) -> Response:
    """Answers -1 without an error for every partition that is asked for."""
    version = request.header.api_version
    message, _ = parse_message(OffsetFetchRequest, request.payload, version, request.body_offset)
    if version >= _FIRST_GROUPS_VERSION:
        response = OffsetFetchResponse(groups=[_group(group) for group in message.groups])
    else:
        response = OffsetFetchResponse(topics=[_topic(topic) for topic in message.topics or ()])
    return reply_throttled(request, response, context)


def _topic(topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition,
                committed_offset=_NOTHING_COMMITTED,
                metadata="",
                error_code=ErrorCode.NONE,
            )
            for partition in topic.partition_indexes
        ],
    )


def _group(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[_topic_of_group(topic) for topic in group.topics or ()],
        error_code=ErrorCode.NONE,
    )


def _topic_of_group(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=_NOTHING_COMMITTED,
                metadata="",
                error_code=ErrorCode.NONE,
            )
            for partition in topic.partition_indexes
        ],
    )
