"""Our own connection to a broker: order, limits, time-outs, versions, and how it ends."""

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from odradek.errors import ApiError, DisconnectedError, ErrorCode, RequestTimedOutError
from odradek.network import (
    NoOpResponse,
    OutboundConnection,
    OutboundOptions,
    Request,
    Response,
    SendResponse,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_response, parse_request
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.versions import VersionRange
from tests.support.network import Server, answer, echo, eventually, frame, serving, socket_to

HEARTBEAT = ApiKey.HEARTBEAT


@asynccontextmanager
async def connected(
    server: Server, options: OutboundOptions | None = None, *, negotiate: bool = False
) -> AsyncIterator[OutboundConnection]:
    connection = await OutboundConnection.open(
        "127.0.0.1", server.port(), options, negotiate=negotiate
    )
    try:
        yield connection
    finally:
        connection.close()


def broker(request: Request) -> Response:
    """Answers ApiVersions and Heartbeat; knows ApiVersions up to 3."""
    header, message = parse_request(request.payload)
    body: ApiVersionsResponse | HeartbeatResponse
    if isinstance(message, ApiVersionsRequest):
        keys = [
            ApiVersion(api_key=12, min_version=0, max_version=3),
            ApiVersion(api_key=18, min_version=0, max_version=3),
            ApiVersion(api_key=9_999, min_version=0, max_version=0),
        ]
        if header.api_version > 3:
            body = ApiVersionsResponse(error_code=35, api_keys=keys[1:2])
            # As a broker does that has never heard of version 4: in the layout of 0.
            start = struct.pack(">ihi", header.correlation_id, 35, 1)
            return SendResponse(request, [start + struct.pack(">hhh", 18, 0, 3)])
        assert message.client_software_name == "odradek"
        body = ApiVersionsResponse(api_keys=keys)
    else:
        body = HeartbeatResponse(error_code=27)
    return SendResponse(request, [encode_response(header, body)])


def test_a_request_is_answered_in_a_version_both_sides_know() -> None:
    async def scenario() -> None:
        async with serving(broker) as server, connected(server, negotiate=True) as connection:
            assert connection.versions(HEARTBEAT) == VersionRange(0, 3)
            assert connection.version_for(HEARTBEAT) == 3
            assert connection.version_for(HEARTBEAT, VersionRange(0, 1)) == 1
            message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            response = await connection.request(HEARTBEAT, message)
            assert isinstance(response, HeartbeatResponse)
            assert response.error_code == 27
            for api_key, within in ((ApiKey.FETCH, None), (HEARTBEAT, VersionRange(4, 4))):
                with pytest.raises(ApiError) as raised:
                    connection.version_for(api_key, within)
                assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(scenario())


def test_many_requests_are_in_flight_and_each_gets_its_own_answer() -> None:
    async def scenario() -> None:
        async with serving(echo) as server, connected(server) as connection:
            answers = [connection.send(HEARTBEAT, 0, [b"%d" % i]) for i in range(20)]
            assert connection.in_flight_count == 20
            for i, payload in enumerate(await asyncio.gather(*answers)):
                assert bytes(payload[4:]) == b"%d" % i
            assert connection.in_flight_count == 0

    asyncio.run(scenario())


def test_large_answers_keep_their_bytes() -> None:
    async def scenario() -> None:
        async with serving(echo) as server, connected(server) as connection:
            bodies = [bytes([i]) * 300_000 for i in range(4)] + [b"small"]
            answers = [connection.send(HEARTBEAT, 0, [body]) for body in bodies]
            payloads = await asyncio.gather(*answers)
            assert [bytes(payload[4:]) for payload in payloads] == bodies

    asyncio.run(scenario())


def test_no_more_than_the_limit_are_in_flight() -> None:
    most = 0
    parked: list[Request] = []

    async def scenario() -> None:
        nonlocal most
        options = OutboundOptions(max_in_flight=2)
        async with serving(broker) as server, connected(server, options) as connection:

            async def ask() -> None:
                nonlocal most
                message = HeartbeatRequest(group_id="g", member_id="m")
                task = asyncio.ensure_future(connection.request(HEARTBEAT, message, 0))
                await asyncio.sleep(0)
                most = max(most, connection.in_flight_count)
                await task

            await asyncio.gather(*(ask() for _ in range(20)))
            assert most == 2
            assert connection.can_send

    asyncio.run(scenario())
    assert parked == []


def test_a_waiter_that_is_cancelled_gives_its_place_to_the_next() -> None:
    parked: list[Request] = []

    async def scenario() -> None:
        options = OutboundOptions(max_in_flight=1)
        async with serving(parked.append) as server, connected(server, options) as connection:
            first = connection.send(HEARTBEAT, 0, [b"first"])
            waiters = [asyncio.ensure_future(connection.wait_for_place()) for _ in range(2)]
            await asyncio.sleep(0)
            await eventually(lambda: bool(parked))
            server.socket_server.data_channel.send_response(answer(parked[0], b"done"))
            await first
            waiters[0].cancel()  # Told of the place in this very turn.
            await asyncio.wait_for(waiters[1], 60)
            assert waiters[0].cancelled()

    asyncio.run(scenario())


def test_a_request_that_cannot_be_sent_gives_its_place_to_the_next() -> None:
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if parked:
            return broker(request)
        parked.append(request)
        return None

    async def scenario() -> None:
        options = OutboundOptions(max_in_flight=1)
        async with serving(handler) as server, connected(server, options) as connection:
            first = connection.send(HEARTBEAT, 0, [b"first"])
            bad = HeartbeatRequest(group_id="g" * 40_000, member_id="m")  # Above an int16.
            good = HeartbeatRequest(group_id="g", member_id="m")
            requests = [
                asyncio.ensure_future(connection.request(HEARTBEAT, message, 0))
                for message in (bad, bad, good)
            ]
            await eventually(lambda: bool(parked))
            server.socket_server.data_channel.send_response(answer(parked[0], b"done"))
            await first
            outcomes = await asyncio.wait_for(
                asyncio.gather(*requests, return_exceptions=True), timeout=60
            )
            assert [isinstance(outcome, Exception) for outcome in outcomes] == [True, True, False]

    asyncio.run(scenario())


def test_an_answer_nobody_waits_for_any_more_is_dropped() -> None:
    parked: list[Request] = []

    def handler(request: Request) -> Response | None:
        if not parked:
            parked.append(request)
            return None
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server, connected(server) as connection:
            first = connection.send(HEARTBEAT, 0, [b"one"])
            second = connection.send(HEARTBEAT, 0, [b"two"])
            await eventually(lambda: bool(parked))
            first.cancel()
            server.socket_server.data_channel.send_response(answer(parked[0], b"one"))
            assert bytes((await second)[4:]) == b"two"

    asyncio.run(scenario())


def test_no_answer_in_time_ends_the_connection() -> None:
    async def scenario() -> None:
        ended: list[bool] = []
        parked: list[Request] = []
        async with serving(parked.append) as server, connected(server) as connection:
            connection.on_close = lambda: ended.append(True)
            late = connection.send(HEARTBEAT, 0, [b""], timeout_ms=10)
            patient = connection.send(HEARTBEAT, 0, [b""], timeout_ms=60_000)
            with pytest.raises(RequestTimedOutError, match="HEARTBEAT") as raised:
                await late
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(DisconnectedError):
                await patient
            assert connection.is_closed
            assert ended == [True]
            with pytest.raises(DisconnectedError, match="has ended"):
                connection.send(HEARTBEAT, 0, [b""])

    asyncio.run(scenario())


def test_answered_requests_do_not_time_out() -> None:
    async def scenario() -> None:
        parked: list[Request] = []

        def handler(request: Request) -> Response | None:
            if bytes(request.body) == b"quick":
                return echo(request)
            parked.append(request)
            return None

        async with (
            serving(handler) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            for timeout_ms in (20, 200, 2_000, 20_000):
                connection = await stack.enter_async_context(connected(server))
                with contextlib.suppress(RequestTimedOutError):  # A busy machine needs longer.
                    await connection.send(HEARTBEAT, 0, [b"quick"], timeout_ms=timeout_ms)
                    break
            slow = connection.send(HEARTBEAT, 0, [b"slow"], timeout_ms=120_000)
            await asyncio.sleep(2 * timeout_ms / 1000)
            assert not connection.is_closed
            await eventually(lambda: bool(parked))
            server.socket_server.data_channel.send_response(answer(parked[0], b"done"))
            assert bytes((await slow)[4:]) == b"done"

    asyncio.run(scenario())


def test_a_broker_that_hangs_up_fails_everything_that_waits() -> None:
    async def scenario() -> None:
        parked: list[Request] = []
        options = OutboundOptions(max_in_flight=2)
        async with serving(parked.append) as server, connected(server, options) as connection:
            answers = [connection.send(HEARTBEAT, 0, [b""]) for _ in range(2)]
            waiter = asyncio.ensure_future(connection.wait_for_place())
            await eventually(lambda: bool(parked))
            server.socket_server.close()
            for failed in answers:
                with pytest.raises(DisconnectedError):
                    await failed
            with pytest.raises(DisconnectedError):
                await waiter
            assert connection.is_closed

    asyncio.run(scenario())


def test_requests_without_an_answer() -> None:
    async def scenario() -> None:
        seen: list[bytes] = []

        def handler(request: Request) -> Response:
            if request.header.api_key is ApiKey.PRODUCE:
                seen.append(bytes(request.body))
                return NoOpResponse(request)
            return echo(request)

        async with serving(handler) as server, connected(server) as connection:
            connection.send_unanswered(ApiKey.PRODUCE, 7, [b"acks=0"])
            assert bytes((await connection.send(HEARTBEAT, 0, [b"x"]))[4:]) == b"x"
            assert seen == [b"acks=0"]
            connection.close()
            with pytest.raises(DisconnectedError):
                connection.send_unanswered(ApiKey.PRODUCE, 7, [b"acks=0"])

    asyncio.run(scenario())


async def raw_broker(
    reply: Callable[[asyncio.StreamWriter], None],
) -> tuple[asyncio.Server, int]:
    """A server that says something to whoever speaks to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        reply(writer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (frame(struct.pack(">i", 77)), "correlation id 77, expected 0"),
        (struct.pack(">i", -5), "frame length -5"),
        (frame(b"\0"), "ends inside its header"),
        (frame(struct.pack(">i", 0)) * 2, "no request is in flight"),
        (b"", "hung up"),
    ],
)
def test_a_broker_that_talks_nonsense_is_left(reply: bytes, why: str) -> None:
    def say(writer: asyncio.StreamWriter) -> None:
        if reply:
            writer.write(reply)
        else:
            writer.close()

    async def scenario() -> None:
        server, port = await raw_broker(say)
        async with server:
            connection = await OutboundConnection.open("127.0.0.1", port, negotiate=False)
            request = connection.send(HEARTBEAT, 0, [b""])
            if "in flight" in why:
                await request
                await eventually(lambda: connection.is_closed)
            else:
                with pytest.raises(DisconnectedError, match=why):
                    await request
            assert connection.is_closed
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()


def test_a_body_that_cannot_be_read_ends_the_connection() -> None:
    async def scenario() -> None:
        async with (
            serving(lambda request: answer(request, b"\1")) as server,
            connected(server) as connection,
        ):
            with pytest.raises(DisconnectedError, match="bad answer"):
                await connection.request(HEARTBEAT, HeartbeatRequest(group_id="g"), 0)
            assert connection.is_closed

    asyncio.run(scenario())


def test_nobody_there_is_told_with_the_address() -> None:
    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        with pytest.raises(DisconnectedError, match=rf"127\.0\.0\.1:{port}") as raised:
            await OutboundConnection.open("127.0.0.1", port)
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION

    asyncio.run(scenario())


def test_a_broker_that_says_nothing_is_given_up() -> None:
    async def scenario() -> None:
        parked: list[Request] = []
        async with serving(parked.append) as server:
            options = OutboundOptions(connect_timeout_ms=20)
            with pytest.raises(RequestTimedOutError, match="within 20 ms"):
                await OutboundConnection.open("127.0.0.1", server.port(), options)
            await eventually(lambda: bool(parked))

    asyncio.run(scenario())


def test_authentication_comes_before_the_connection_is_handed_out() -> None:
    async def scenario() -> None:
        steps: list[str] = []

        async def authenticate(connection: OutboundConnection) -> None:
            payload = await connection.send(HEARTBEAT, 0, [b"who am I"])
            steps.append(bytes(payload[4:]).decode())

        async def refuse(connection: OutboundConnection) -> None:
            raise ApiError(ErrorCode.SASL_AUTHENTICATION_FAILED)

        async with serving(echo) as server:
            async with connected(server, OutboundOptions(authenticate=authenticate)):
                assert steps == ["who am I"]
            with pytest.raises(ApiError) as raised:
                async with connected(server, OutboundOptions(authenticate=refuse)):
                    pass
            assert raised.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            await eventually(lambda: server.socket_server.connection_count == 0)

    asyncio.run(scenario())


def test_a_broker_on_the_same_host_is_not_sent_paced_bytes() -> None:
    async def scenario() -> None:
        async with serving(broker) as server, connected(server):
            with socket_to(("127.0.0.1", server.port())) as sock:
                chosen = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert chosen.rstrip(b"\0") == b"reno"

    asyncio.run(scenario())
