"""What an operator on the same machine tells a running broker, by a socket in its data directory.

The store is closed to other processes, and the wire protocol has no request for some of what an
operator may want. So the broker listens on a Unix socket in the first of its data directories,
which only the user that runs it may open. One command per connection:

    → re-elect-controller\n
    ← {"controller": 0, "old_epoch": 1, "new_epoch": 2}\n      or  {"error": "why not"}\n

The socket is a convenience: where the file system cannot have one the broker runs without.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from odradek.errors import OdradekError
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams

__all__ = ["SOCKET_FILE", "ControlSocket", "ask"]

logger = logging.getLogger(__name__)

SOCKET_FILE: Final = ".control"
# Commands are words.
_MAX_COMMAND_BYTES: Final = 256
_MAX_ANSWER_BYTES: Final = 65_536
# Operators are few.
_MAX_CONNECTIONS: Final = 4
# For the command to come, and for its answer to be taken.
_PEER_TIMEOUT_S: Final = 10.0

# Does what a command says; what it returns is the answer.
Command = Callable[[], Awaitable[Mapping[str, object]]]


class ControlSocket:
    """Takes commands from `start` to `stop`.

    Args:
        directory: A data directory that this broker has locked.
        commands: By their names.
        streams: Where the socket comes from.
    """

    def __init__(
        self,
        directory: str,
        commands: Mapping[str, Command],
        streams: ByteStreams = SYSTEM_STREAMS,
    ) -> None:
        self._streams = streams
        self._directory = directory
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listens; where that is impossible a line of the log says so."""
        try:
            with _short_path(self._directory) as path:
                listener = self._streams.bind_local(path)
        except OSError as error:
            logger.warning(
                "%s takes no commands of `odradek controller`: %s", self._directory, error
            )
            return
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listener, limit=_MAX_COMMAND_BYTES
        )

    async def stop(self) -> None:
        """Takes no more; commands that are under way are given up."""
        if self._server is None:
            return
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET_FILE))
        self._server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs a connection as a task"
        if len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections[task] = writer
        try:
            async with asyncio.timeout(_PEER_TIMEOUT_S):
                line = await reader.readline()
            answer = await self._answer(line.decode(errors="replace").strip())
            writer.write(json.dumps(answer).encode() + b"\n")
            async with asyncio.timeout(_PEER_TIMEOUT_S):
                await writer.drain()
        except (ConnectionError, TimeoutError, ValueError):
            pass  # The peer went away, sleeps, or talks too much; nobody is left to tell.
        finally:
            writer.close()
            del self._connections[task]

    async def _answer(self, name: str) -> Mapping[str, object]:
        command = self._commands.get(name)
        if command is None:
            return {"error": f"expected one of {', '.join(self._commands)}, not {name!r}"}
        logger.info("an operator asks for %s", name, extra={"command": name})
        try:
            return await command()
        except OdradekError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("the command %s failed", name)
            return {"error": f"{error!r}; the broker's log has the details"}


def ask(directory: str, command: str, *, timeout_s: float) -> dict[str, Any]:
    """Gives a command to the broker that runs on a data directory; returns the answer.

    Raises:
        FileNotFoundError: No broker has its first directory there.
        ConnectionRefusedError: One had, and was killed.
        TimeoutError: No answer came in time.
        OSError: It cannot be reached, for lack of rights, say.
        ValueError: The answer makes no sense.
    """
    with (
        _short_path(directory) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(f"{command}\n".encode())
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.readline(_MAX_ANSWER_BYTES))
    if not isinstance(answer, dict):
        raise ValueError(f"expected an object, not {answer!r}")  # noqa: TRY004 - what came is wrong
    return answer


@contextlib.contextmanager
def _short_path(directory: str) -> Iterator[str]:
    """A path of the socket: the system takes some hundred bytes, a directory's may have more."""
    path = os.path.join(directory, SOCKET_FILE)
    if sys.platform != "linux":
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_FILE}"
    finally:
        os.close(fd)
