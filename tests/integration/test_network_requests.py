"""Requests over real sockets: order, pipelining, back-pressure, the ends of connections."""

import asyncio
import itertools
import socket
import struct

import pytest

from odradek.metrics import Histogram, MetricName, render_prometheus
from odradek.network import (
    AuthenticationStep,
    ClientInformation,
    CloseConnectionResponse,
    ConnectionContext,
    ListenerSecurity,
    NetworkConfig,
    NoOpResponse,
    Request,
    Response,
    SendResponse,
)
from odradek.network.connection import MAX_QUEUED_BYTES, SLICE_NS
from odradek.network.processor import remote_host
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_response, parse_request, parse_response
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.security.principal import Principal
from odradek.testing import ManualClock
from tests.support.network import (
    ANY_PORT,
    Client,
    answer,
    echo,
    eventually,
    frame,
    request_frame,
    serving,
)


def test_a_request_is_answered_and_its_context_is_complete() -> None:
    seen: list[ConnectionContext] = []

    def handler(request: Request) -> Response:
        seen.append(request.context)
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(7, b"hello"))
            assert await client.receive() == (7, b"hello")
            (context,) = seen
            local = client.writer.get_extra_info("sockname")
            assert context.connection_id == f"127.0.0.1:{server.port()}-127.0.0.1:{local[1]}-0"
            assert remote_host(context.connection_id) == context.client_address == "127.0.0.1"
            assert (context.listener, context.security_protocol.name) == ("PLAINTEXT", "PLAINTEXT")
            assert str(context.principal) == "User:ANONYMOUS"
            assert not context.is_control_plane

    asyncio.run(scenario())


def test_the_remote_host_of_a_connection_id_may_have_colons() -> None:
    assert remote_host("::1:9092-fe80::7:4711-12") == "fe80::7"


