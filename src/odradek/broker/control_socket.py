r"""The control socket: commands of an operator on the same machine to a running broker.

Other processes cannot open the store, and the wire protocol has no request for some commands. So
the broker listens on a Unix socket in the first of its data directories, which only the user that
runs it may open. One command per connection:

    → re-elect-controller\n
    ← {"controller": 0, "old_epoch": 1, "new_epoch": 2}\n      or  {"error": "why not"}\n

The socket is optional: on a file system without sockets the broker runs without it.
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
# Commands are short.
_MAX_COMMAND_BYTES: Final = 256
_MAX_ANSWER_BYTES: Final = 65_536
# Operators are few.
_MAX_CONNECTIONS: Final = 4
# For the command to arrive, and for its answer to be read.
_PEER_TIMEOUT_S: Final = 10.0

# Carries out a command; returns the answer.
Command = Callable[[], Awaitable[Mapping[str, object]]]


class ControlSocket:
    """Serves commands from `start` to `stop`.

    Args:
        directory: A data directory that this broker has locked.
        commands: By their names.
        streams: Makes the socket.
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
        """Listens; logs a warning if that is impossible."""
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
        """Stops listening; commands under way are cancelled."""
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
            pass  # The peer disconnected, is too slow, or sent too much: no answer is possible.
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
    """Sends a command to the broker of a data directory; returns the answer.

    Raises:
        FileNotFoundError: It is not the first directory of a running broker.
        ConnectionRefusedError: Its broker was killed.
        TimeoutError: No answer came in time.
        OSError: The socket cannot be reached, for example for lack of rights.
        ValueError: The answer is malformed.
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
    """A short path of the socket: the system limits it to some hundred bytes."""
    path = os.path.join(directory, SOCKET_FILE)
    if sys.platform != "linux":
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET_FILE}"
    finally:
        os.close(fd)
