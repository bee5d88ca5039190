"""Pieces of files that are not in memory: a thread reads them, and the loop serves others."""

import asyncio
import os
import random
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.network import ListenerSecurity, NetworkConfig, Request, Response
from odradek.network.connection import MAX_QUEUED_FILES
from odradek.network.page_cache import READ_AHEAD_BYTES, READ_AHEAD_THREADS, PageCache
from tests.support.descriptors import copies_of
from tests.support.network import (
    Client,
    Region,
    Server,
    answer,
    eventually,
    make_certificate,
    request_frame,
    serving,
)

SIZE = 3 * READ_AHEAD_BYTES + 1000


@pytest.fixture
def segment() -> Iterator[tuple[int, bytes]]:
    data = random.Random(5).randbytes(SIZE)
    # Temporary files may be in memory, where none is ever cold.
    with tempfile.TemporaryFile(dir="/var/tmp", buffering=0) as file:
        file.write(data)
        yield file.fileno(), data


class ColdPages(PageCache):
    """Nothing is in memory before it was read, and reading takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.loads: list[tuple[int, int]] = []

    def read(self, fd: int, length: int, position: int) -> bytes | bytearray | None:
        return None

    def warm_bytes(self, fd: int, position: int, length: int) -> int:
        return 0

    def load(self, fd: int, position: int, length: int, go_on: Callable[[], bool]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.loads.append((position, length))
        assert self.gate.wait(60)
        super().load(fd, position, length, go_on)


@pytest.fixture
def pages() -> Iterator[ColdPages]:
    pages = ColdPages()
    yield pages
    pages.gate.set()  # Also after a failure: threads are waited for at the end of the process.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def serving_from(
    pages: PageCache,
    handler: Callable[[Request], Response],
    certificate: tuple[Path, Path] | None = None,
) -> AsyncIterator[tuple[Server, Callable[[], Coroutine[None, None, Client]]]]:
    """A server, with TLS if there is a certificate, and what connects a client to it."""
    if certificate is None:
        async with serving(handler, pages=pages) as server:
            yield server, lambda: Client.connect(server.port())
        return
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    client_tls = ssl.create_default_context(cafile=str(certificate[0]))
    config = NetworkConfig(listeners=("SSL://127.0.0.1:0",), inter_broker_protocol="SSL")
    security = {"SSL": ListenerSecurity(tls=tls)}
    async with serving(handler, config=config, security=security, pages=pages) as server:
        options = {"ssl": client_tls, "server_hostname": "localhost"}
        yield server, lambda: Client.connect(server.port("SSL"), **options)


@pytest.mark.parametrize("length", [1, 16_384, 16_385, SIZE - 10])
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_others_are_served_while_a_file_is_read(
    segment: tuple[int, bytes],
    pages: ColdPages,
    certificate: tuple[Path, Path],
    is_encrypted: bool,
    length: int,
) -> None:
    """02 section 12: nobody keeps the loop, a disk neither."""
    fd, data = segment

    def handler(request: Request) -> Response:
        if bytes(request.body) == b"bystander":
            return answer(request, b"served")
        return answer(request, b"before", Region(fd, 10, length), b"after", Region(fd, 0, 10))

    async def scenario() -> None:
        async with (
            serving_from(pages, handler, certificate if is_encrypted else None) as (_, connect),
            await connect() as client,
            await connect() as bystander,
        ):
            client.send(request_frame(1) + request_frame(2))
            await eventually(lambda: len(pages.loads) == 1)
            for i in range(3):
                bystander.send(request_frame(i, b"bystander"))
                assert await bystander.receive() == (i, b"served")
            assert len(pages.loads) == 1  # One at a time for a connection.
            pages.gate.set()
            for i in (1, 2):
                body = b"before" + data[10 : 10 + length] + b"after" + data[:10]
                assert await client.receive() == (i, body)
        pieces = -(-length // READ_AHEAD_BYTES)
        assert len(pages.loads) == 2 * (pieces + 1)
        assert max(count for _, count in pages.loads) <= READ_AHEAD_BYTES
        assert copies_of(fd) == 1

    asyncio.run(scenario())


def test_a_peer_that_hangs_up_meanwhile_is_let_go(
    segment: tuple[int, bytes], pages: ColdPages
) -> None:
    fd, _ = segment

    async def scenario() -> None:
        handler = lambda request: answer(request, Region(fd, 0, SIZE))  # noqa: E731
        async with serving_from(pages, handler) as (server, connect), await connect() as client:
            client.send(request_frame(1))
            await eventually(lambda: len(pages.loads) == 1)
            client.writer.transport.abort()
            pages.gate.set()
            await eventually(lambda: server.socket_server.connection_count == 0)
            await eventually(lambda: copies_of(fd) == 1)

    asyncio.run(scenario())


def test_a_server_that_closes_meanwhile_leaves_no_descriptor(
    segment: tuple[int, bytes], pages: ColdPages
) -> None:
    fd, _ = segment

    async def scenario() -> None:
        handler = lambda request: answer(request, Region(fd, 0, SIZE))  # noqa: E731
        async with serving_from(pages, handler) as (server, connect):
            clients = [await connect() for _ in range(READ_AHEAD_THREADS + 3)]
            for client in clients:
                client.send(request_frame(1))
            await eventually(lambda: copies_of(fd) == 1 + 2 * len(clients))
            assert len(pages.loads) == READ_AHEAD_THREADS  # The others wait for a thread.
            server.socket_server.close()
            assert copies_of(fd) == 1 + READ_AHEAD_THREADS  # What threads are reading.
            pages.gate.set()
            await eventually(lambda: copies_of(fd) == 1)
            for client in clients:
                client.writer.close()

    asyncio.run(scenario())


def test_descriptors_of_many_answers_are_bounded(
    segment: tuple[int, bytes], pages: ColdPages
) -> None:
    """A peer that asks much at once gets what it asked, but no more than a few files are held."""
    fd, data = segment
    each, requests = 5, 40
    held: list[int] = []

    def handler(request: Request) -> Response:
        held.append(copies_of(fd))
        return answer(request, *(Region(fd, i, 1) for i in range(each)))

    async def scenario() -> None:
        async with serving_from(pages, handler) as (_, connect), await connect() as client:
            client.send(b"".join(request_frame(i) for i in range(requests)))
            # Perhaps in several turns of the loop: a turn serves one connection for a few ms.
            most = MAX_QUEUED_FILES // each + 1
            await eventually(lambda: len(pages.loads) == 1 and len(held) == most)
            pages.gate.set()
            for i in range(requests):
                assert await client.receive() == (i, data[:each])
        assert max(held) <= 1 + MAX_QUEUED_FILES + 1  # The file itself, and that of the thread.

    asyncio.run(scenario())


def test_the_page_cache_tells_warm_from_cold(segment: tuple[int, bytes]) -> None:
    fd, data = segment
    pages = PageCache()
    assert pages.warm_bytes(fd, 5, SIZE - 5) == SIZE - 5
    assert pages.read(fd, 10, 5) == data[5:15]
    assert pages.read(fd, 10, SIZE - 5) is None  # The file is too short.
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if pages.warm_bytes(fd, 0, SIZE):
        pytest.skip("this file system does not tell, or keeps its pages")
    # Again, since the question above may have begun to read ahead.
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert pages.read(fd, 10, 5) is None
    pages.load(fd, 0, SIZE, lambda: True)
    assert pages.warm_bytes(fd, 0, SIZE) == SIZE
    assert pages.read(fd, 10, 5) == data[5:15]


def test_a_file_system_that_cannot_tell_counts_as_warm() -> None:
    fd = os.open("/proc/self/status", os.O_RDONLY)
    try:
        pages = PageCache()
        assert pages.warm_bytes(fd, 0, 20) == 20
        assert pages.read(fd, 5, 0) == b"Name:"
    finally:
        os.close(fd)
