"""Leaders that take nothing get no records without a key: `partitioner.availability.timeout.ms`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from odradek.aio import Producer
from odradek.client.producer.accumulator import TopicQueues
from odradek.client.producer.availability import Availability
from odradek.client.producer.batch import PartitionQueue
from odradek.errors import OdradekError
from odradek.model import NO_LEADER
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import replace
from tests.support.network import eventually
from tests.support.ports import free_port
from tests.support.produced import producer_of, script
from tests.support.scripted_broker import ScriptedBroker, scripted, told_topic
from tests.unit.client.consumer.test_consumer_trouble import tell_brokers

# Every record a batch of its own, and two requests to a broker at most.
ONE_BY_ONE: dict[str, Any] = {
    "batch_size": 0,
    "max_in_flight_requests_per_connection": 2,
    "enable_idempotence": False,
    "partitioner_availability_timeout_ms": 20,
}


def told_topic_of_two() -> Any:
    """Topic `t`: broker 0 leads partition 0, broker 1 leads partition 1."""
    return replace(
        told_topic("t"),
        partitions=[
            replace(one, leader_id=number, replica_nodes=(number,), isr_nodes=(number,))
            for number, one in enumerate(told_topic("t", partitions=2).partitions)
        ],
    )


@asynccontextmanager
async def two_leaders() -> AsyncIterator[tuple[ScriptedBroker, ScriptedBroker]]:
    async with scripted() as first, scripted() as second:
        for broker in (first, second):
            script(broker)
            broker.topics["t"] = told_topic_of_two()
            tell_brokers(broker, first.port, second.port)
        yield first, second


async def known_topic(producer: Producer) -> TopicQueues:
    await producer.know_topic("t")
    return producer.accumulator.topics["t"]


def blocked_since_s(producer: Producer, leader: int) -> float | None:
    assert producer._sender is not None
    return producer._sender._availability.blocked.get(leader)


async def test_a_leader_that_does_not_answer_is_avoided_until_it_does() -> None:
    """09:CL-9, 09:CL-12: at once, not when the cluster is asked about the topic again."""
    async with two_leaders() as (first, second), producer_of(first, **ONE_BY_ONE) as producer:
        topic = await known_topic(producer)
        asked_count = len(first.received(ApiKey.METADATA))
        assert list(topic.available) == list(topic.queues)
        second.slow.add(ApiKey.PRODUCE)
        topic.sticky = topic.queues[1]
        waiting = [await producer.send("t", b"", partition=1) for _ in range(3)]
        await eventually(lambda: bool(second.held))
        await eventually(lambda: list(topic.available) == list(topic.queues[:1]))
        assert topic.sticky is not topic.queues[1]

        places = [(await (await producer.send("t", b""))).partition for _ in range(20)]
        assert set(places) == {0}

        second.slow.clear()
        second.answer_held()
        await eventually(lambda: list(topic.available) == list(topic.queues))
        for delivery in waiting:
            await delivery
        assert len(first.received(ApiKey.METADATA)) == asked_count
        assert not second.received(ApiKey.METADATA)


async def test_a_leader_that_takes_request_after_request_is_not_blocked() -> None:
    """09:CL-9: however many wait for it."""
    settings = ONE_BY_ONE | {"max_in_flight_requests_per_connection": 1}
    async with scripted() as broker:
        script(broker)
        broker.slow.add(ApiKey.PRODUCE)
        async with producer_of(broker, **settings) as producer:
            await known_topic(producer)
            waiting = [await producer.send("t", b"") for _ in range(4)]
            await eventually(lambda: bool(broker.held))
            before_s = blocked_since_s(producer, 0)
            assert before_s is not None
            for _ in range(2):
                broker.answer_held()
                await eventually(lambda: bool(broker.held))
                since_s = blocked_since_s(producer, 0)
                assert since_s is not None
                assert since_s > before_s
                before_s = since_s
            broker.slow.clear()
            broker.answer_held()
            for delivery in waiting:
                await delivery
            await eventually(lambda: blocked_since_s(producer, 0) is None)


async def test_a_leader_that_nothing_waits_for_gets_another_chance() -> None:
    """09:CL-9: what waited was given up, so nothing else would tell that it is back."""
    async with scripted() as broker:
        script(broker)
        broker.topics["t"] = told_topic_of_two()
        tell_brokers(broker, broker.port, free_port())
        async with producer_of(broker, on_error=lambda _: None, **ONE_BY_ONE) as producer:
            topic = await known_topic(producer)
            delivery = await producer.send("t", b"", partition=1)
            await eventually(lambda: list(topic.available) == list(topic.queues[:1]))
            assert producer._sender is not None
            producer._sender.fail_all(OdradekError("given up"))
            producer._sender.look_soon()
            await eventually(lambda: list(topic.available) == list(topic.queues))
            assert isinstance(delivery.exception(), OdradekError)


async def test_without_the_setting_nobody_is_avoided() -> None:
    """09:CL-9: 0 is the default."""
    settings = ONE_BY_ONE | {"partitioner_availability_timeout_ms": 0}
    async with two_leaders() as (first, second), producer_of(first, **settings) as producer:
        topic = await known_topic(producer)
        second.slow.add(ApiKey.PRODUCE)
        waiting = [await producer.send("t", b"", partition=1) for _ in range(3)]
        await eventually(lambda: bool(second.held))
        assert blocked_since_s(producer, 1) is None
        assert list(topic.available) == list(topic.queues)
        second.slow.clear()
        second.answer_held()
        for delivery in waiting:
            await delivery


def test_the_time_begins_anew_with_every_request_that_is_taken() -> None:
    """09:CL-9: the example of the module."""
    availability = Availability(1_000)
    availability.block(7, 0.0)
    availability.block(7, 0.5)
    assert availability.next_s == 1.0
    assert not availability.update(0.9)
    availability.unblock(7)
    availability.block(7, 0.9)
    assert not availability.update(1.0)
    assert availability.next_s == 1.9
    assert availability.update(1.9)
    assert availability.avoided == {7}
    assert availability.next_s == float("inf")
    assert not availability.update(2.0)
    availability.unblock(7)
    assert availability.update(2.5)
    assert not availability.avoided


def test_somebody_is_always_chosen() -> None:
    """09:CL-12: who takes something, or else who leads, or else anybody."""
    availability = Availability(1_000)
    queues = [PartitionQueue("t", number) for number in range(3)]
    assert list(availability.among(queues)) == queues
    queues[0].leader, queues[1].leader = 5, 6
    assert list(availability.among(queues)) == queues[:2]
    availability.block(5, 0.0)
    availability.update(1.0)
    assert list(availability.among(queues)) == queues[1:2]
    availability.block(6, 0.0)
    availability.update(1.0)
    assert list(availability.among(queues)) == queues[:2]
    queues[0].leader = queues[1].leader = NO_LEADER
    assert list(availability.among(queues)) == queues
