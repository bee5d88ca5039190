"""Bytes nobody should send: one line in the log, an end, and no harm to anybody else."""

import asyncio
import contextlib
import logging
import random
import struct

import pytest

from odradek.network import Request, Response
from odradek.protocol.envelope import parse_request
from odradek.testing import ManualClock
from tests.support.network import Client, echo, eventually, frame, request_frame, serving

HOSTILE = {
    "2 GB": struct.pack(">i", 2**31 - 1),
    "just above the limit": struct.pack(">i", 104_857_601),
    "negative": struct.pack(">i", -1),
    "zero": struct.pack(">i", 0) + request_frame(1),
    "http": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "header cut short": frame(b"\x00\x12\x00"),
    "unknown api": frame(struct.pack(">hhih", 9_999, 0, 1, -1)),
    "unknown version": frame(struct.pack(">hhih", 3, 99, 1, -1)),
    "negative version": frame(struct.pack(">hhih", 3, -5, 1, -1)),
    "client id beyond the frame": frame(struct.pack(">hhih", 12, 0, 1, 500)),
    "client id of negative length": frame(struct.pack(">hhih", 12, 0, 1, -7)),
    "client id that is no text": frame(struct.pack(">hhih", 12, 0, 1, 2) + b"\xff\xfe"),
    "tags without end": frame(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("sent", [pytest.param(data, id=name) for name, data in HOSTILE.items()])
def test_one_line_and_an_end(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as other:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(5, b"before") + sent)
                assert await client.receive() == (5, b"before")
                assert await client.is_closed_by_peer()
            other.send(request_frame(6, b"unharmed"))
            assert await other.receive() == (6, b"unharmed")
            assert server.socket_server.connection_count == 1

    asyncio.run(scenario())
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "127.0.0.1" in caplog.text


def test_a_malformed_body_closes_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    """02:N-8."""

    def handler(request: Request) -> Response:
        parse_request(request.payload)
        return echo(request)

    async def scenario() -> None:
        body = struct.pack(">h", 1) + b"g" + struct.pack(">ih", 1, 1) + b"m"
        async with serving(handler) as server, await Client.connect(server.port()) as other:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1, b"\x7f\xff"))
                assert await client.is_closed_by_peer()
            other.send(request_frame(2, body))
            assert await other.receive() == (2, body)

    asyncio.run(scenario())
    [fields] = map(vars, caplog.records)
    assert (fields["api"], fields["reason"]) == ("HEARTBEAT", "request")
    assert (fields["client_address"], fields["listener"]) == ("127.0.0.1", "PLAINTEXT")
    assert "HEARTBEAT v0" in caplog.text
    assert "127.0.0.1" in caplog.text


def test_a_flood_of_bad_connections_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving(echo, clock=ManualClock()) as server:  # All within one second.
            for _ in range(60):
                async with await Client.connect(server.port()) as client:
                    client.send(HOSTILE["http"])
                    assert await client.is_closed_by_peer()
            await eventually(lambda: server.socket_server.connection_count == 0)

    asyncio.run(scenario())
    assert 10 <= len(caplog.records) <= 59


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_never_hurt(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    source = random.Random(seed)

    async def scenario() -> None:
        async with serving(echo) as server, await Client.connect(server.port()) as other:
            async with await Client.connect(server.port()) as client:
                for _ in range(source.randrange(1, 6)):
                    noise = source.randbytes(source.randrange(1, 300))
                    client.send(frame(noise) if source.random() < 0.7 else noise)
                client.writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    await client.reader.read()
            other.send(request_frame(1, b"unharmed"))
            assert await other.receive() == (1, b"unharmed")
            await eventually(lambda: server.socket_server.connection_count == 1)

    asyncio.run(scenario())
    assert len([record for record in caplog.records if record.levelno > logging.INFO]) <= 1
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)


def test_a_bug_of_ours_closes_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: Request) -> Response:
        if bytes(request.body) == b"bug":
            raise RuntimeError("a bug")
        return echo(request)

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as other:
            async with await Client.connect(server.port()) as client:
                client.send(request_frame(1, b"bug"))
                assert await client.is_closed_by_peer()
            other.send(request_frame(2, b"fine"))
            assert await other.receive() == (2, b"fine")

    asyncio.run(scenario())
    assert "RuntimeError: a bug" in caplog.text
