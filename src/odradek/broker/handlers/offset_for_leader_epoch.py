"""OffsetForLeaderEpoch: the end of an epoch, for readers that check whether logs diverged."""

from odradek.broker.authorization import check_allowed, is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_offset_for_leader_epoch"]


@in_slices
def handle_offset_for_leader_epoch(request: Request, context: BrokerContext) -> Steps:
    """Looks up each partition that is led here; one that is named twice has one row."""
    message = body_of(OffsetForLeaderEpochRequest, request)
    wanted: dict[str, dict[int, OffsetForLeaderPartition]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.topic, {}).update((p.partition, p) for p in topic.partitions)
        yield
    topics: list[OffsetForLeaderTopicResult] = []
    for name, partitions in wanted.items():
        rows: list[EpochEndOffset] = []
        for number, partition in partitions.items():
            rows.append(_look_up(TopicPartition(name, number), partition, request, context))
            yield
        topics.append(OffsetForLeaderTopicResult(topic=name, partitions=rows))
        yield
    response = OffsetForLeaderEpochResponse(topics=topics)
    return (yield from reply_in_slices(request, response, context))


def _look_up(
    tp: TopicPartition,
    wanted: OffsetForLeaderPartition,
    request: Request,
    context: BrokerContext,
) -> EpochEndOffset:
    error, epoch, end_offset = ErrorCode.NONE, -1, -1
    try:
        _check_rights(tp.topic, request, context)
        epoch, end_offset = context.replicas.look_ups.end_offset_for_epoch(
            tp,
            current_leader_epoch=wanted.current_leader_epoch,
            leader_epoch=wanted.leader_epoch,
        )
    except ApiError as refused:
        error = refused.code
    except StorageError:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    return EpochEndOffset(
        error_code=error, partition=tp.partition, leader_epoch=epoch, end_offset=end_offset
    )


def _check_rights(topic: str, request: Request, context: BrokerContext) -> None:
    """Checks the right to a topic; brokers have the right to act for the cluster instead."""
    authorizer = context.authorizer
    if not is_allowed(authorizer, request, Operation.CLUSTER_ACTION):
        check_allowed(authorizer, request, Operation.DESCRIBE, ResourceType.TOPIC, topic)
