"""Producers that a partition remembers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.leaders import LeaderCall, api_error, ask_leaders, by_topic
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from odradek.protocol.schema import Message

__all__ = ["ProducerState", "describe_producers"]


class ProducerState(NamedTuple):
    """An idempotent producer as the leader of a partition knows it; -1 for unknown values."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int

    @property
    def is_in_transaction(self) -> bool:
        """Whether it has a transaction open in this partition."""
        return self.current_transaction_start_offset >= 0


async def describe_producers(
    client: Client,
    partitions: Iterable[TopicPartition],
    *,
    broker: int | None = None,
    deadline: Deadline,
) -> dict[TopicPartition, list[ProducerState] | ApiError]:
    """The producers of each partition, by id, as its leader knows them, or its replica elsewhere.

    Args:
        broker: A broker to ask instead of the leaders.
    """
    wanted = dict.fromkeys(partitions)
    if broker is not None:
        return await _ask_replicas(client, broker, wanted, deadline)
    call: LeaderCall[None, list[ProducerState]] = LeaderCall(
        api_key=ApiKey.DESCRIBE_PRODUCERS,
        answer_type=DescribeProducersResponse,
        build=_build,
        read=_read,
    )
    return await ask_leaders(client, call, wanted, deadline)


async def _ask_replicas(
    client: Client, broker: int, wanted: Mapping[TopicPartition, None], deadline: Deadline
) -> dict[TopicPartition, list[ProducerState] | ApiError]:
    try:
        response = await client.ask_broker(
            broker,
            ApiKey.DESCRIBE_PRODUCERS,
            _build(wanted, client.cluster),
            DescribeProducersResponse,
            deadline,
        )
    except ApiError as error:
        return dict.fromkeys(wanted, error)
    found = dict(_read(response, client.cluster))
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {tp: found.get(tp, missing) for tp in wanted}


def _build(work: Mapping[TopicPartition, None], _cluster: Cluster) -> Message:
    return DescribeProducersRequest(
        topics=[
            TopicRequest(name=name, partition_indexes=list(partitions))
            for name, partitions in by_topic(work).items()
        ]
    )


def _read(
    response: Message, _cluster: Cluster
) -> Iterator[tuple[TopicPartition, list[ProducerState] | ApiError]]:
    assert isinstance(response, DescribeProducersResponse)
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code != ErrorCode.NONE:
                yield tp, api_error(answer.error_code, answer.error_message, tp)
                continue
            yield (
                tp,
                sorted(
                    ProducerState(
                        one.producer_id,
                        one.producer_epoch,
                        one.last_sequence,
                        one.last_timestamp,
                        one.coordinator_epoch,
                        one.current_txn_start_offset,
                    )
                    for one in answer.active_producers
                ),
            )
