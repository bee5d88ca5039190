"""Connections of a client: shared, given up when idle, tried again with pauses."""

import asyncio
from random import Random

import pytest

from odradek.client.connections import Connections
from odradek.client.errors import CallTimeoutError, ClosedError
from odradek.client.options import ClientOptions
from odradek.client.retry import Deadline
from odradek.clock import SystemClock
from odradek.errors import DisconnectedError, RequestTimedOutError
from odradek.protocol.api_keys import ApiKey
from tests.support.network import eventually
from tests.support.scripted_broker import ScriptedBroker, scripted

CLOCK = SystemClock()


def connections(port: int, **options: int) -> Connections:
    return Connections(ClientOptions(bootstrap=(("127.0.0.1", port),), **options), Random(1))  # type: ignore[arg-type]  # numbers


def soon() -> Deadline:
    return Deadline(CLOCK, 20_000)


async def closed_port() -> int:
    """A port that nobody listens on."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_callers_share_a_connection_unless_they_take_another_lane() -> None:
    async with scripted() as broker:
        pool = connections(broker.port)
        try:
            one, other = await asyncio.gather(
                pool.to("127.0.0.1", broker.port, soon()),
                pool.to("127.0.0.1", broker.port, soon()),
            )
            aside = await pool.to("127.0.0.1", broker.port, soon(), lane="fetch")
            assert one is other
            assert aside is not one
            assert await pool.to_any((), soon()) is one
            assert pool.opened("127.0.0.1", broker.port, "fetch") is aside
        finally:
            pool.close()


async def test_a_connection_that_nobody_uses_is_closed() -> None:
    """09:CL-2: connections.max.idle.ms; another one is opened when it is needed."""
    async with scripted() as broker:
        pool = connections(broker.port, connections_max_idle_ms=20)
        try:
            first = await pool.to("127.0.0.1", broker.port, soon())
            await eventually(lambda: first.is_closed, "the idle connection is closed")
            second = await pool.to("127.0.0.1", broker.port, soon())
            assert second is not first
        finally:
            pool.close()


async def test_a_connection_that_waits_for_an_answer_is_not_idle() -> None:
    """09:CL-2."""
    async with scripted() as broker:
        broker.will_answer(ApiKey.HEARTBEAT, lambda _request: None)
        pool = connections(broker.port, connections_max_idle_ms=10)
        try:
            connection = await pool.to("127.0.0.1", broker.port, soon())
            version = connection.version_for(ApiKey.HEARTBEAT)
            answer = connection.send(ApiKey.HEARTBEAT, version, [_heartbeat(version)])
            # Another one of the same age is idle: once it is gone, this one was looked at too.
            other = await pool.to("127.0.0.1", broker.port, soon(), lane="idle")
            await eventually(lambda: other.is_closed, "the idle connection is closed")
            assert not connection.is_closed
        finally:
            pool.close()
        with pytest.raises(DisconnectedError):
            await answer


def _heartbeat(version: int) -> bytes:
    from odradek.protocol.codec import encode_message
    from odradek.protocol.messages.heartbeat import HeartbeatRequest

    return encode_message(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), version)


async def test_an_address_that_failed_is_left_alone_for_a_while() -> None:
    """09:CL-2: reconnect.backoff.ms, doubled up to its max, ±20 %."""
    port = await closed_port()
    pool = connections(port, reconnect_backoff_ms=20, reconnect_backoff_max_ms=40)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(4):
        with pytest.raises(DisconnectedError):
            await pool.to("127.0.0.1", port, soon())
    # Between four attempts lie pauses of 20, 40 and 40 ms.
    assert loop.time() - began_s >= 0.8 * 0.1
    pool.close()


async def test_a_pause_ends_with_the_deadline() -> None:
    """09:CL-5."""
    port = await closed_port()
    pool = connections(port, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    with pytest.raises(DisconnectedError):
        await pool.to("127.0.0.1", port, soon())
    with pytest.raises(CallTimeoutError, match="within 15 ms"):
        await pool.to("127.0.0.1", port, Deadline(CLOCK, 15))
    pool.close()


async def test_each_failure_gives_the_next_attempt_more_time() -> None:
    """09:CL-2: socket.connection.setup.timeout.ms, up to its max."""
    accepted: list[asyncio.StreamWriter] = []

    async def keep_silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    server = await asyncio.start_server(keep_silent, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    pool = connections(
        port,
        connect_timeout_ms=20,
        connect_timeout_max_ms=80,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=1,
    )
    try:
        for timeout_ms in (20, 40, 80, 80):
            with pytest.raises(RequestTimedOutError, match=f"within {timeout_ms} ms"):
                await pool.to("127.0.0.1", port, soon())
    finally:
        pool.close()
        for writer in accepted:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_a_closed_pool_opens_nothing() -> None:
    """09:CL-5."""
    pool = connections(1)
    pool.close()
    pool.close()
    with pytest.raises(ClosedError, match="the client is closed"):
        await pool.to("127.0.0.1", 1, soon())


async def test_without_rebootstrap_only_known_brokers_are_tried() -> None:
    """09:CL-2: metadata.recovery.strategy."""
    from odradek.client.cluster import Node

    port = await closed_port()
    broker: ScriptedBroker
    async with scripted() as broker:
        gone = [Node(1, "127.0.0.1", port)]
        strict = connections(broker.port, is_rebootstrapping=False)
        with pytest.raises(DisconnectedError):
            await strict.to_any(gone, soon())
        strict.close()
        pool = connections(broker.port)
        assert (await pool.to_any(gone, soon())).port == broker.port
        pool.close()
