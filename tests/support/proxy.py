"""A way to a broker that a test can damage: cuts, half-closed sockets, silence."""

import asyncio
import contextlib
from collections.abc import Iterator

from odradek.client.blocking import LoopThread

__all__ = ["Proxy", "proxied"]

_CHUNK_BYTES = 64 * 1024


class Proxy:
    """Passes bytes between clients and a broker, as long as nobody interferes."""

    def __init__(self, port: int) -> None:
        self.port = port  # Where clients connect.
        self.broker_port = 0  # Where they end up; set before the first of them comes.
        self.is_deaf = False  # Whether answers are swallowed.
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = LoopThread("proxy")

    def cut(self) -> None:
        """End every connection, in the middle of whatever it was doing."""
        self._thread.run(self._cut())

    def half_close(self) -> None:
        """Tell clients that nothing more will come, and go on listening to them."""
        self._thread.run(self._half_close())

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _half_close(self) -> None:
        for writer in self._writers:
            if writer.get_extra_info("sockname")[1] == self.port and writer.can_write_eof():
                with contextlib.suppress(OSError, RuntimeError):
                    writer.write_eof()

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
            reader, writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            client_writer.transport.abort()
            return
        self._writers |= {client_writer, writer}
        try:
            await asyncio.gather(
                self._pass(client_reader, writer, is_answer=False),
                self._pass(reader, client_writer, is_answer=True),
            )
        finally:
            self._writers -= {client_writer, writer}
            client_writer.close()
            writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if not (is_answer and self.is_deaf):
                    writer.write(chunk)
                    await writer.drain()
        # One side has ended: so does the other.
        writer.transport.abort()


@contextlib.contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy on a port, on a thread of its own, until the block ends."""
    proxy = Proxy(port)
    proxy._thread.run(proxy._start())
    try:
        yield proxy
    finally:
        proxy._thread.run(proxy._stop())
        proxy._thread.stop()
