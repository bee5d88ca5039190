"""Reads files and standard input as they arrive, without a thread, which would delay Ctrl-C."""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator
from typing import Final

from odradek.cli.connecting import CommandError

__all__ = ["read_chunks", "read_whole"]

# A pipe is made as large, if the system allows it: each chunk is sent as one.
_CHUNK_BYTES: Final = 1024 * 1024
# More than a broker accepts in one record; a stream without line ends must not fill the memory.
_MAX_LINE_BYTES: Final = 256 * 1024 * 1024


async def read_chunks(fd: int, delimiter: bytes) -> AsyncIterator[bytes]:
    """Yields what has been read so far, up to and with the last delimiter; the end needs none.

    Raises:
        CommandError: There is no delimiter for too many bytes, or the file cannot be read.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    async for chunk in _read(fd):
        # A delimiter of several bytes may begin in the chunk before.
        tail = rest[-1][1 - len(delimiter) :] if rest and len(delimiter) > 1 else b""
        end = _end_of_last(delimiter, tail + chunk)
        if not end:
            rest.append(chunk)
            rest_bytes += len(chunk)
            if rest_bytes > _MAX_LINE_BYTES:
                raise CommandError(f"a line is longer than {_MAX_LINE_BYTES} bytes")
            if len(chunk) < len(delimiter):  # The last part has to be long enough for a tail.
                rest = [b"".join(rest)]
            continue
        end -= len(tail)
        yield b"".join(rest) + chunk[:end]
        rest = [chunk[end:]] if end < len(chunk) else []
        rest_bytes = len(chunk) - end
    if rest_bytes:
        yield b"".join(rest)


def _end_of_last(delimiter: bytes, text: bytes) -> int:
    """Where the last delimiter ends, counted from the first on; 0 if there is none."""
    if len(delimiter) == 1:
        return text.rfind(delimiter) + 1
    parts = text.split(delimiter)  # In `a---b`, the last `--` is not a delimiter.
    return len(text) - len(parts[-1]) if len(parts) > 1 else 0


async def read_whole(fd: int) -> bytes:
    """All that can be read.

    Raises:
        CommandError: Too much, or the file cannot be read.
    """
    chunks: list[bytes] = []
    count = 0
    async for chunk in _read(fd):
        chunks.append(chunk)
        count += len(chunk)
        if count > _MAX_LINE_BYTES:
            raise CommandError(f"a file is larger than {_MAX_LINE_BYTES} bytes")
    return b"".join(chunks)


async def _read(fd: int) -> AsyncIterator[bytes]:
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
    try:
        while True:
            await _wait_until_readable(fd)
            chunk = os.read(fd, _CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    except OSError as error:
        raise CommandError(f"cannot read the input: {error.strerror or error}") from error


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