def test_pipelined_requests_are_served_in_one_wake_up_and_answered_in_one_write() -> None:
    """02:D-9: later frames wait in the buffer, answers leave together, in order."""

    async def scenario() -> None:
        # Without time that passes, or a machine that is busy could make two wake-ups of it.
        clock = ManualClock()
        async with (
            serving(echo, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(b"".join(request_frame(i, b"%d" % i) for i in range(50)))
            first = await client.reader.read(1 << 16)
            # 50 answers of 9 or 10 bytes: nothing was left for a second packet.
            assert len(first) == sum(8 + len(str(i)) for i in range(50))
            position = 0
            for i in range(50):
                length, correlation_id = struct.unpack_from(">ii", first, position)
                assert correlation_id == i
                assert first[position + 8 : position + 4 + length] == b"%d" % i
                position += 4 + length

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [0, 4_000])
@pytest.mark.parametrize("hangs_up", [False, True])
def test_requests_sent_ahead_leave_the_loop_to_others_in_between(hangs_up: bool, size: int) -> None:
    """02 section 12: a peer with thousands of requests in its buffer keeps no other one waiting."""
    clock = ManualClock()
    served: list[int] = []
    served_before_others: list[int] = []
    count = 60

    def handler(request: Request) -> Response:
        served.append(request.header.correlation_id)
        clock.advance(1)
        if len(served) % 10 == 1:
            asyncio.get_running_loop().call_soon(
                lambda: served_before_others.append(len(served)),
            )
        return answer(request)

    async def scenario() -> None:
        async with (
            serving(handler, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(b"".join(request_frame(i, bytes(size)) for i in range(count)))
            if hangs_up:
                client.writer.write_eof()
            for i in range(count):
                assert (await client.receive())[0] == i
            if hangs_up:
                assert await client.reader.read() == b""

    asyncio.run(scenario())
    assert served == list(range(count))
    # The next turn of the loop comes after one slice of the turn that asked for it, or within it.
    slice_count = SLICE_NS // 1_000_000
    assert served_before_others[0] <= 1 + slice_count
    assert all(
        later - earlier <= 10 + slice_count
        for earlier, later in itertools.pairwise(served_before_others)
    )


def test_the_next_request_is_not_begun_before_the_one_before_is_answered() -> None:
    """02:N-9, 02:D-9; also with answers that come from elsewhere, in another order."""
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if bytes(request.body) == b"wait":
            parked.append(request)
            return None
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server:
            channel = server.socket_server.data_channel
            async with (
                await Client.connect(server.port()) as one,
                await Client.connect(server.port()) as two,
            ):
                one.send(request_frame(1, b"wait") + request_frame(2, b"now"))
                two.send(request_frame(3, b"now"))
                assert await two.receive() == (3, b"now")
                await eventually(lambda: bool(parked))
                one.send(request_frame(4, b"wait") + request_frame(5, b"now"))
                for _ in range(5):
                    await asyncio.sleep(0.001)
                assert len(parked) == 1
                assert bytes(parked[0].body) == b"wait"  # Untouched as long as it is in process.
                channel.send_response(answer(parked[0], b"first"))
                assert await one.receive() == (1, b"first")
                assert await one.receive() == (2, b"now")
                await eventually(lambda: len(parked) == 2)
                channel.send_response(answer(parked[1], b"second"))
                assert await one.receive() == (4, b"second")
                assert await one.receive() == (5, b"now")

    asyncio.run(scenario())


def test_five_produce_requests_are_answered_in_order_although_the_second_waits() -> None:
    """11:PS-10: for acks or for whatever else; the answer is given from elsewhere."""
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if request.header.correlation_id != 1:
            return echo(request)
        parked.append(request)
        return None

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            frames = [
                request_frame(i, b"%d" % i, api_key=ApiKey.PRODUCE, version=3) for i in range(5)
            ]
            client.send(b"".join(frames))
            assert await client.receive() == (0, b"0")
            await eventually(lambda: bool(parked))
            server.socket_server.data_channel.send_response(answer(parked[0], b"1"))
            assert [await client.receive() for _ in range(4)] == [
                (i, b"%d" % i) for i in range(1, 5)
            ]

    asyncio.run(scenario())


def test_a_slow_handler_keeps_its_connection_but_no_other() -> None:
    """02:N-9 with a handler that awaits."""
    release = asyncio.Event()

    async def wait(request: Request) -> Response:
        await release.wait()
        return echo(request)

    def handler(request: Request) -> object:
        return wait(request) if bytes(request.body) == b"slow" else echo(request)

    async def scenario() -> None:
        async with (
            serving(handler) as server,  # type: ignore[arg-type]  # mypy cannot see the union
            await Client.connect(server.port()) as one,
            await Client.connect(server.port()) as two,
        ):
            one.send(request_frame(1, b"slow") + request_frame(2, b"fast"))
            two.send(request_frame(3, b"fast"))
            assert await two.receive() == (3, b"fast")
            assert server.socket_server.data_channel.suspended_count == 1
            release.set()
            assert await one.receive() == (1, b"slow")
            assert await one.receive() == (2, b"fast")

    asyncio.run(scenario())


def test_a_second_answer_to_the_same_request_goes_nowhere() -> None:
    parked: list[Request] = []

    async def scenario() -> None:
        async with (
            serving(lambda request: parked.append(request)) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1))
            await eventually(lambda: bool(parked))
            channel = server.socket_server.data_channel
            channel.send_response(answer(parked[0], b"one"))
            channel.send_response(answer(parked[0], b"two"))
            assert await client.receive() == (1, b"one")
            client.send(request_frame(2))
            await eventually(lambda: len(parked) == 2)
            channel.send_response(answer(parked[1], b"three"))
            assert await client.receive() == (2, b"three")

    asyncio.run(scenario())


@pytest.mark.parametrize("api_version", [99, 5, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(api_version: int) -> None:
    """02:N-7: and the connection stays open."""

    def handler(request: Request) -> Response:
        if request.header.api_key is not ApiKey.API_VERSIONS:
            return echo(request)
        header, _ = parse_request(request.payload)
        body = ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        )
        return SendResponse(request, [encode_response(header, body)])

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            strange = struct.pack(">hhi", 18, api_version, 5) + b"\xff\x00\x12 not of our time"
            client.send(frame(strange))
            payload = frame_payload(await client.reader.read(1000))
            correlation_id, response = parse_response(payload, ApiKey.API_VERSIONS, 4)
            assert correlation_id == 5
            assert isinstance(response, ApiVersionsResponse)
            assert response.error_code == 35
            assert [(key.api_key, key.max_version) for key in response.api_keys] == [(18, 4)]
            client.send(request_frame(6, b"still here"))
            assert await client.receive() == (6, b"still here")

    asyncio.run(scenario())


def frame_payload(data: bytes) -> bytes:
    assert struct.unpack_from(">i", data) == (len(data) - 4,)
    return data[4:]


def test_software_of_the_client_is_remembered_for_later_requests() -> None:
    seen: list[ClientInformation] = []

    def handler(request: Request) -> Response:
        seen.append(request.context.client_information)
        request.connection.register_client(ClientInformation("librdkafka", "2.16"))
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1) + request_frame(2))
            await client.receive()
            await client.receive()
            family = "kafka_server_socket_server_metrics_connections"
            labels = (
                'clientSoftwareName="librdkafka",clientSoftwareVersion="2.16",listener="PLAINTEXT"'
            )
            assert f"{family}{{{labels}}} 1.0\n" in render_prometheus(server.metrics)
            client.writer.close()
            await eventually(lambda: server.socket_server.connection_count == 0)
            assert f"{family}{{" not in render_prometheus(server.metrics)
        assert seen == [ClientInformation(), ClientInformation("librdkafka", "2.16")]

    asyncio.run(scenario())


def test_no_answer_and_no_more_connection() -> None:
    """02:N-17: what Produce with acks=0 does, in good and in bad."""

    def handler(request: Request) -> Response:
        if bytes(request.body) == b"good":
            return NoOpResponse(request)
        if bytes(request.body) == b"bad":
            return CloseConnectionResponse(request, "acks=0 failed")
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1, b"good") + request_frame(2, b"x"))
            assert await client.receive() == (2, b"x")
            client.send(request_frame(3, b"y") + request_frame(4, b"bad") + request_frame(5, b"z"))
            assert await client.receive() == (3, b"y")
            assert await client.is_closed_by_peer()
            await eventually(lambda: server.socket_server.connection_count == 0)

    asyncio.run(scenario())


