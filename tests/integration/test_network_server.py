"""The server as a whole: planes, processors, start and stop."""

import asyncio
import logging
import random
import socket

import pytest

from odradek.clock import SystemClock
from odradek.errors import ConfigError, InvariantViolation
from odradek.metrics import Gauge, MetricName, MetricRegistry
from odradek.model import Endpoint, SecurityProtocol
from odradek.network import (
    Authenticator,
    ConnectionContext,
    ListenerSecurity,
    NetworkConfig,
    Request,
    Response,
)
from odradek.network.socket_server import SocketServer
from odradek.protocol.api_keys import ApiKey
from odradek.purgatory import SystemTimer
from tests.support.network import (
    ANY_PORT,
    Client,
    answer,
    echo,
    eventually,
    request_frame,
    serving,
    socket_to,
)

WITH_CONTROL_PLANE = NetworkConfig(
    listeners=("CONTROLLER://127.0.0.1:0", "INTERNAL://127.0.0.1:0"),
    protocol_map="CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
    inter_broker_listener_name="INTERNAL",
    control_plane_listener_name="CONTROLLER",
    queued_max_requests=2,
    io_threads=1,
)
WITHOUT_CONTROL_PLANE = NetworkConfig(
    listeners=("CONTROLLER://127.0.0.1:0", "INTERNAL://127.0.0.1:0"),
    protocol_map="CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
    inter_broker_listener_name="INTERNAL",
    queued_max_requests=2,
    io_threads=1,
)


def test_each_listener_has_its_processors() -> None:
    """02:N-1, 02:D-1, 02:D-2: one acceptor per listener, ids that run on."""

    async def scenario() -> None:
        config = NetworkConfig(
            listeners=("PLAINTEXT://127.0.0.1:0", "SECOND://127.0.0.1:0"),
            protocol_map="PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        )
        async with serving(echo, config=config) as server:
            listeners = server.socket_server.listeners
            assert list(listeners) == ["PLAINTEXT", "SECOND"]
            ids = [[p.id for p in listener.processors] for listener in listeners.values()]
            assert ids == [[0, 1, 2], [3, 4, 5]]
            assert server.port("plaintext") != server.port("second")

    asyncio.run(scenario())


def test_processors_are_named_as_their_threads_are_in_kafka() -> None:
    """02:N-2."""

    async def scenario() -> None:
        async with serving(echo) as server:
            names = [p.name for p in server.socket_server.listeners["PLAINTEXT"].processors]
            assert names == [
                f"data-plane-kafka-network-thread-0-ListenerName(PLAINTEXT)-PLAINTEXT-{i}"
                for i in range(3)
            ]
            assert server.socket_server.control_channel is None

    asyncio.run(scenario())


def test_the_control_plane_has_little_and_of_its_own() -> None:
    """02:N-4."""

    async def scenario() -> None:
        async with serving(echo, config=WITH_CONTROL_PLANE) as server:
            listeners = server.socket_server.listeners
            (control,) = listeners["CONTROLLER"].processors
            assert control.id == 0
            assert control.name == (
                "control-plane-kafka-network-thread-0-ListenerName(CONTROLLER)-PLAINTEXT-0"
            )
            assert len(listeners["INTERNAL"].processors) == 3
            assert control.channel is server.socket_server.control_channel
            assert control.channel is not server.socket_server.data_channel
            for name in (
                "ControlPlaneNetworkProcessorAvgIdlePercent",
                "NetworkProcessorAvgIdlePercent",
            ):
                gauge = server.metrics.get(MetricName("kafka.network", "SocketServer", name))
                assert isinstance(gauge, Gauge)
                assert gauge.read() == 1.0

    asyncio.run(scenario())


@pytest.mark.parametrize("has_control_plane", [True, False])
def test_the_controller_is_heard_while_the_data_plane_is_full(has_control_plane: bool) -> None:
    """02:N-12: with a control plane at once, without it after the backlog."""
    release = asyncio.Event()
    order: list[str] = []

    async def wait(request: Request) -> Response:
        await release.wait()
        order.append("data")
        return echo(request)

    async def handler(request: Request) -> Response:
        # Both kinds take a slot: what is answered without waiting stands behind nobody.
        if request.header.api_key is ApiKey.LEADER_AND_ISR:
            order.append("control")
            assert request.context.is_control_plane is has_control_plane
            return answer(request, b"ok")
        return await wait(request)

    async def scenario() -> None:
        config = WITH_CONTROL_PLANE if has_control_plane else WITHOUT_CONTROL_PLANE
        async with serving(handler, config=config) as server:
            data_channel = server.socket_server.data_channel
            producers = [await Client.connect(server.port("INTERNAL")) for _ in range(5)]
            for i, producer in enumerate(producers):
                producer.send(request_frame(i))
            await eventually(lambda: data_channel.queue_length == 2)
            async with await Client.connect(server.port("CONTROLLER")) as controller:
                controller.send(request_frame(9, api_key=ApiKey.LEADER_AND_ISR, version=2))
                if has_control_plane:
                    assert await controller.receive() == (9, b"ok")
                    assert order == ["control"]
                else:
                    for _ in range(10):
                        await asyncio.sleep(0.001)
                    assert order == []
                release.set()
                for i, producer in enumerate(producers):
                    assert await producer.receive() == (i, b"")
                if not has_control_plane:
                    assert await controller.receive() == (9, b"ok")
            for producer in producers:
                async with producer:
                    pass
        assert order.count("data") == 5
        assert order.index("control") == (0 if has_control_plane else 5)

    asyncio.run(scenario())


def test_a_full_queue_stops_reading_and_loses_nothing() -> None:
    """02:N-10 on sockets."""
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        await release.wait()
        return echo(request)

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), queued_max_requests=1, io_threads=1)
        async with serving(handler, config=config) as server:
            clients = [await Client.connect(server.port()) for _ in range(6)]
            for client in clients:
                client.send(b"".join(request_frame(i, b"%d" % i) for i in range(3)))
            await eventually(lambda: server.socket_server.data_channel.queue_length == 1)
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert server.socket_server.data_channel.queue_length == 1
            release.set()
            for client in clients:
                async with client:
                    for i in range(3):
                        assert await client.receive() == (i, b"%d" % i)

    asyncio.run(scenario())


