"""Readers on bad days: followers that fail, half-closed sockets, brokers that are silent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.schema import replace
from tests.support.scripted_broker import (
    HANG_UP,
    ScriptedBroker,
    scripted,
    told_topic,
    topic_id,
)
from tests.support.scripted_groups import TP, batch, ends, fetched, never_answer, script_topic
from tests.unit.client.consumer.test_consumer_reading import (
    WAIT_S,
    asked_offsets,
    consumer_of,
    poll_values,
)

OTHER = TopicPartition("t", 1)
# What must not be waited for takes longer than any test.
NEVER_MS = 600_000
PATIENT = {"request_timeout_ms": NEVER_MS, "default_api_timeout_ms": NEVER_MS}


def tell_brokers(teller: ScriptedBroker, *ports: int) -> None:
    """Have a broker tell that brokers 0, 1, … are at these ports."""

    def answer(request: MetadataRequest) -> MetadataResponse:
        told = teller.metadata(request)
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port)
                for number, port in enumerate(ports)
            ],
            cluster_id=told.cluster_id,
            controller_id=told.controller_id,
            topics=told.topics,
        )

    teller.will_answer(ApiKey.METADATA, answer)


@asynccontextmanager
async def leader_and_follower() -> AsyncIterator[tuple[ScriptedBroker, ScriptedBroker]]:
    """Broker 0, which leads `t`, and broker 1; both tell of each other."""
    async with scripted() as leader, scripted() as follower:
        for broker in (leader, follower):
            broker.topics["t"] = told_topic("t")
            tell_brokers(broker, leader.port, follower.port)
        yield leader, follower


async def read_from_start(consumer: Consumer, partition: TopicPartition = TP) -> None:
    await consumer.assign([partition])
    await consumer.seek(partition, 0)


async def test_a_replica_that_the_leader_prefers_is_read() -> None:
    async with (
        leader_and_follower() as (leader, follower),
        consumer_of(leader, client_rack="here") as consumer,
    ):
        leader.will_answer(ApiKey.FETCH, fetched(preferred_read_replica=1))
        follower.will_answer(
            ApiKey.FETCH, fetched(batch(0, b"a")), fetched(batch(1, b"b")), never_answer
        )
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"a"]
        assert await poll_values(consumer) == [b"b"]
    assert len(leader.received(ApiKey.FETCH)) == 1
    assert leader.received(ApiKey.FETCH)[0].rack_id == "here"
    assert asked_offsets(follower)[:2] == [0, 1]


@pytest.mark.parametrize(
    "trouble",
    [
        fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        HANG_UP,
    ],
    ids=["out of range", "no replica", "a lost connection"],
)
async def test_the_leader_is_read_when_the_follower_cannot_be(trouble: Any) -> None:
    """Out of range is no reason to reset: a follower may lag behind."""
    async with (
        leader_and_follower() as (leader, follower),
        consumer_of(leader, client_rack="here") as consumer,
    ):
        leader.will_answer(
            ApiKey.FETCH,
            fetched(preferred_read_replica=1),
            fetched(batch(0, b"a")),
            never_answer,
        )
        follower.will_answer(ApiKey.FETCH, trouble)
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"a"]
    assert len(follower.received(ApiKey.FETCH)) == 1
    assert asked_offsets(leader)[:2] == [0, 0]


async def test_a_replica_that_has_left_the_cluster_is_not_looked_for() -> None:
    async with leader_and_follower() as (leader, follower), consumer_of(leader) as consumer:
        leader.script.pop(ApiKey.METADATA)  # From now on it tells of itself only.
        leader.will_answer(
            ApiKey.FETCH,
            fetched(preferred_read_replica=1),
            fetched(batch(0, b"a")),
            never_answer,
        )
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"a"]
    assert follower.requests == []


async def test_the_leader_is_asked_again_when_its_word_has_grown_old() -> None:
    async with (
        leader_and_follower() as (leader, follower),
        consumer_of(leader, client_rack="here", metadata_max_age_ms=50) as consumer,
    ):

        def answer_as_leader(request: FetchRequest) -> FetchResponse:
            if request.topics[0].partitions[0].fetch_offset == 0:
                return fetched(preferred_read_replica=1)
            return fetched(batch(1, b"b"))

        leader.will_answer(ApiKey.FETCH, answer_as_leader)
        # The follower has nothing more, and says so at once.
        follower.will_answer(ApiKey.FETCH, fetched(batch(0, b"a")), fetched())
        await read_from_start(consumer)
        values = await poll_values(consumer)
        while len(values) < 2:
            values += await poll_values(consumer)
        assert values[:2] == [b"a", b"b"]
    assert len(leader.received(ApiKey.FETCH)) >= 2


class Relay:
    """Stands between clients and a broker, and can stop sending or listening."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._clients: list[tuple[asyncio.StreamWriter, asyncio.Task[None]]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def stop_sending(self) -> None:
        """Say that nothing more will come, on all connections there are."""
        for writer, _ in self._clients:
            writer.write_eof()

    def stop_listening(self) -> None:
        """Read nothing more, on all connections there are."""
        for writer, listening in self._clients:
            listening.cancel()
            # The transport's socket has no shutdown; a second descriptor of it does.
            with socket.fromfd(
                writer.get_extra_info("socket").fileno(), socket.AF_INET, socket.SOCK_STREAM
            ) as same:
                same.shutdown(socket.SHUT_RD)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker.port)
        self._writers += [writer, broker_writer]
        loop = asyncio.get_running_loop()
        listening = loop.create_task(self._pass_on(reader, broker_writer))
        sending = loop.create_task(self._pass_on(broker_reader, writer))
        self._tasks |= {listening, sending}
        self._clients.append((writer, listening))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, RuntimeError):  # The other side has gone, or was half-closed.
            while chunk := await reader.read(65_536):
                writer.write(chunk)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def relayed(broker: ScriptedBroker) -> AsyncIterator[Relay]:
    relay = Relay(broker)
    async with await asyncio.start_server(relay.serve, "127.0.0.1", 0) as server:
        relay.port = server.sockets[0].getsockname()[1]
        tell_brokers(broker, relay.port)
        try:
            yield relay
        finally:
            await relay.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - a list of the broker's
            await asyncio.sleep(0.001)


