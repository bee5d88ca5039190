"""TLS listeners: round trips, files, handshakes that fail, and peers that speak something else."""

import asyncio
import os
import socket
import ssl
from pathlib import Path

import pytest

from odradek.errors import DisconnectedError
from odradek.network import (
    ListenerSecurity,
    NetworkConfig,
    OutboundConnection,
    OutboundOptions,
    Request,
    Response,
)
from odradek.protocol.api_keys import ApiKey
from odradek.security.principal import Principal
from odradek.testing import ManualClock
from tests.support.network import (
    Client,
    Region,
    answer,
    echo,
    eventually,
    make_certificate,
    request_frame,
    serving,
)

CONFIG = NetworkConfig(listeners=("SSL://127.0.0.1:0",), inter_broker_protocol="SSL")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def client_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


def test_requests_and_files_come_through_unchanged(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    data = os.urandom(1 << 20)
    path = tmp_path / "segment"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)

    def handler(request: Request) -> Response:
        return answer(request, bytes(request.body), Region(fd, 0, len(data)), Region(fd, 3, 100))

    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(handler, config=CONFIG, security=security) as server:
            options = {"ssl": client_tls, "server_hostname": "localhost"}
            async with await Client.connect(server.port("SSL"), **options) as client:
                client.send(b"".join(request_frame(i, b"body") for i in range(5)))
                for i in range(5):
                    assert await client.receive() == (i, b"body" + data + data[3:103])

    asyncio.run(scenario())
    os.close(fd)


def test_large_requests_and_a_reader_that_waits(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            options = {"ssl": client_tls, "server_hostname": "localhost"}
            async with await Client.connect(server.port("SSL"), **options) as client:
                body = os.urandom(700_000)
                client.send(b"".join(request_frame(i, body) for i in range(6)))
                for _ in range(10):
                    await asyncio.sleep(0.002)
                for i in range(6):
                    assert await client.receive() == (i, body)

    asyncio.run(scenario())


def test_bytes_that_wait_inside_tls_are_found_after_an_answer(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    """One record with two requests: nothing is readable while the second waits for the first."""
    parked: list[Request] = []

    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        handler = parked.append
        async with serving(handler, config=CONFIG, security=security) as server:
            options = {"ssl": client_tls, "server_hostname": "localhost"}
            async with await Client.connect(server.port("SSL"), **options) as client:
                big = bytes(12_000)
                client.send(request_frame(1, big) + request_frame(2, big) + request_frame(3, big))
                for i in range(3):
                    await eventually(lambda count=i: len(parked) == count + 1)  # type: ignore[misc]  # bound now
                    channel = server.socket_server.data_channel
                    channel.send_response(answer(parked[i], b"done"))
                    assert await client.receive() == (i + 1, b"done")

    asyncio.run(scenario())


def test_our_own_connection_speaks_tls(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            options = OutboundOptions(tls=client_tls, server_hostname="localhost")
            connection = await OutboundConnection.open(
                "127.0.0.1", server.port("SSL"), options, negotiate=False
            )
            body = os.urandom(300_000)
            answers = [connection.send(ApiKey.HEARTBEAT, 0, [body, b"%d" % i]) for i in range(4)]
            for i, payload in enumerate([await future for future in answers]):
                assert bytes(payload[4:]) == body + b"%d" % i
            connection.close()

    asyncio.run(scenario())


def test_a_certificate_nobody_trusts_is_refused(
    server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            options = OutboundOptions(tls=ssl.create_default_context())
            with pytest.raises(DisconnectedError, match="CERTIFICATE_VERIFY_FAILED"):
                await OutboundConnection.open("localhost", server.port("SSL"), options)
            await eventually(lambda: server.socket_server.connection_count == 0)

    asyncio.run(scenario())


def test_a_principal_comes_from_the_certificate(
    certificate: tuple[Path, Path], server_tls: ssl.SSLContext, client_tls: ssl.SSLContext
) -> None:
    server_tls.verify_mode = ssl.CERT_REQUIRED
    server_tls.load_verify_locations(str(certificate[0]))
    client_tls.load_cert_chain(*certificate)
    seen: list[str] = []

    def handler(request: Request) -> Response:
        seen.append(str(request.context.principal))
        return echo(request)

    def principal_of(der: bytes | None) -> Principal:
        assert der == ssl.PEM_cert_to_DER_cert(certificate[0].read_text())
        return Principal("User", "CN=localhost")

    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls, principal_of=principal_of)}
        async with serving(handler, config=CONFIG, security=security) as server:
            options = {"ssl": client_tls, "server_hostname": "localhost"}
            async with await Client.connect(server.port("SSL"), **options) as client:
                client.send(request_frame(1))
                await client.receive()
        assert seen == ["User:CN=localhost"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent",
    [request_frame(1, b"plain"), b"GET / HTTP/1.1\r\n\r\n", bytes(300), os.urandom(300)],
    ids=["kafka", "http", "zeros", "random"],
)
def test_plain_bytes_on_a_tls_port_give_one_line_and_an_end(
    sent: bytes, server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            async with await Client.connect(server.port("SSL")) as client:
                client.send(sent)
                await client.is_closed_by_peer()  # An alert may come before.
            await eventually(lambda: server.socket_server.connection_count == 0)
        assert [record.message.count("TLS failed") for record in caplog.records] == [1]

    asyncio.run(scenario())


def test_a_tls_hello_on_a_plain_port_gives_one_line_and_an_end(
    client_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(echo) as server:
            options = OutboundOptions(tls=client_tls, server_hostname="localhost")
            with pytest.raises(DisconnectedError):
                await OutboundConnection.open("127.0.0.1", server.port(), options)
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1, b"fine"))
                assert await client.receive() == (1, b"fine")
        assert [record.message.count("a TLS hello") for record in caplog.records] == [1]

    asyncio.run(scenario())


def test_a_handshake_has_ten_seconds(
    server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with (
            serving(echo, config=CONFIG, security=security, clock=clock) as server,
            await Client.connect(server.port("SSL")) as client,
        ):
            client.send(b"\x16\x03\x01")
            await eventually(lambda: server.timer.size > 0)
            clock.advance(10_000)
            await server.run_timers()
            assert await client.is_closed_by_peer()
        assert "not finished within 10000 ms" in caplog.text

    asyncio.run(scenario())


def test_hanging_up_during_the_handshake_is_no_news(
    server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            with socket.create_connection(("127.0.0.1", server.port("SSL"))) as sock:
                sock.send(b"\x16\x03\x01\x02\x00")
            await eventually(lambda: server.socket_server.connection_count == 0)
        assert caplog.records == []

    asyncio.run(scenario())


def test_new_certificates_are_for_new_connections(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    other = make_certificate(tmp_path)
    other_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other_tls.load_cert_chain(*other)
    options = {"server_hostname": "localhost"}

    async def scenario() -> None:
        security = {"SSL": ListenerSecurity(tls=server_tls)}
        async with serving(echo, config=CONFIG, security=security) as server:
            port = server.port("SSL")
            async with await Client.connect(port, ssl=client_tls, **options) as old:
                server.socket_server.replace_security("ssl", ListenerSecurity(tls=other_tls))
                with pytest.raises(ssl.SSLCertVerificationError):
                    await Client.connect(port, ssl=client_tls, **options)
                trusting = ssl.create_default_context(cafile=str(other[0]))
                async with await Client.connect(port, ssl=trusting, **options) as new:
                    for client in (old, new):
                        client.send(request_frame(1, b"x"))
                        assert await client.receive() == (1, b"x")

    asyncio.run(scenario())
