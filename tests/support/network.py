"""A server of the network layer on loopback, and clients that speak in raw bytes."""

import asyncio
import contextlib
import os
import random
import socket
import stat
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from odradek.clock import PreciseClock, SystemClock
from odradek.metrics import MetricRegistry
from odradek.network import (
    Handler,
    ListenerLimits,
    ListenerSecurity,
    NetworkConfig,
    Request,
    Response,
    SendResponse,
    SocketServer,
)
from odradek.network.page_cache import PageCache
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    parse_response_header,
)
from odradek.purgatory import SystemTimer

ANY_PORT = "PLAINTEXT://127.0.0.1:0"


class Region(NamedTuple):
    """A piece of an open file, as storage hands it out."""

    fd: int
    position: int
    length: int
    is_recent: bool = False


class Server(NamedTuple):
    """A running server and what it was made of."""

    socket_server: SocketServer
    timer: SystemTimer
    metrics: MetricRegistry

    def port(self, listener: str = "PLAINTEXT") -> int:
        return self.socket_server.bound_port(listener)

    async def run_timers(self) -> None:
        """After a manual clock was moved: run what is due, and what follows from it."""
        for _ in range(5):
            self.timer.advance_clock(0)
            await asyncio.sleep(0)


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    config: NetworkConfig | None = None,
    clock: PreciseClock | None = None,
    security: dict[str, ListenerSecurity] | None = None,
    limits: dict[str, ListenerLimits] | None = None,
    control_handler: Handler | None = None,
    pages: PageCache | None = None,
) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    clock = clock or SystemClock()
    timer = SystemTimer("network", loop=loop, clock=clock)
    timer.drive_with(lambda: timer.advance_clock(0))
    metrics = MetricRegistry(clock, random.Random(1))
    server = SocketServer(
        config or NetworkConfig(listeners=(ANY_PORT,)),
        handler,
        broker_id=0,
        loop=loop,
        timer=timer,
        clock=clock,
        metrics=metrics,
        security=security,
        limits=limits,
        control_handler=control_handler,
        pages=pages,
    )
    try:
        async with server:
            server.bind()
            server.start_processing()
            yield Server(server, timer, metrics)
    finally:
        timer.shutdown()


def answer(request: Request, *chunks: bytes | Region) -> SendResponse:
    """A response with its header; the chunks are the body."""
    header = request.header
    start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return SendResponse(request, [start, *chunks])


def echo(request: Request) -> Response:
    """Answers with the body it was sent."""
    return answer(request, bytes(request.body))


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def request_frame(
    correlation_id: int,
    body: bytes = b"",
    *,
    api_key: ApiKey = ApiKey.HEARTBEAT,
    version: int = 0,
    client_id: str = "test",
) -> bytes:
    header = RequestHeader(api_key, version, correlation_id, client_id)
    return frame(encode_request_header(header) + body)


class Client:
    """A connection that sends what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, **options: object) -> Self:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)  # type: ignore[arg-type]  # passed through
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> tuple[int, bytes]:
        """The next answer: correlation id and body. For requests that are not flexible."""
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        payload = await self.reader.readexactly(length)
        correlation_id, position = parse_response_header(payload, ApiKey.HEARTBEAT, 0)
        return correlation_id, payload[position:]

    async def is_closed_by_peer(self) -> bool:
        """Wait for the end of the stream; whether nothing came before it."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


async def eventually(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Let the loop run until something is true."""
    deadline = asyncio.get_running_loop().time() + 60
    turn = 0
    while asyncio.get_running_loop().time() < deadline:
        if condition():
            return
        turn += 1
        await asyncio.sleep(0 if turn < 50 else 0.002)
    raise AssertionError(f"{what} never came true")


def socket_to(peer: tuple[str, int]) -> socket.socket:
    """A copy of this process's socket that is connected to the peer."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                copy = socket.socket(fileno=os.dup(int(name)))
                with contextlib.suppress(OSError):
                    if copy.getpeername() == peer:
                        return copy
                copy.close()
    raise AssertionError(f"nobody is connected to {peer}")


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost; its file and that of its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key
