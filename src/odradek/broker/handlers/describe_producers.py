"""DescribeProducers: the idempotent producers of a partition, as its log remembers them."""

from collections.abc import Generator

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.topic_names import find_name_problem
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.security.operations import Operation, ResourceType
from odradek.storage.producers.entry import NO_SEQUENCE, ProducerEntry

__all__ = ["handle_describe_producers"]

_NO_TRANSACTION = -1
_PRODUCERS_PER_STEP = 50


@in_slices
def handle_describe_producers(request: Request, context: BrokerContext) -> Steps:
    """Describes each local replica; one that is named twice has one row."""
    message = body_of(DescribeProducersRequest, request)
    wanted: dict[str, dict[int, None]] = {}
    for topic in message.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    topics: list[TopicResponse] = []
    for name, partitions in wanted.items():
        rows: list[PartitionResponse] = []
        for partition in partitions:
            tp = TopicPartition(name, partition)
            rows.append((yield from _partition(tp, request, context)))
            yield
        topics.append(TopicResponse(name=name, partitions=rows))
        yield
    response = DescribeProducersResponse(topics=topics)
    return (yield from reply_in_slices(request, response, context))


def _partition(
    tp: TopicPartition, request: Request, context: BrokerContext
) -> Generator[None, None, PartitionResponse]:
    try:
        check_allowed(context.authorizer, request, Operation.READ, ResourceType.TOPIC, tp.topic)
        producers = _find_producers(tp, context)
    except ApiError as error:
        return PartitionResponse(
            partition_index=tp.partition, error_code=error.code, error_message=str(error)
        )
    states: list[ProducerState] = []
    for count, entry in enumerate(producers, 1):
        states.append(_state(entry))
        if count % _PRODUCERS_PER_STEP == 0:
            yield
    return PartitionResponse(
        partition_index=tp.partition, error_code=ErrorCode.NONE, active_producers=states
    )


def _find_producers(tp: TopicPartition, context: BrokerContext) -> tuple[ProducerEntry, ...]:
    """The producers of now, in no order: a partition can have a hundred thousand."""
    problem = find_name_problem(tp.topic)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    log = context.replicas.find_partition(tp, expect_leader=True).log
    if log is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no log here yet")
    return tuple(log.producer_state.producers.values())


def _state(entry: ProducerEntry) -> ProducerState:
    first_offset = entry.current_transaction_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=_NO_TRANSACTION if first_offset is None else first_offset,
    )