async def test_a_broker_that_stops_sending_is_connected_to_anew() -> None:
    """A half-closed socket is a closed one: nobody waits for the request's timeout."""
    async with (
        scripted() as broker,
        relayed(broker) as relay,
        consumer_of(broker, bootstrap_servers=f"127.0.0.1:{relay.port}", **PATIENT) as consumer,
    ):
        script_topic(
            broker, fetched(batch(0, b"a")), never_answer, fetched(batch(1, b"b")), never_answer
        )
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"a"]
        await until(lambda: len(broker.received(ApiKey.FETCH)) == 2)
        relay.stop_sending()
        assert await poll_values(consumer) == [b"b"]
    assert asked_offsets(broker)[:3] == [0, 1, 1]


async def test_a_broker_that_stops_listening_is_given_up_in_time() -> None:
    """The request is lost on the way; its timeout is what helps."""
    async with (
        scripted() as broker,
        relayed(broker) as relay,
        consumer_of(
            broker, bootstrap_servers=f"127.0.0.1:{relay.port}", request_timeout_ms=500
        ) as consumer,
    ):
        script_topic(broker, never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 9))
        assert await consumer.end_offsets([TP], WAIT_S) == {TP: 9}
        relay.stop_listening()
        assert await consumer.end_offsets([TP], WAIT_S) == {TP: 9}


def told_leaders(*leaders: int) -> MetadataResponseTopic:
    """Topic `t`, whose partitions have these leaders; -1: none."""
    return MetadataResponseTopic(
        name="t",
        topic_id=topic_id("t"),
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=leader,
                leader_epoch=0,
                replica_nodes=(leader,),
                isr_nodes=(leader,),
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader < 0 else 0,
            )
            for number, leader in enumerate(leaders)
        ],
    )


async def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    """Neither its neighbours' first positions nor, when it has a leader, its own."""
    async with (
        scripted() as broker,
        consumer_of(broker, auto_offset_reset="earliest", **PATIENT) as consumer,
    ):
        broker.topics["t"] = told_leaders(0, -1)
        broker.will_answer(ApiKey.FETCH, fetched(batch(7, b"a")), never_answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(7, 9))
        await consumer.assign([TP, OTHER])
        assert await poll_values(consumer) == [b"a"]
        broker.topics["t"] = told_leaders(0, 0)
        assert await consumer.position(OTHER, WAIT_S) == 7


async def test_a_broker_that_is_silent_holds_up_no_other() -> None:
    async with (
        leader_and_follower() as (leader, silent),
        consumer_of(leader, auto_offset_reset="earliest", **PATIENT) as consumer,
    ):
        for broker in (leader, silent):
            broker.topics["t"] = told_leaders(0, 1)
        leader.will_answer(ApiKey.FETCH, fetched(batch(7, b"a")), never_answer)
        leader.will_answer(ApiKey.LIST_OFFSETS, ends(7, 9))
        silent.will_answer(ApiKey.LIST_OFFSETS, never_answer)
        await consumer.assign([TP, OTHER])
        assert await poll_values(consumer) == [b"a"]
        await until(lambda: len(silent.received(ApiKey.LIST_OFFSETS)) == 1)


async def test_a_topic_that_was_made_anew_is_read_though_its_epoch_is_lower() -> None:
    """15:KAFKA-12257: another id under the same name, so the old epochs mean nothing."""
    new_id = b"made anew".ljust(16, b".")

    def answer(request: FetchRequest) -> FetchResponse:
        asked = request.topics[0]
        offset = asked.partitions[0].fetch_offset
        if asked.topic_id == topic_id("t"):
            if broker.topics["t"].topic_id == new_id:
                return fetched(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            return fetched(batch(0, b"1", b"2", b"3") if offset == 0 else b"")
        found = fetched(batch(0, b"new") if offset == 0 else b"")
        if offset == 3:  # Where the reader was in the old one.
            found = fetched(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        (topic,) = found.responses
        return replace(found, responses=[replace(topic, topic_id=new_id)])

    async with (
        scripted() as broker,
        consumer_of(broker, auto_offset_reset="earliest") as consumer,
    ):
        broker.topics["t"] = told_topic("t", leader_epoch=5)
        broker.will_answer(ApiKey.FETCH, answer)
        broker.will_answer(ApiKey.LIST_OFFSETS, ends(0, 1))
        await read_from_start(consumer)
        assert await poll_values(consumer) == [b"1", b"2", b"3"]
        broker.topics["t"] = replace(told_topic("t", leader_epoch=0), topic_id=new_id)
        assert await poll_values(consumer) == [b"new"]
    last = broker.received(ApiKey.FETCH)[-1].topics[0]
    assert (last.topic_id, last.partitions[0].current_leader_epoch) == (new_id, 0)