def test_a_throttled_connection_is_answered_at_once_and_served_again_later() -> None:
    """02:N-18 on a socket: the answer leaves, the next request waits for the throttle's end."""
    clock = ManualClock()

    def handler(request: Request) -> Response:
        if bytes(request.body) == b"greedy":
            request.throttle(200)
        return echo(request)

    async def scenario() -> None:
        async with (
            serving(handler, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1, b"greedy") + request_frame(2, b"next"))
            assert await client.receive() == (1, b"greedy")
            clock.advance(199)
            await server.run_timers()
            (processor,) = (
                p
                for p in server.socket_server.listeners["PLAINTEXT"].processors
                if p.connection_count
            )
            assert processor.connections[0].is_muted
            clock.advance(1)
            await server.run_timers()
            assert await client.receive() == (2, b"next")
            assert not processor.connections[0].is_muted

    asyncio.run(scenario())


def test_a_wake_up_sends_its_answers_before_it_looks_after_others() -> None:
    """04b section 9, for requests that were found at one look at the sockets."""
    order: list[str] = []

    async def scenario() -> None:
        def handler(request: Request) -> Response:
            name = bytes(request.body).decode()
            order.append(f"request {name}")
            server.socket_server.after_answers(lambda: look(name))
            return echo(request)

        def look(name: str) -> None:
            try:
                peers[name].recv(1000)
                order.append(f"answer {name}")
            except BlockingIOError:
                order.append(f"no answer {name}")

        async with serving(handler) as server:
            address = ("127.0.0.1", server.port())
            with socket.create_connection(address) as one, socket.create_connection(address) as two:
                peers = {"1": one, "2": two}
                await eventually(lambda: server.socket_server.connection_count == 2)
                for name, peer in peers.items():
                    peer.setblocking(False)
                    peer.send(request_frame(1, name.encode()))
                await eventually(lambda: len(order) == 4)

    asyncio.run(scenario())
    assert sorted(order[:2]) == ["request 1", "request 2"], "one wake-up finds both"
    assert sorted(order[2:]) == ["answer 1", "answer 2"]


