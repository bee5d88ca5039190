"""A way to a ZooKeeper server that a test can damage, frame by frame, on the test's own loop."""

import asyncio
import contextlib
import struct
from typing import Self

__all__ = ["ZooKeeperProxy"]

_LENGTH = struct.Struct(">i")
_XID = struct.Struct(">i")


class ZooKeeperProxy:
    """Passes frames between clients and a server, as long as the test does not interfere.

    Attributes:
        is_closed: Whether new connections are refused.
        is_deaf: Whether frames of the server are swallowed, on every connection.
        is_mute: Whether frames of clients are swallowed.
    """

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = 0
        self.is_closed = False
        self.is_deaf = False
        self.is_mute = False
        self.connections = 0  # Accepted so far.
        self.answered = asyncio.Event()  # An answer was withheld by `cut_after_request`.
        self._cut_before = False
        self._cut_after = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut_before_request(self) -> None:
        """Breaks the link when the next request comes, which the server does not get."""
        self._cut_before = True

    def cut_after_request(self, count: int = 1) -> None:
        """Breaks the link when the server answers to the next requests, instead of passing that."""
        self._cut_after = count

    def cut(self) -> None:
        """Breaks all links."""
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        """Breaks all links, and refuses new ones until `is_closed` is reset."""
        self.is_closed = True
        self.cut()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._pass_on(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            writer.transport.abort()
            return
        self.connections += 1
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        both = {writer, server_writer}
        self._writers |= both
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, EOFError):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._requests(reader, server_writer))
                    tasks.create_task(self._answers(server_reader, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= both
            # Both before the first wait, which a cancellation may end.
            for each in both:
                each.transport.abort()
            for each in both:
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_first = True
        while True:
            frame = await _frame(reader)
            is_request = not is_first and _XID.unpack_from(frame, 4)[0] > 0
            is_first = False
            if is_request and self._cut_before:
                self._cut_before = False
                raise ConnectionResetError
            if not self.is_mute:
                writer.write(frame)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_first = True
        while True:
            frame = await _frame(reader)
            is_answer = not is_first and _XID.unpack_from(frame, 4)[0] > 0
            is_first = False
            if is_answer and self._cut_after:
                self._cut_after -= 1
                if self._cut_after == 0:
                    self.answered.set()
                    raise ConnectionResetError
            elif not self.is_deaf:
                writer.write(frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_LENGTH.size)
    return head + await reader.readexactly(_LENGTH.unpack(head)[0])
