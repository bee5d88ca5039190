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


async def describe_producers(
    client: Client, partitions: Iterable[TopicPartition], *, deadline: Deadline
) -> dict[TopicPartition, list[ProducerState] | ApiError]:
    """The producers of each partition, by id."""
    call: LeaderCall[None, list[ProducerState]] = LeaderCall(
        api_key=ApiKey.DESCRIBE_PRODUCERS,
        answer_type=DescribeProducersResponse,
        build=_build,
        read=_read,
    )
    return await ask_leaders(client, call, dict.fromkeys(partitions), deadline)


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
