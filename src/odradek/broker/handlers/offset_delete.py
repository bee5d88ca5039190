"""OffsetDelete: removes a group's committed offsets of some partitions."""

from collections.abc import Generator, Iterable, Mapping
from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
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
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_offset_delete"]

# Offsets whose removal is written at once: the time of a record each is a few microseconds.
_DELETED_AT_ONCE: Final = 200


@in_slices
def handle_offset_delete(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when the removals are durable, as many at a time as a turn of the loop allows."""
    message = body_of(OffsetDeleteRequest, request)
    errors: dict[tuple[str, int], ErrorCode] = {}
    wanted: list[tuple[str, int]] = []
    asked = yield from _asked_for(message)
    for topic, partitions in asked.items():
        may_read = is_allowed(
            context.authorizer, request, Operation.READ, ResourceType.TOPIC, topic
        )
        for number in partitions:
            partition = (topic, number)
            if not may_read:
                errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not context.cache.contains(TopicPartition(*partition)):
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(partition)
            yield
    if not is_allowed(
        context.authorizer, request, Operation.DELETE, ResourceType.GROUP, message.group_id
    ):
        denied = OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
        return reply_throttled(request, denied, context)
    failure = ErrorCode.NONE  # Of the group.

    def answer() -> None:
        start_in_slices(request, _answer(request, failure, asked, errors, context), context)

    gathering = Gathering(answer)

    def on_deleted(error: ErrorCode, results: dict[tuple[str, int], ErrorCode]) -> None:
        nonlocal failure
        failure = failure or error
        errors.update(results)
        gathering.end()

    for portion in portions(wanted, _DELETED_AT_ONCE):
        gathering.begin()
        context.groups.delete_offsets(message.group_id, portion, on_deleted)
        yield
    if not wanted:  # The group is looked up nevertheless.
        gathering.begin()
        context.groups.delete_offsets(message.group_id, [], on_deleted)
    gathering.end()
    return None


def _answer(
    request: Request,
    error: ErrorCode,
    asked: Mapping[str, Iterable[int]],
    errors: Mapping[tuple[str, int], ErrorCode],
    context: BrokerContext,
) -> Steps:
    topics: list[OffsetDeleteResponseTopic] = []
    if error is ErrorCode.NONE:
        for topic, partitions in asked.items():
            rows = []
            for number in partitions:
                code = errors[topic, number]
                rows.append(OffsetDeleteResponsePartition(partition_index=number, error_code=code))
                yield
            topics.append(OffsetDeleteResponseTopic(name=topic, partitions=rows))
            yield
    response = OffsetDeleteResponse(error_code=error, topics=topics)
    return (yield from reply_in_slices(request, response, context))


def _asked_for(message: OffsetDeleteRequest) -> Generator[None, None, dict[str, dict[int, None]]]:
    """The partitions of each topic; one that is named twice is answered once."""
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        partitions = asked.setdefault(topic.name, {})
        for row in topic.partitions:
            partitions[row.partition_index] = None
            yield
        yield
    return asked