def test_the_number_of_processors_changes_while_running() -> None:
    """02:N-11: 8 to 4, not to 3, then 3 to 6."""

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), network_threads=8)
        async with serving(echo, config=config) as server:
            socket_server = server.socket_server
            listener = socket_server.listeners["PLAINTEXT"]
            clients = []
            for i in range(8):
                client = await Client.connect(server.port())
                client.send(request_frame(i))
                await client.receive()
                clients.append(client)
            assert [p.connection_count for p in listener.processors] == [1] * 8
            name = MetricName(
                "kafka.network", "RequestChannel", "ResponseQueueSize", (("processor", "7"),)
            )
            assert server.metrics.get(name) is not None
            with pytest.raises(ConfigError, match=r"num\.network\.threads"):
                socket_server.resize_network_threads(3)

            socket_server.resize_network_threads(4)

            assert [p.id for p in listener.processors] == [0, 1, 2, 3]
            assert socket_server.connection_count == 4
            assert server.metrics.get(name) is None
            for client in clients[4:]:
                assert await client.is_closed_by_peer()
            for client in clients[:4]:
                client.send(request_frame(1, b"kept"))
                assert await client.receive() == (1, b"kept")
            socket_server.resize_network_threads(3)
            socket_server.resize_network_threads(6)
            assert [p.id for p in listener.processors] == [0, 1, 2, 8, 9, 10]
            for client in clients:
                async with client:
                    pass
            async with await Client.connect(server.port()) as late:
                late.send(request_frame(1, b"late"))
                assert await late.receive() == (1, b"late")

    asyncio.run(scenario())


def test_the_number_of_slots_changes_while_running() -> None:
    """02:N-13 through the server."""
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        await release.wait()
        return echo(request)

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), io_threads=1)
        async with serving(handler, config=config) as server:
            clients = [await Client.connect(server.port()) for _ in range(4)]
            channel = server.socket_server.data_channel
            for client in clients:
                client.send(request_frame(1))
            await eventually(lambda: channel.queue_length == 3)
            server.socket_server.resize_io_threads(2)
            await eventually(lambda: channel.suspended_count == 2)
            with pytest.raises(ConfigError, match=r"num\.io\.threads"):
                server.socket_server.resize_io_threads(5)
            release.set()
            for client in clients:
                async with client:
                    await client.receive()

    asyncio.run(scenario())


def make_server(config: NetworkConfig) -> SocketServer:
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    return SocketServer(
        config,
        echo,
        broker_id=0,
        loop=loop,
        timer=SystemTimer("test", loop=loop, clock=clock),
        clock=clock,
        metrics=MetricRegistry(clock, random.Random(0)),
    )


def test_connections_wait_between_bind_and_start(caplog: pytest.LogCaptureFixture) -> None:
    """02:N-25, the first half: a second start does nothing."""
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with make_server(NetworkConfig(listeners=(ANY_PORT,))) as server:
            server.bind()
            async with await Client.connect(server.bound_port("PLAINTEXT")) as client:
                client.send(request_frame(1, b"early"))
                for _ in range(5):
                    await asyncio.sleep(0.001)
                assert server.connection_count == 0
                server.start_processing()
                server.start_processing()
                assert await client.receive() == (1, b"early")
        assert caplog.text.count("being processed already") == 1

    asyncio.run(scenario())


