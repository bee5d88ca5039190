"""Limits of connections and memory on real sockets."""

import asyncio
import contextlib
import logging
import resource
import socket
import struct

import pytest

from odradek.metrics import Gauge, Meter, MetricName
from odradek.network import ListenerLimits, NetworkConfig, Request, Response
from odradek.network.receive_buffer import START_BYTES
from odradek.testing import ManualClock
from tests.support.network import (
    ANY_PORT,
    Client,
    Server,
    answer,
    echo,
    eventually,
    request_frame,
    serving,
)

TWO_LISTENERS = ("PLAINTEXT://127.0.0.1:0", "CLIENTS://127.0.0.1:0")
TWO_PROTOCOLS = "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT"


def buffer_bytes(server: Server) -> int:
    return sum(
        connection.buffer_bytes
        for listener in server.socket_server.listeners.values()
        for processor in listener.processors
        for connection in processor.connections
    )


def test_the_third_connection_of_an_address_is_closed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """02:N-19."""
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), max_connections_per_ip=2)
        async with serving(echo, config=config) as server:
            port = server.port()
            async with await Client.connect(port) as one, await Client.connect(port) as two:
                async with await Client.connect(port) as three:
                    assert await three.is_closed_by_peer()
                assert server.socket_server.quotas.count_of_ip("127.0.0.1") == 2
                for client in (one, two):
                    client.send(request_frame(1))
                    await client.receive()
            await eventually(lambda: server.socket_server.connection_count == 0)
            async with await Client.connect(port) as again:
                again.send(request_frame(2))
                await again.receive()
        assert caplog.text.count("127.0.0.1 has 2 connections") == 1

    asyncio.run(scenario())


def test_a_listener_at_its_limit_stops_accepting_until_one_leaves() -> None:
    async def scenario() -> None:
        limits = {"PLAINTEXT": ListenerLimits(max_connections=1)}
        async with serving(echo, limits=limits) as server:
            async with await Client.connect(server.port()) as second:
                second.send(request_frame(1))
                await second.receive()
                third = await Client.connect(server.port())  # The kernel keeps it.
                third.send(request_frame(2, b"waited"))
                for _ in range(10):
                    await asyncio.sleep(0.001)
                assert server.socket_server.connection_count == 1
            async with third:
                assert await third.receive() == (2, b"waited")
            name = MetricName(
                "kafka.network", "Acceptor", "AcceptorBlockedPercent", (("listener", "PLAINTEXT"),)
            )
            blocked = server.metrics.get(name)
            assert isinstance(blocked, Meter)
            assert blocked.count > 0

    asyncio.run(scenario())


def test_brokers_push_the_least_recently_used_client_out() -> None:
    async def scenario() -> None:
        config = NetworkConfig(
            listeners=TWO_LISTENERS, protocol_map=TWO_PROTOCOLS, max_connections=2
        )
        async with serving(echo, config=config) as server:
            clients = server.port("CLIENTS")
            async with await Client.connect(clients) as one, await Client.connect(clients) as two:
                for client in (one, two, one):
                    client.send(request_frame(1))
                    await client.receive()
                async with await Client.connect(server.port()) as broker:
                    broker.send(request_frame(2))
                    await broker.receive()
                    # Which of them goes is the choice of the processor whose turn comes first.
                    await eventually(lambda: server.socket_server.connection_count == 2)
                    assert server.socket_server.quotas.count("PLAINTEXT") == 1
                    assert server.socket_server.quotas.count("CLIENTS") == 1

    asyncio.run(scenario())


