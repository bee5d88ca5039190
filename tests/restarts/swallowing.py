"""A way to a broker on which answers to Produce requests can be swallowed.

The requests pass, so the broker appends what it gets, and its client waits for answers until the
connection ends, with as many requests in flight as it likes to have.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from odradek.client.blocking import LoopThread
from odradek.protocol.api_keys import ApiKey

__all__ = ["SwallowingProxy", "swallowing"]

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # API key, version, correlation id.
_CORRELATION = struct.Struct(">i")


@dataclass(slots=True)
class _Way:
    """One connection: its Produce requests that have no answer yet, and those swallowed."""

    waiting: set[int] = field(default_factory=set)
    swallowed: int = 0


class SwallowingProxy:
    """Passes requests and answers between clients and a broker, frame by frame.

    Attributes:
        swallowed: Answers to Produce requests that no client got, of all connections.
        most_in_flight: Produce requests that one connection had in flight at most.
    """

    def __init__(self, port: int, broker_port: int) -> None:
        self.port = port
        self.swallowed = 0
        self.most_in_flight = 0
        self._broker_port = broker_port
        self._is_swallowing = False
        self._wanted = 0
        self._reached = threading.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = LoopThread("swallowing")

    def swallow(self, count: int, limit_s: float) -> bool:
        """Swallows answers from now on; whether so many were, of one connection, in time."""
        self._wanted = count
        self._reached.clear()
        self._is_swallowing = True
        return self._reached.wait(limit_s)

    def pass_on(self) -> None:
        """Ends all connections, and swallows nothing on those to come."""
        self._thread.run(self._cut())
        self._is_swallowing = False

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()

    async def _serve(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            client_writer.transport.abort()
            return
        both = {client_writer, writer}
        self._writers |= both
        way = _Way()
        try:
            await asyncio.gather(
                self._pass_requests(way, client_reader, writer),
                self._pass_answers(way, reader, client_writer),
            )
        finally:
            self._writers -= both

    async def _pass_requests(
        self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                key, _, correlation = _REQUEST.unpack_from(frame, _LENGTH.size)
                if key == ApiKey.PRODUCE:
                    way.waiting.add(correlation)
                    in_flight = len(way.waiting) + way.swallowed
                    self.most_in_flight = max(self.most_in_flight, in_flight)
                writer.write(frame)
                await writer.drain()
        writer.transport.abort()  # One side has ended: so does the other.

    async def _pass_answers(
        self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                (correlation,) = _CORRELATION.unpack_from(frame, _LENGTH.size)
                is_produce = correlation in way.waiting
                way.waiting.discard(correlation)
                if is_produce and (self._is_swallowing or way.swallowed):
                    # Nothing comes after an answer that is missing: clients take them in order.
                    way.swallowed += 1
                    self.swallowed += 1
                    if way.swallowed >= self._wanted:
                        self._reached.set()
                    continue
                writer.write(frame)
                await writer.drain()
        writer.transport.abort()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_LENGTH.size)
    return head + await reader.readexactly(_LENGTH.unpack(head)[0])


@contextlib.contextmanager
def swallowing(port: int, broker_port: int) -> Iterator[SwallowingProxy]:
    """Such a proxy on a port, on a thread of its own, until the block ends."""
    proxy = SwallowingProxy(port, broker_port)
    proxy._thread.run(proxy._start())
    try:
        yield proxy
    finally:
        proxy._thread.run(proxy._stop())
        proxy._thread.stop()
