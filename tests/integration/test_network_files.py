"""Pieces of files as answers: sendfile, small ones read, peers that take little at a time."""

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.network import NetworkConfig, Request, Response
from odradek.network.send_queue import SendQueue, TruncatedFileError
from tests.support.descriptors import copies_of
from tests.support.network import (
    ANY_PORT,
    Client,
    Region,
    answer,
    eventually,
    request_frame,
    serving,
)

SIZE = 3 << 20


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    data = random.Random(5).randbytes(SIZE)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDWR)
    yield fd, data
    os.close(fd)


@pytest.mark.parametrize("length", [1, 16_384, 16_385, 65_536, SIZE - 10])
def test_a_region_arrives_byte_for_byte(segment: tuple[int, bytes], length: int) -> None:
    fd, data = segment

    def handler(request: Request) -> Response:
        return answer(request, b"before", Region(fd, 10, length), b"after", Region(fd, 0, 10))

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1) + request_frame(2))
            for i in (1, 2):
                correlation_id, body = await client.receive()
                assert correlation_id == i
                assert body == b"before" + data[10 : 10 + length] + b"after" + data[:10]

    asyncio.run(scenario())


def test_a_reader_that_takes_little_gets_it_all(segment: tuple[int, bytes]) -> None:
    """Partial sends in the middle of buffers and of files."""
    fd, data = segment
    config = NetworkConfig(listeners=(ANY_PORT,), send_buffer_bytes=4096)
    body = b"x" * 30_000

    def handler(request: Request) -> Response:
        return answer(request, body, Region(fd, 0, 200_000), body, Region(fd, 7, 100_000), body)

    async def scenario() -> None:
        async with serving(handler, config=config) as server:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, ("127.0.0.1", server.port()))
            await loop.sock_sendall(sock, request_frame(1) + request_frame(2))
            expected = body + data[:200_000] + body + data[7:100_007] + body
            received = b""
            while len(received) < 2 * (len(expected) + 8):
                received += await loop.sock_recv(sock, 3_000)
            sock.close()
        assert received[8 : 8 + len(expected)] == expected
        assert received[len(expected) + 16 :] == expected

    asyncio.run(scenario())


def test_a_segment_may_be_closed_while_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    path.write_bytes(b"q" * SIZE)

    def handler(request: Request) -> Response:
        fd = os.open(path, os.O_RDONLY)
        response = answer(request, Region(fd, 0, SIZE))
        asyncio.get_running_loop().call_soon(os.close, fd)
        asyncio.get_running_loop().call_soon(path.unlink)
        return response

    async def scenario() -> None:
        async with serving(handler) as server, await Client.connect(server.port()) as client:
            client.send(request_frame(1))
            _, body = await client.receive()
            assert body == b"q" * SIZE
        assert not path.exists()

    asyncio.run(scenario())


def test_a_file_that_was_cut_ends_the_connection(
    segment: tuple[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    fd, _ = segment

    async def scenario() -> None:
        async with (
            serving(lambda request: answer(request, Region(fd, 0, SIZE))) as server,
            await Client.connect(server.port()) as client,
        ):
            os.ftruncate(fd, 1000)
            client.send(request_frame(1))
            received = await client.reader.read()
            assert len(received) == 8 + 1000
            await eventually(lambda: server.socket_server.connection_count == 0)
        assert [record.message.count("a file was cut") for record in caplog.records] == [1]

    asyncio.run(scenario())


def test_descriptors_of_unsent_answers_are_given_back(segment: tuple[int, bytes]) -> None:
    fd, _ = segment

    async def scenario() -> None:
        # The system's own buffers might take all of the answer.
        config = NetworkConfig(listeners=(ANY_PORT,), send_buffer_bytes=16_384)
        give_all = lambda request: answer(request, Region(fd, 0, SIZE))  # noqa: E731
        async with serving(give_all, config=config) as server:
            async with await Client.connect(server.port()) as client:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it can
                client.send(request_frame(1))
                await eventually(lambda: copies_of(fd) == 2)
                client.writer.transport.abort()
            await eventually(lambda: copies_of(fd) == 1)

    asyncio.run(scenario())


def test_the_queue_alone_survives_every_split() -> None:
    """Thousands of tiny chunks through a socket that takes a few kilobytes."""
    left, right = socket.socketpair()
    with left, right:
        for sock in (left, right):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        queue = SendQueue()
        expected = b""
        for i in range(2_000):
            parts = [b"%d" % i, b"-" * (i % 97)]
            queue.append_frame(parts)
            payload = b"".join(parts)
            expected += len(payload).to_bytes(4, "big") + payload
        received = b""
        while len(received) < len(expected):
            queue.flush_to_socket(left)
            try:
                received += right.recv(1500)
            except BlockingIOError:
                continue
        assert received == expected
        assert not queue
        assert queue.sent_bytes == queue.enqueued_bytes == len(expected)


def test_the_queue_reports_a_cut_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(50_000))
    fd = os.open(path, os.O_RDWR)
    left, right = socket.socketpair()
    with left, right:
        queue = SendQueue()
        queue.append_frame([Region(fd, 0, 50_000)])
        os.ftruncate(fd, 0)
        os.close(fd)
        with pytest.raises(TruncatedFileError, match="50000 bytes too early"):
            queue.flush_to_socket(left)
        queue.clear()