def test_a_listener_above_its_rate_pauses_and_goes_on() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        limits = {"PLAINTEXT": ListenerLimits(max_creation_rate=1)}
        async with (
            serving(echo, limits=limits, clock=clock) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            for i in range(11):  # The eleventh within ten seconds' worth is one too many.
                client = await stack.enter_async_context(await Client.connect(server.port()))
                client.send(request_frame(i))
                await client.receive()
            late = await stack.enter_async_context(await Client.connect(server.port()))
            late.send(request_frame(12, b"late"))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert server.socket_server.connection_count == 11
            clock.advance(1_000)
            await server.run_timers()
            assert await late.receive() == (12, b"late")

    asyncio.run(scenario())


def test_an_address_above_its_rate_waits_unread_and_is_closed() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        async with serving(echo, clock=clock) as server:
            server.socket_server.quotas.update_ip_rates(1, {})
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(10):
                    await stack.enter_async_context(await Client.connect(server.port()))
                late = await stack.enter_async_context(await Client.connect(server.port()))
                late.send(request_frame(1))
                await eventually(lambda: server.socket_server.connection_count == 11)
                clock.advance(999)
                await server.run_timers()
                assert server.socket_server.connection_count == 11
                clock.advance(1)
                await server.run_timers()
                assert await late.is_closed_by_peer()
                assert server.socket_server.connection_count == 10

    asyncio.run(scenario())


def test_idle_connections_are_closed_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if bytes(request.body) != b"wait":
            return echo(request)
        parked.append(request)
        return None

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), max_idle_ms=60_000)
        async with serving(handler, config=config, clock=clock) as server:
            port = server.port()
            async with (
                await Client.connect(port) as silent,
                await Client.connect(port) as active,
                await Client.connect(port) as waiting,
            ):
                waiting.send(request_frame(1, b"wait"))
                await eventually(lambda: bool(parked))
                for _ in range(13):
                    active.send(request_frame(2))
                    await active.receive()
                    clock.advance(5_000)
                    await server.run_timers()
                assert await silent.is_closed_by_peer()
                assert server.socket_server.connection_count == 2
                server.socket_server.data_channel.send_response(answer(parked[0], b"done"))
                assert await waiting.receive() == (1, b"done")
        assert caplog.text.count("it was idle: for 65000 ms") == 1

    asyncio.run(scenario())


def test_a_parked_request_of_a_peer_that_left_is_let_go() -> None:
    clock = ManualClock()
    parked: list[Request] = []
    abandoned: list[int] = []

    def handler(request: Request) -> None:
        number = request.header.correlation_id
        request.on_abandoned = lambda: abandoned.append(number)
        parked.append(request)

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), max_idle_ms=10_000)
        async with (
            serving(handler, config=config, clock=clock) as server,
            await Client.connect(server.port()) as patient,
        ):
            patient.send(request_frame(1))
            async with await Client.connect(server.port()) as leaving:
                leaving.send(request_frame(2) + request_frame(3))
                await eventually(lambda: len(parked) == 2)
            for _ in range(4):
                await asyncio.sleep(0.001)
                clock.advance(5_000)
                await server.run_timers()
            assert abandoned == [2]
            assert server.socket_server.connection_count == 1
            for request in sorted(parked, key=lambda request: request.header.correlation_id):
                server.socket_server.data_channel.send_response(answer(request, b"done"))
            assert await patient.receive() == (1, b"done")
        assert abandoned == [2]

    asyncio.run(scenario())