def test_a_throttle_that_ends_before_the_answer_waits_for_it() -> None:
    """02:N-18, swapped."""
    clock = ManualClock()
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if bytes(request.body) != b"greedy":
            return echo(request)
        request.connection.throttle(100)
        parked.append(request)
        return None

    async def scenario() -> None:
        async with (
            serving(handler, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1, b"greedy") + request_frame(2, b"next"))
            await eventually(lambda: bool(parked))
            clock.advance(100)
            await server.run_timers()
            assert len(parked) == 1
            server.socket_server.data_channel.send_response(answer(parked[0], b"late"))
            assert await client.receive() == (1, b"late")
            assert await client.receive() == (2, b"next")

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_gets_no_further_request_served() -> None:
    size = 1 << 20
    begun: list[int] = []

    def handler(request: Request) -> Response:
        begun.append(request.header.correlation_id)
        return answer(request, bytes(size))

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
            client.send(b"".join(request_frame(i) for i in range(40)))
            await eventually(lambda: bool(begun))
            for _ in range(20):
                await asyncio.sleep(0.001)
            # What the kernel takes on both sides, and one that waits in the queue.
            assert len(begun) < 20
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it can
            for i in range(40):
                correlation_id, body = await client.receive()
                assert (correlation_id, len(body)) == (i, size)
        assert begun == list(range(40))

    asyncio.run(scenario())


def test_small_answers_are_not_held_back_by_the_limit() -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as client:
            body = bytes(MAX_QUEUED_BYTES // 3)
            client.send(b"".join(request_frame(i, body) for i in range(12)))
            for i in range(12):
                assert await client.receive() == (i, body)

    asyncio.run(scenario())


def test_byte_by_byte_is_as_good_as_whole() -> None:
    async def scenario() -> None:
        async with (
            serving(echo) as server,
            await Client.connect(server.port()) as slow,
            await Client.connect(server.port()) as other,
        ):
            for byte in request_frame(1, b"slow"):
                slow.send(bytes([byte]))
                await slow.writer.drain()
                await asyncio.sleep(0)
            other.send(request_frame(2, b"other"))
            assert await other.receive() == (2, b"other")
            assert await slow.receive() == (1, b"slow")

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [20_000, 100_000, 3 << 20])
def test_large_requests_arrive_whole(size: int) -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as client:
            bodies = [bytes([i]) * (size + i) for i in range(3)]
            client.send(b"".join(request_frame(i, body) for i, body in enumerate(bodies)))
            for i, body in enumerate(bodies):
                assert await client.receive() == (i, body)

    asyncio.run(scenario())


def test_a_peer_that_has_nothing_more_to_say_still_gets_its_answers() -> None:
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if bytes(request.body) != b"wait":
            return echo(request)
        parked.append(request)
        return None

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1, b"wait") + request_frame(2, b"now") + b"\0\0")
            client.writer.write_eof()
            await eventually(lambda: bool(parked))
            server.socket_server.data_channel.send_response(answer(parked[0], b"done"))
            assert await client.receive() == (1, b"done")
            assert await client.receive() == (2, b"now")
            assert await client.is_closed_by_peer()
            assert server.socket_server.connection_count == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("is_more_sent", [False, True])
def test_a_peer_that_hangs_up_while_its_request_waits_is_noticed(is_more_sent: bool) -> None:
    """A muted connection does not read; what waits for it is let go all the same."""
    clock = ManualClock()
    parked: list[Request] = []
    abandoned: list[int] = []

    def handler(request: Request) -> None:
        request.on_abandoned = lambda: abandoned.append(request.header.correlation_id)
        parked.append(request)

    async def scenario() -> None:
        async with serving(handler, clock=clock) as server:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1))
                await eventually(lambda: bool(parked))
                if is_more_sent:
                    client.send(request_frame(2))
                    await client.writer.drain()
            await asyncio.sleep(0.01)
            # It may have closed its side alone: soon enough, an answer would have gone out.
            assert (abandoned, server.socket_server.connection_count) == ([], 1)
            clock.advance(1_000)
            await server.run_timers()
            assert (abandoned, server.socket_server.connection_count) == ([1], 0)
        assert len(parked) == 1

    asyncio.run(scenario())


