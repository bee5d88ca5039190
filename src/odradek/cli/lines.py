"""Reads lines of standard input as they arrive, without a thread, which would delay Ctrl-C."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

from odradek.cli.connecting import CommandError

__all__ = ["read_lines"]

_CHUNK_BYTES: Final = 256 * 1024
# More than a broker accepts in one record; a stream without line ends must not fill the memory.
_MAX_LINE_BYTES: Final = 256 * 1024 * 1024


async def read_lines(fd: int) -> AsyncIterator[list[bytes]]:
    """Yields lists of the lines read so far, without line ends; the last line needs none.

    Raises:
        CommandError: A line is too long.
    """
    rest = b""
    while True:
        await _wait_until_readable(fd)
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            break
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if len(rest) > _MAX_LINE_BYTES:
            raise CommandError(f"a line is longer than {_MAX_LINE_BYTES} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _wait_until_readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    try:
        loop.add_reader(fd, _set, readable)
    except PermissionError:
        return  # A regular file: always readable, and the loop cannot watch it.
    try:
        await readable
    finally:
        loop.remove_reader(fd)


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
