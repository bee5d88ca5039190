"""How far a consumer reads ahead of an application that does not poll: its memory is bounded."""

from collections import Counter
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.support.scripted_broker import ScriptedBroker, scripted, told_topic, topic_id
from tests.support.scripted_groups import batch, ends

WAIT_S = 60.0
# Calls that are answered one after the other. Each leaves an endless broker the time to answer a
# fetch, and a consumer that asks without need the time to ask again.
ROUNDS = 20
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
ANSWER = 4  # Records of one answer.


def endless(request: FetchRequest) -> FetchResponse:
    """Records for every partition that is asked for, from whichever offset."""
    asked = [one for topic in request.topics for one in topic.partitions]
    partitions = [
        PartitionData(
            partition_index=one.partition,
            high_watermark=1_000_000,
            records=batch(one.fetch_offset, *[b"x"] * ANSWER),
            aborted_transactions=None,
        )
        for one in asked
    ]
    topic = FetchableTopicResponse(topic_id=topic_id("t"), partitions=partitions)
    return FetchResponse(responses=[topic])


def asked(broker: ScriptedBroker) -> Counter[int]:
    """How often each partition was asked for."""
    requests: list[Any] = broker.received(ApiKey.FETCH)
    return Counter(
        one.partition
        for request in requests
        for topic in request.topics
        for one in topic.partitions
    )


async def settle(consumer: Consumer) -> None:
    for _ in range(ROUNDS):
        await consumer.end_offsets(PARTITIONS[:1])


@pytest.mark.parametrize("count", [1, 3])
async def test_at_most_two_answers_of_a_partition_are_in_memory(count: int) -> None:
    """09:CL-21: one that is handed out, one behind it; whatever the broker has."""
    partitions = PARTITIONS[:count]
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t", partitions=count)
        broker.will_answer(ApiKey.FETCH, endless)
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 1_000_000))
        async with Consumer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            retry_backoff_ms=1,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=1,
        ) as consumer:
            await consumer.assign(partitions)
            polled: Counter[int] = Counter()
            while polled.total() < 3 * ANSWER * count:
                polled.update(record.partition for record in await consumer.poll(WAIT_S))
                await settle(consumer)
                for number, times in asked(broker).items():
                    # One answer per ANSWER records begun, and one more.
                    assert times <= -(-polled[number] // ANSWER) + 1
            assert asked(broker).keys() == set(range(count))


async def test_nobody_polls() -> None:
    """09:CL-21: what is asked for in advance is one answer of each partition."""
    async with scripted() as broker:
        broker.topics["t"] = told_topic("t", partitions=3)
        broker.will_answer(ApiKey.FETCH, endless)
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 1_000_000))
        async with Consumer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer:
            await consumer.assign(PARTITIONS)
            while len(asked(broker)) < 3:
                await settle(consumer)
            await settle(consumer)
            assert asked(broker) == {0: 1, 1: 1, 2: 1}