def test_a_hang_up_counts_for_the_requests_behind_the_one_that_waited() -> None:
    """Each has its own time to be answered in; none waits for a peer that is long gone."""
    clock = ManualClock()
    parked: list[Request] = []
    abandoned: list[int] = []

    def handler(request: Request) -> None:
        request.on_abandoned = lambda: abandoned.append(request.header.correlation_id)
        parked.append(request)

    async def scenario() -> None:
        async with (
            serving(handler, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1) + request_frame(2))
            await eventually(lambda: bool(parked))
            client.writer.write_eof()
            await asyncio.sleep(0.01)
            server.socket_server.data_channel.send_response(answer(parked[0], b""))
            assert await client.receive() == (1, b"")
            assert len(parked) == 2
            await asyncio.sleep(0.01)
            clock.advance(1_000)
            await server.run_timers()
            assert (abandoned, server.socket_server.connection_count) == ([2], 0)

    asyncio.run(scenario())


def test_a_queued_write_of_a_peer_that_hung_up_never_begins() -> None:
    """02 section 12: the handlers that run end; the one in the queue goes with its peer."""
    clock = ManualClock()
    begun: list[int] = []
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.append(request.header.correlation_id)
        await release.wait()
        return echo(request)

    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), io_threads=1)
        async with (
            serving(handler, clock=clock, config=config) as server,
            await Client.connect(server.port()) as first,
        ):
            first.send(request_frame(1))
            await eventually(lambda: begun == [1])
            async with await Client.connect(server.port()) as second:
                second.send(request_frame(2))
                await eventually(lambda: server.socket_server.data_channel.queue_length == 1)
            await asyncio.sleep(0.01)
            clock.advance(1_000)
            await server.run_timers()
            assert server.socket_server.data_channel.queue_length == 0
            release.set()
            assert await first.receive() == (1, b"")
            assert server.socket_server.data_channel.is_idle
        assert begun == [1]

    asyncio.run(scenario())


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.FETCH, 99), (ApiKey.METADATA, 99)])
def test_a_peer_that_asks_for_a_version_nobody_serves_waits_for_its_end(
    api_key: ApiKey, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """11:PS-4: closed without an answer, as by Kafka; after a second, as it would come back."""
    clock = ManualClock()

    async def scenario() -> None:
        async with (
            serving(echo, clock=clock) as server,
            await Client.connect(server.port()) as other,
            await Client.connect(server.port()) as client,
        ):
            unknown = struct.pack(">hhih", api_key, version, 7, 4) + b"test" + bytes(20)
            client.send(request_frame(1, b"before") + frame(unknown) + request_frame(2, b"after"))
            assert await client.receive() == (1, b"before")
            other.send(request_frame(3, b"unharmed"))
            assert await other.receive() == (3, b"unharmed")
            clock.advance(999)
            await server.run_timers()
            assert server.socket_server.connection_count == 2
            clock.advance(1)
            await server.run_timers()
            assert await client.is_closed_by_peer()
        assert f"client 'test' sent api key {int(api_key)} version 99" in caplog.text

    asyncio.run(scenario())


def test_an_answer_for_a_connection_that_is_gone_is_dropped() -> None:
    parked: list[Request] = []

    async def scenario() -> None:
        async with serving(lambda request: parked.append(request)) as server:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1))
                await eventually(lambda: bool(parked))
                client.writer.transport.abort()
            (processor,) = (
                p
                for p in server.socket_server.listeners["PLAINTEXT"].processors
                if p.connection_count
            )
            server.socket_server.data_channel.send_response(answer(parked[0], bytes(1 << 20)))
            await eventually(lambda: processor.connection_count == 0)
            assert server.socket_server.connection_count == 0

    asyncio.run(scenario())


def test_what_is_to_happen_after_sending_happens_after_sending() -> None:
    done: list[int] = []

    def handler(request: Request) -> Response:
        response = echo(request)
        assert isinstance(response, SendResponse)
        number = request.header.correlation_id
        return SendResponse(request, response.chunks, lambda: done.append(number))

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1) + request_frame(2))
            await client.receive()
            await client.receive()
        assert done == [1, 2]

    asyncio.run(scenario())


def test_times_of_requests_are_measured() -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1) * 3)
            for _ in range(3):
                await client.receive()
            server.socket_server.data_channel.metrics.fold()
            histogram = server.metrics.get(
                MetricName(
                    "kafka.network", "RequestMetrics", "TotalTimeMs", (("request", "Heartbeat"),)
                )
            )
            assert isinstance(histogram, Histogram)
            assert histogram.count == 3

    asyncio.run(scenario())


