"""OffsetDelete: removes a group's committed offsets of some partitions."""

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_offset_delete"]


def handle_offset_delete(request: Request, context: BrokerContext) -> None:
    """Answers when the removal is durable."""
    version = request.header.api_version
    message, _ = parse_message(OffsetDeleteRequest, request.payload, version, request.body_offset)
    refused: dict[tuple[str, int], ErrorCode] = {}
    wanted: list[tuple[str, int]] = []
    asked = _asked_for(message)
    for topic, partitions in asked.items():
        may_read = is_allowed(
            context.authorizer, request, Operation.READ, ResourceType.TOPIC, topic
        )
        for number in partitions:
            partition = (topic, number)
            if not may_read:
                refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not context.cache.contains(TopicPartition(*partition)):
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(partition)

    def answer(error: ErrorCode, results: dict[tuple[str, int], ErrorCode]) -> None:
        if error is not ErrorCode.NONE:
            response = OffsetDeleteResponse(error_code=error, topics=[])
            request.reply(reply_throttled(request, response, context))
            return
        errors = {**results, **refused}
        topics = [
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=number, error_code=errors[topic, number]
                    )
                    for number in partitions
                ],
            )
            for topic, partitions in asked.items()
        ]
        response = OffsetDeleteResponse(error_code=error, topics=topics)
        request.reply(reply_throttled(request, response, context))

    if not is_allowed(
        context.authorizer, request, Operation.DELETE, ResourceType.GROUP, message.group_id
    ):
        answer(ErrorCode.GROUP_AUTHORIZATION_FAILED, {})
        return
    context.groups.delete_offsets(message.group_id, wanted, answer)


def _asked_for(message: OffsetDeleteRequest) -> dict[str, dict[int, None]]:
    """The partitions of each topic; one that is named twice is answered once."""
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        asked.setdefault(topic.name, {}).update(
            dict.fromkeys(row.partition_index for row in topic.partitions)
        )
    return asked