def test_without_its_inter_broker_listener_nothing_starts() -> None:
    """02:N-25, the second half."""

    async def scenario() -> None:
        async with make_server(NetworkConfig(listeners=(ANY_PORT,))) as server:
            server.bind()
            server.add_listener(Endpoint("127.0.0.1", 0, "OTHER", SecurityProtocol.PLAINTEXT))
            server.remove_listener("PLAINTEXT")
            with pytest.raises(InvariantViolation, match="PLAINTEXT among OTHER"):
                server.start_processing()

    asyncio.run(scenario())


def test_an_address_that_is_taken_is_named() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            config = NetworkConfig(
                listeners=(ANY_PORT, f"SECOND://127.0.0.1:{port}"),
                protocol_map="PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
            )
            async with make_server(config) as server:
                with pytest.raises(ConfigError, match=rf"SECOND://127\.0\.0\.1:{port}.*in use"):
                    server.bind()

    asyncio.run(scenario())


def test_listeners_come_and_go_while_running() -> None:
    async def scenario() -> None:
        async with serving(echo) as server:
            added = Endpoint("127.0.0.1", 0, "ADDED", SecurityProtocol.PLAINTEXT)
            server.socket_server.add_listener(added)
            async with await Client.connect(server.port("ADDED")) as client:
                client.send(request_frame(1, b"x"))
                assert await client.receive() == (1, b"x")
                port = server.port("ADDED")
                server.socket_server.remove_listener("added")
                assert await client.is_closed_by_peer()
            with pytest.raises(ConnectionRefusedError):
                await Client.connect(port)
            assert list(server.socket_server.listeners) == ["PLAINTEXT"]

    asyncio.run(scenario())


def test_a_graceful_stop_answers_what_was_asked() -> None:
    release = asyncio.Event()

    async def wait(request: Request) -> Response:
        await release.wait()
        return echo(request)

    async def scenario() -> None:
        async with serving(wait) as server:
            port = server.port()
            async with await Client.connect(port) as asking, await Client.connect(port) as idle:
                asking.send(request_frame(1, b"answer me"))
                await eventually(lambda: server.socket_server.connection_count == 2)
                await eventually(lambda: server.socket_server.data_channel.suspended_count == 1)
                stopping = asyncio.ensure_future(server.socket_server.shut_down(grace_ms=10_000))
                assert await idle.is_closed_by_peer()
                with pytest.raises(ConnectionRefusedError):
                    await Client.connect(port)
                release.set()
                assert await asking.receive() == (1, b"answer me")
                assert await asking.is_closed_by_peer()
                await stopping
            assert server.socket_server.connection_count == 0

    asyncio.run(scenario())


def test_a_stop_does_not_wait_for_ever() -> None:
    async def scenario() -> None:
        parked: list[Request] = []
        async with serving(parked.append) as server:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1))
                await eventually(lambda: bool(parked))
                await server.socket_server.shut_down(grace_ms=20)
                assert await client.is_closed_by_peer()
            # An answer that comes too late has nowhere to go.
            server.socket_server.data_channel.send_response(answer(parked[0], b"late"))

    asyncio.run(scenario())


def test_leaving_ends_handlers_that_wait_and_lets_errors_through() -> None:
    cancelled: list[bool] = []

    async def wait(request: Request) -> Response:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.append(True)
        raise AssertionError("never")

    async def scenario() -> None:
        async with serving(wait) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1))
            await eventually(lambda: server.socket_server.data_channel.suspended_count == 1)
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())
    assert cancelled == [True]


def test_a_connection_that_cannot_be_set_up_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[int] = []

    def authenticator(context: ConnectionContext) -> Authenticator:
        calls.append(1)
        raise RuntimeError("no mechanism")

    async def scenario() -> None:
        security = {"PLAINTEXT": ListenerSecurity(authenticator=authenticator)}
        async with serving(echo, security=security) as server:
            async with (
                await Client.connect(server.port()) as one,
                await Client.connect(server.port()) as two,
            ):
                assert await one.is_closed_by_peer()
                assert await two.is_closed_by_peer()
            assert server.socket_server.connection_count == 0
        assert len(calls) == 2

    asyncio.run(scenario())
    assert caplog.text.count("RuntimeError: no mechanism") == 2


def test_all_interfaces_means_both_families() -> None:
    async def scenario() -> None:
        config = NetworkConfig(
            listeners=("PLAINTEXT://:0",), advertised_listeners=("PLAINTEXT://localhost:0",)
        )
        seen: list[str] = []

        def handler(request: Request) -> Response:
            seen.append(request.context.client_address)
            return echo(request)

        async with (
            serving(handler, config=config) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1))
            await client.receive()
        assert seen == ["127.0.0.1"]

    asyncio.run(scenario())


def test_a_client_on_the_same_host_is_not_paced() -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1))
            await client.receive()
            own_address = client.writer.get_extra_info("sockname")
            with socket_to(own_address) as accepted:
                chosen = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert chosen.rstrip(b"\0") == b"reno"

    asyncio.run(scenario())
