"""Consumers that are sent to a near replica which cannot be read: they go on at the leader.

As a real one does, this leader sends a consumer that names its rack to the replica there for as
long as it believes in it, and gives it nothing itself.
"""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.schema import replace
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, told_topic
from tests.support.scripted_groups import TP, batch, fetched, never_answer
from tests.unit.client.consumer.test_consumer_reading import consumer_of, poll_values
from tests.unit.client.consumer.test_consumer_trouble import (
    OTHER,
    leader_and_follower,
    read_from_start,
    tell_brokers,
    until,
)


def sends_to_replica(
    own: Callable[[FetchRequest], FetchResponse],
) -> Callable[[FetchRequest], FetchResponse]:
    """Answers of a leader that sends a consumer with a rack to broker 1."""

    def answer(request: FetchRequest) -> FetchResponse:
        return fetched(preferred_read_replica=1) if request.rack_id else own(request)

    return answer


def log_of(*values: bytes) -> Callable[[FetchRequest], FetchResponse]:
    """Answers from a log that begins at offset 0."""

    def answer(request: FetchRequest) -> FetchResponse:
        offset = request.topics[0].partitions[0].fetch_offset
        return fetched(batch(offset, values[offset]) if offset < len(values) else b"")

    return answer


def tells_of(broker: ScriptedBroker, *ports: int) -> None:
    broker.script.pop(ApiKey.METADATA, None)
    tell_brokers(broker, *ports)


def replicas_of(consumer: Consumer) -> list[float]:
    figures = consumer.metrics()
    return [value for name, value in figures.items() if name.endswith("preferred-read-replica")]


async def read_values(consumer: Consumer, count: int) -> list[Any]:
    values: list[Any] = []
    while len(values) < count:
        found = await poll_values(consumer)
        assert found, f"nothing but {values} came in time"
        values += found
    return values


async def test_a_replica_that_the_consumer_has_not_heard_of_is_looked_up() -> None:
    """Its broker was away when the consumer last looked the cluster up, and has come back."""
    async with leader_and_follower() as (leader, follower):
        tells_of(leader, leader.port)
        leader.will_answer(ApiKey.FETCH, sends_to_replica(lambda _: fetched()))
        follower.will_answer(ApiKey.FETCH, log_of(b"a", b"b"))
        async with consumer_of(leader, client_rack="here") as consumer:
            await read_from_start(consumer)
            await until(lambda: bool(leader.received(ApiKey.FETCH)))
            assert replicas_of(consumer) == [-1]
            tells_of(leader, leader.port, follower.port)
            assert await read_values(consumer, 2) == [b"a", b"b"]
            assert replicas_of(consumer) == [1]


@pytest.mark.parametrize(
    "trouble",
    [
        fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        fetched(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
        HANG_UP,
        None,
    ],
    ids=["out of range", "no replica", "an old epoch", "a lost connection", "an unknown broker"],
)
async def test_the_leader_is_read_for_as_long_as_the_replica_cannot_be(trouble: Any) -> None:
    async with leader_and_follower() as (leader, follower):
        if trouble is None:
            tells_of(leader, leader.port)
        else:
            follower.will_answer(ApiKey.FETCH, trouble)
        leader.will_answer(ApiKey.FETCH, sends_to_replica(log_of(b"a", b"b", b"c")))
        async with consumer_of(leader, client_rack="here") as consumer:
            await read_from_start(consumer)
            assert await read_values(consumer, 3) == [b"a", b"b", b"c"]


async def test_partitions_leave_a_lost_replica_together() -> None:
    """Also one that was sent there while the connection was still being opened for another."""

    def answer(request: FetchRequest) -> FetchResponse | None:
        """Sends the first partition of a request to the replica, and leaves out the others."""
        if not request.rack_id:
            return None
        told = fetched(preferred_read_replica=1)
        (topic,) = told.responses
        first = request.topics[0].partitions[0].partition
        found = replace(topic.partitions[0], partition_index=first)
        return replace(told, responses=[replace(topic, partitions=[found])])

    async with leader_and_follower() as (leader, follower):
        leader.topics["t"] = told_topic("t", partitions=2)
        leader.will_answer(ApiKey.FETCH, answer)
        follower.slow.add(ApiKey.API_VERSIONS)
        # The replica is left alone for a minute.
        settings = {"retry_backoff_max_ms": 60_000}
        async with consumer_of(leader, client_rack="here", **settings) as consumer:
            await consumer.assign([TP, OTHER])
            for tp in (TP, OTHER):
                await consumer.seek(tp, 0)
            await until(lambda: all(told == 1 for told in replicas_of(consumer)))
            follower.slow.clear()
            follower.will_answer(ApiKey.API_VERSIONS, HANG_UP)
            follower.answer_held()
            await until(lambda: not leader.received(ApiKey.FETCH)[-1].rack_id)
            assert replicas_of(consumer) == [-1, -1]
        (topic,) = leader.received(ApiKey.FETCH)[-1].topics
    assert {one.partition for one in topic.partitions} == {0, 1}
    assert len(follower.requests) == 1


async def test_a_replica_is_read_again_when_it_can_be() -> None:
    async with leader_and_follower() as (leader, follower):
        follower.will_answer(ApiKey.FETCH, HANG_UP, HANG_UP, fetched(batch(1, b"b")), never_answer)
        leader.will_answer(ApiKey.FETCH, sends_to_replica(log_of(b"a")))
        async with consumer_of(leader, client_rack="here") as consumer:
            await read_from_start(consumer)
            assert await read_values(consumer, 2) == [b"a", b"b"]
            assert replicas_of(consumer) == [1]
