"""DeleteRecords: raises log starts; answered when all live replicas have raised theirs."""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
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
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.replication import DeleteRecordsResult
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_delete_records"]

# Partitions whose log starts are raised in one step.
_RAISED_AT_ONCE: Final = 20
_DENIED = DeleteRecordsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@in_slices
def handle_delete_records(request: Request, context: BrokerContext) -> StepsOrNone:
    """Raises the log start of each partition that is led here."""
    message = body_of(DeleteRecordsRequest, request)
    offsets: dict[TopicPartition, int] = {}
    # A partition that is named twice is answered once: its last offset counts, as in Kafka.
    asked: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        partitions = asked.setdefault(topic.name, {})
        may_delete = is_allowed(
            context.authorizer, request, Operation.DELETE, ResourceType.TOPIC, topic.name
        )
        for row in topic.partitions:
            partitions[row.partition_index] = None
            if may_delete:
                offsets[TopicPartition(topic.name, row.partition_index)] = row.offset
            yield
        yield
    results: dict[TopicPartition, DeleteRecordsResult] = {}

    gathering = Gathering(
        lambda: start_in_slices(request, _answer(request, asked, results, context), context)
    )

    def respond(some: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        results.update(some)
        gathering.end()

    for portion in portions(offsets.items(), _RAISED_AT_ONCE):
        gathering.begin()
        context.replicas.look_ups.delete_records(
            timeout_ms=message.timeout_ms, offsets=dict(portion), respond=respond
        )
        yield
    gathering.end()
    return None


def _answer(
    request: Request,
    asked: Mapping[str, Iterable[int]],
    results: Mapping[TopicPartition, DeleteRecordsResult],
    context: BrokerContext,
) -> Steps:
    topics = []
    for name, partitions in asked.items():
        rows = []
        for number in partitions:
            rows.append(_row(number, results.get(TopicPartition(name, number), _DENIED)))
            yield
        topics.append(DeleteRecordsTopicResult(name=name, partitions=rows))
        yield
    return (yield from reply_in_slices(request, DeleteRecordsResponse(topics=topics), context))


def _row(partition: int, result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=result.low_watermark, error_code=result.error
    )