def test_a_peer_that_stops_reading_becomes_idle() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), max_idle_ms=10_000)
        big = bytes(16 << 20)
        async with (
            serving(lambda request: answer(request, big), config=config, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
            client.send(request_frame(1))
            await eventually(lambda: server.socket_server.connection_count == 1)

            def is_gone_five_seconds_later() -> bool:
                clock.advance(5_000)
                server.timer.advance_clock(0)
                return server.socket_server.connection_count == 0

            # The kernel takes its part first, and that counts as a sign of life.
            await eventually(is_gone_five_seconds_later)

    asyncio.run(scenario())


@pytest.mark.slow
def test_thousands_of_idle_connections_cost_little_and_hinder_nobody() -> None:
    """2,000 silent ones, and as many that announce 100 MB and send nothing."""
    count = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * count + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} descriptors, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    clock = ManualClock()

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), listen_backlog=4096)
        async with serving(echo, config=config, clock=clock) as server:
            peers: list[socket.socket] = []
            for index in range(2 * count):
                peer = socket.create_connection(("127.0.0.1", server.port()))
                peers.append(peer)
                if index % 2:
                    peer.send(struct.pack(">i", 100 << 20))
                if index % 50 == 0:
                    await asyncio.sleep(0)
            try:
                await eventually(lambda: server.socket_server.connection_count == 2 * count)
                await eventually(lambda: buffer_bytes(server) == count * START_BYTES)
                async with await Client.connect(server.port()) as client:
                    client.send(request_frame(1, b"busy"))
                    assert await client.receive() == (1, b"busy")
                clock.advance(6_000)
                await server.run_timers()
                # Four bytes each is what has arrived.
                assert buffer_bytes(server) == count * 4
                assert server.socket_server.connection_count == 2 * count
                clock.advance(600_000)
                for _ in range(2 * count // 64 + 5):
                    clock.advance(1)
                    await server.run_timers()
                assert server.socket_server.connection_count == 0
            finally:
                for peer in peers:
                    peer.close()

    try:
        asyncio.run(scenario())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("socket_bytes", [-1, 4_096])
def test_large_requests_take_turns_when_memory_is_short(socket_bytes: int) -> None:
    """Also where no answer fits into the sockets, and they are read one after another."""

    async def scenario() -> None:
        size = 400_000
        config = NetworkConfig(
            listeners=(ANY_PORT,),
            request_max_bytes=500_000,
            queued_max_request_bytes=500_000,
            send_buffer_bytes=socket_bytes,
        )
        async with serving(echo, config=config) as server:
            pool = server.socket_server.pool
            async with contextlib.AsyncExitStack() as stack:
                clients = []
                for _ in range(6):
                    sock = socket.socket()
                    if socket_bytes > 0:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_bytes)
                    sock.connect(("127.0.0.1", server.port()))
                    client = Client(*await asyncio.open_connection(sock=sock))
                    clients.append(await stack.enter_async_context(client))
                for i, client in enumerate(clients):
                    data = request_frame(i, bytes([i]) * size)
                    client.send(data[:-1])
                await eventually(lambda: pool.available_bytes <= 0)
                for _ in range(20):
                    await asyncio.sleep(0.001)
                    assert pool.used_bytes < 500_000 + size
                for i, client in enumerate(clients):
                    client.send(bytes([i]))
                async with asyncio.timeout(120):
                    for i, client in enumerate(clients):
                        assert await client.receive() == (i, bytes([i]) * size)
                assert pool.used_bytes == 0
            gauge = server.metrics.get(
                MetricName("kafka.network", "SocketServer", "MemoryPoolAvailable")
            )
            assert isinstance(gauge, Gauge)
            assert gauge.read() == 500_000

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_its_answer_keeps_no_memory_of_its_request() -> None:
    requests: list[Request] = []

    def handler(request: Request) -> Response:
        requests.append(request)
        return answer(request, bytes(32 << 20))

    async def scenario() -> None:
        config = NetworkConfig(
            listeners=(ANY_PORT,), request_max_bytes=500_000, queued_max_request_bytes=500_000
        )
        async with (
            serving(handler, config=config) as server,
            await Client.connect(server.port()) as client,
        ):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
            data = request_frame(1, bytes(400_000))
            client.send(data)
            await eventually(lambda: bool(requests))
            listener = server.socket_server.listeners["PLAINTEXT"]
            (connection,) = (c for p in listener.processors for c in p.connections)
            assert connection.has_unsent
            assert server.socket_server.pool.used_bytes == 0
            (request,) = requests
            assert len(request.payload) == 0
            # What the metrics count is known all the same.
            assert len(request.payload) - request.body_offset == 400_000

    asyncio.run(scenario())