class Password:
    """Lets in who says the word, in one step or two."""

    max_frame_bytes = 100

    def receive(self, payload: memoryview) -> AuthenticationStep:
        match bytes(payload):
            case b"hello":
                return AuthenticationStep(reply=[b"go on"])
            case b"sesame":
                return AuthenticationStep(reply=[b"welcome"], principal=Principal("User", "ali"))
            case _:
                return AuthenticationStep(reply=[b"no"], failure="a wrong word")


def test_requests_come_after_authentication() -> None:
    async def scenario() -> None:
        principals: list[str] = []

        def handler(request: Request) -> Response:
            principals.append(str(request.context.principal))
            return echo(request)

        security = {"PLAINTEXT": ListenerSecurity(authenticator=lambda context: Password())}
        async with serving(handler, security=security) as server:
            async with await Client.connect(server.port()) as client:
                client.send(frame(b"hello") + frame(b"sesame") + request_frame(1, bytes(1000)))
                assert await client.reader.readexactly(9) == frame(b"go on")
                assert await client.reader.readexactly(11) == frame(b"welcome")
                assert await client.receive() == (1, bytes(1000))
            assert principals == ["User:ali"]

    asyncio.run(scenario())


def test_a_failed_authentication_is_answered_then_closed_after_a_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        security = {"PLAINTEXT": ListenerSecurity(authenticator=lambda context: Password())}
        async with (
            serving(echo, security=security, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(frame(b"guess") + frame(b"sesame") + request_frame(1))
            assert await client.reader.readexactly(6) == frame(b"no")
            clock.advance(99)
            await server.run_timers()
            assert server.socket_server.connection_count == 1
            clock.advance(1)
            await server.run_timers()
            assert await client.is_closed_by_peer()
        assert [record.message.count("a wrong word") for record in caplog.records] == [1]

    asyncio.run(scenario())


class Chatty:
    """Answers much to little, and never lets anybody in."""

    max_frame_bytes = 100

    def __init__(self) -> None:
        self.received_count = 0

    def receive(self, payload: memoryview) -> AuthenticationStep:
        self.received_count += 1
        return AuthenticationStep(reply=[bytes(MAX_QUEUED_BYTES)])


def test_before_authentication_a_peer_that_does_not_read_is_not_heard() -> None:
    """What is queued for it is bounded as it is for answers."""
    chatty = Chatty()
    count = 400

    async def scenario() -> None:
        security = {"PLAINTEXT": ListenerSecurity(authenticator=lambda context: chatty)}
        async with (
            serving(echo, security=security) as server,
            await Client.connect(server.port()) as client,
        ):
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
            client.send(frame(b"hello") * count)
            await eventually(lambda: chatty.received_count > 0)
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert chatty.received_count < count // 2
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it can
            for _ in range(count):
                await client.reader.readexactly(MAX_QUEUED_BYTES + 4)
        assert chatty.received_count == count

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent", [frame(bytes(101)), struct.pack(">i", 1 << 30)], ids=["frame", "length"]
)
def test_before_authentication_frames_are_small(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        security = {"PLAINTEXT": ListenerSecurity(authenticator=lambda context: Password())}
        async with (
            serving(echo, security=security) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(sent)
            assert await client.is_closed_by_peer()
        assert "expected 1 to 100" in caplog.text

    asyncio.run(scenario())


def test_authentication_has_half_a_minute() -> None:
    clock = ManualClock()

    async def scenario() -> None:
        security = {"PLAINTEXT": ListenerSecurity(authenticator=lambda context: Password())}
        async with (
            serving(echo, security=security, clock=clock) as server,
            await Client.connect(server.port()) as client,
        ):
            await eventually(lambda: server.timer.size > 0)
            await eventually(lambda: server.socket_server.connection_count == 1)
            clock.advance(30_000)
            await server.run_timers()
            assert await client.is_closed_by_peer()

    asyncio.run(scenario())


def test_the_defaults_serve_a_client_on_loopback() -> None:
    async def scenario() -> None:
        config = NetworkConfig(listeners=(ANY_PORT,), send_buffer_bytes=-1, receive_buffer_bytes=-1)
        async with (
            serving(echo, config=config) as server,
            await Client.connect(server.port()) as client,
        ):
            client.send(request_frame(1, b"x"))
            assert await client.receive() == (1, b"x")

    asyncio.run(scenario())
