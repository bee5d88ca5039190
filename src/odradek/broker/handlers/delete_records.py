"""DeleteRecords: raises log starts; answered when all live replicas have raised theirs."""

from collections.abc import Mapping

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.replication import DeleteRecordsResult
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_delete_records"]

_DENIED = DeleteRecordsResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def handle_delete_records(request: Request, context: BrokerContext) -> Response | None:
    """Raises the log start of each partition that is led here."""
    message, _ = parse_message(
        DeleteRecordsRequest, request.payload, request.header.api_version, request.body_offset
    )
    allowed = {
        topic.name
        for topic in message.topics
        if is_allowed(context.authorizer, request, Operation.DELETE, ResourceType.TOPIC, topic.name)
    }
    offsets = {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in message.topics
        if topic.name in allowed
        for partition in topic.partitions
    }

    def respond(results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
        # A partition that is named twice is answered once: its last offset counts, as in Kafka.
        rows: dict[str, dict[int, DeleteRecordsPartitionResult]] = {}
        for topic in message.topics:
            numbers = [partition.partition_index for partition in topic.partitions]
            rows.setdefault(topic.name, {}).update(
                (number, _row(number, results.get(TopicPartition(topic.name, number), _DENIED)))
                for number in numbers
            )
        topics = [
            DeleteRecordsTopicResult(name=name, partitions=list(partitions.values()))
            for name, partitions in rows.items()
        ]
        request.reply(reply_throttled(request, DeleteRecordsResponse(topics=topics), context))

    context.replicas.look_ups.delete_records(
        timeout_ms=message.timeout_ms, offsets=offsets, respond=respond
    )
    return None


def _row(partition: int, result: DeleteRecordsResult) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=result.low_watermark, error_code=result.error
    )
