"""The unsent bytes of a connection: buffers and pieces of files, in order.

A response is a sequence of chunks. A chunk in memory is sent as it is; small ones of one wake-up
leave together in one system call. A chunk of a file is, by size:

========  ========================================================================================
< 16 KB   read at once and sent with its neighbours: one copy costs less than two system calls
larger    `sendfile`, its neighbours before it sent with MSG_MORE so that headers share a packet
========  ========================================================================================

Over TLS every file chunk is read in pieces instead (`next_piece`), with identical bytes.

With a `PageCache`, nothing is read or sent that the disk would have to be waited for: a small piece
that is not in memory is queued as a file, and sending stops before cold pages. `cold` is the file
then, until the connection has had `cold_bytes` of it read into memory and calls `warmed`.

A file chunk keeps a descriptor of its own until it is sent: the segment may be closed, renamed or
removed meanwhile. If the file turns out to be shorter than announced, the peer already has the
length, so the connection must close (`TruncatedFileError`).
"""

import os
from collections import deque
from collections.abc import Sequence
from socket import MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL
from struct import Struct
from typing import Final, Protocol, TypeAlias

from odradek.errors import OdradekError
from odradek.network.page_cache import READ_AHEAD_BYTES, PageCache
from odradek.network.streams import ByteStream

__all__ = ["Chunk", "FileRegion", "SendQueue", "TruncatedFileError"]

_PACK_LENGTH: Final = Struct(">i").pack
_MAX_FRAME_BYTES: Final = 2**31 - 1

# Up to here reading and sending beats sendfile.
INLINE_FILE_BYTES: Final = 16 << 10
# Up to here joining buffers beats a gathered write of them.
_JOIN_BYTES: Final = 16 << 10
# Buffers of one gathered write; Linux takes 1024.
_MAX_BUFFERS: Final = 256
# Encrypted at a time: a few TLS records.
_PIECE_BYTES: Final = 64 << 10
# After so many bytes other connections get their turn, however fast this peer reads.
FLUSH_BUDGET_BYTES: Final = 4 << 20

# Plain integers: combining the enumerations of `socket` on every send takes microseconds.
_FLAGS: Final = int(MSG_DONTWAIT) | int(MSG_NOSIGNAL)
_FLAGS_AND_MORE: Final = _FLAGS | int(MSG_MORE)


class TruncatedFileError(OdradekError):
    """A file ended inside a region that was to be sent."""


class FileRegion(Protocol):
    """Bytes [position, position + length) of an open file."""

    @property
    def fd(self) -> int: ...

    @property
    def position(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def is_recent(self) -> bool:
        """Whether this process wrote them a few appends ago: they are in memory."""
        ...


# Views have to be of single bytes. A buffer must not change once it is queued.
Chunk: TypeAlias = bytes | bytearray | memoryview | FileRegion
_Buffer: TypeAlias = bytes | memoryview


class _FileChunk:
    """The unsent rest of a file region, with a descriptor of its own."""

    __slots__ = ("fd", "position", "remaining", "warm_until")

    def __init__(self, region: FileRegion, *, is_warm: bool) -> None:
        self.fd = os.dup(region.fd)
        self.position = region.position
        self.remaining = region.length
        # Bytes before this position are in memory: the page cache is not asked.
        self.warm_until = self.position + (self.remaining if is_warm else 0)

    def advance(self, count: int) -> None:
        self.position += count
        self.remaining -= count

    def truncated(self) -> TruncatedFileError:
        return TruncatedFileError(
            f"the file ends at or before {self.position}, {self.remaining} bytes too early"
        )


class SendQueue:
    """Outgoing chunks of one connection.

    Args:
        pages: Tells which bytes are in memory; without it sending may wait for the disk.
    """

    __slots__ = ("_chunks", "_pages", "cold", "enqueued_bytes", "file_count", "sent_bytes")

    def __init__(self, pages: PageCache | None = None) -> None:
        self._chunks: deque[_Buffer | _FileChunk] = deque()
        self._pages = pages
        self.cold: _FileChunk | None = None  # The first chunk, if it has to be read first.
        self.file_count = 0  # Chunks that hold a descriptor.
        # Since the connection began. Invariant: sent_bytes <= enqueued_bytes.
        self.enqueued_bytes = 0
        self.sent_bytes = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes not handed to the kernel yet."""
        return self.enqueued_bytes - self.sent_bytes

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append_frame(self, parts: Sequence[Chunk]) -> int:
        """Queues a frame: its length, then its parts. Returns `enqueued_bytes` from then on.

        Raises:
            OSError: No descriptor is left for a file.
            TruncatedFileError: A small file region could not be read.
        """
        if len(parts) == 1:
            only = parts[0]
            if type(only) is bytes:
                size = len(only)
                self._chunks.append(_PACK_LENGTH(size) + only)
                self.enqueued_bytes = end_bytes = self.enqueued_bytes + size + 4
                return end_bytes
        size = file_count = 0
        pages = self._pages
        prepared: list[_Buffer | _FileChunk] = [b""]
        try:
            for part in parts:
                chunk = _prepare(part, pages)
                if isinstance(chunk, _FileChunk):
                    length = chunk.remaining
                    file_count += 1
                else:
                    length = len(chunk)
                if length:  # An empty chunk would never be sent, nor dropped.
                    prepared.append(chunk)
                    size += length
            if size > _MAX_FRAME_BYTES:
                raise ValueError(f"a response of {size} bytes: a frame has at most 2 GiB - 1")
        except BaseException:
            _close_files(prepared)
            raise
        prepared[0] = _PACK_LENGTH(size)
        self._chunks.extend(prepared)
        self.file_count += file_count
        self.enqueued_bytes += size + 4
        return self.enqueued_bytes

    def flush_to_socket(self, sock: ByteStream) -> bool:
        """Hands as much to the kernel as it takes, without waiting. Returns whether all was sent.

        Raises:
            OSError: The connection is broken.
            TruncatedFileError: A file is shorter than announced.
        """
        chunks = self._chunks
        try:
            if len(chunks) == 1:
                only = chunks[0]
                if type(only) is bytes:  # As nearly always.
                    count = sock.send(only, _FLAGS)
                    if count < len(only):
                        self._advance(count)
                        return False
                    self.sent_bytes += count
                    chunks.clear()
                    return True
            stop_at = self.sent_bytes + FLUSH_BUDGET_BYTES
            while chunks and self.sent_bytes < stop_at:
                first = chunks[0]
                if isinstance(first, _FileChunk):
                    position = first.position
                    if position >= first.warm_until and not self._is_warm(first):
                        return False
                    count = os.sendfile(
                        sock.fileno(),
                        first.fd,
                        position,
                        min(first.warm_until - position, FLUSH_BUDGET_BYTES),
                    )
                    if count == 0:
                        raise first.truncated()
                    self._advance(count)
                elif len(chunks) == 1:
                    count = sock.send(first, _FLAGS)
                    if count < len(first):
                        self._advance(count)
                        return False
                    self.sent_bytes += count
                    chunks.popleft()
                    return True
                elif not self._send_buffers(sock):
                    return False
        except (BlockingIOError, InterruptedError):
            return False
        return not chunks

    def _send_buffers(self, sock: ByteStream) -> bool:
        """Sends the buffers before the next file in one call. Returns whether all were sent."""
        buffers: list[_Buffer] = []
        size = 0
        flags = _FLAGS
        for chunk in self._chunks:
            if isinstance(chunk, _FileChunk):
                flags = _FLAGS_AND_MORE
                break
            buffers.append(chunk)
            size += len(chunk)
            if len(buffers) == _MAX_BUFFERS:
                break
        if size <= _JOIN_BYTES:
            count = sock.send(b"".join(buffers), flags)
        else:
            count = sock.sendmsg(buffers, (), flags)
        if count == size == self.enqueued_bytes - self.sent_bytes:
            self._chunks.clear()
            self.sent_bytes += count
        else:
            self._advance(count)
        return count == size

    def next_piece(self) -> _Buffer | None:
        """The next bytes to send, at most a few TLS records; None if nothing is left, or cold.

        Raises:
            OSError: A file cannot be read.
            TruncatedFileError: A file is shorter than announced.
        """
        if not self._chunks:
            return None
        first = self._chunks[0]
        if not isinstance(first, _FileChunk):
            return first if len(first) <= _PIECE_BYTES else memoryview(first)[:_PIECE_BYTES]
        position = first.position
        if position >= first.warm_until and not self._is_warm(first):
            return None
        piece = os.pread(first.fd, min(first.warm_until - position, _PIECE_BYTES), position)
        if not piece:
            raise first.truncated()
        return piece

    def advance(self, count: int) -> None:
        """Drops `count` bytes that were taken from `next_piece`."""
        self._advance(count)

    @property
    def cold_bytes(self) -> int:
        """How many bytes of the cold file are to be read into memory."""
        return 0 if self.cold is None else min(self.cold.remaining, READ_AHEAD_BYTES)

    def warmed(self, count: int) -> None:
        """Ends the wait for the cold file: `count` more bytes of it are in memory."""
        if self.cold is not None:
            self.cold.warm_until = self.cold.position + count
            self.cold = None

    def clear(self) -> None:
        """Drops everything; the descriptors are closed."""
        _close_files(self._chunks)
        self._chunks.clear()
        self.cold = None
        self.file_count = 0

    def _is_warm(self, chunk: _FileChunk) -> bool:
        """Whether some of a file can be sent without the disk."""
        assert self._pages is not None, "without it all chunks are warm"
        length = min(chunk.remaining, FLUSH_BUDGET_BYTES)
        warm = self._pages.warm_bytes(chunk.fd, chunk.position, length)
        if not warm:
            self.cold = chunk
            return False
        chunk.warm_until = chunk.position + warm
        return True

    def _advance(self, count: int) -> None:
        self.sent_bytes += count
        chunks = self._chunks
        while count:
            first = chunks[0]
            if isinstance(first, _FileChunk):
                if count < first.remaining:
                    first.advance(count)
                    return
                count -= first.remaining
                self.file_count -= 1
                os.close(first.fd)
            else:
                size = len(first)
                if count < size:
                    chunks[0] = memoryview(first)[count:]
                    return
                count -= size
            chunks.popleft()


def _prepare(part: Chunk, pages: PageCache | None) -> _Buffer | _FileChunk:
    """A chunk as it is queued: bytes, or a file with a descriptor of its own."""
    if isinstance(part, bytes | memoryview):
        return part
    if isinstance(part, bytearray):
        return memoryview(part)
    if part.length > INLINE_FILE_BYTES:
        return _FileChunk(part, is_warm=pages is None or part.is_recent)
    if pages is not None and not part.is_recent:
        found = pages.read(part.fd, part.length, part.position)
        return _FileChunk(part, is_warm=False) if found is None else memoryview(found)
    data = os.pread(part.fd, part.length, part.position)
    if len(data) < part.length:
        raise TruncatedFileError(
            f"the file ends at {part.position + len(data)}, {part.length - len(data)} bytes too "
            "early"
        )
    return data


def _close_files(chunks: Sequence[_Buffer | _FileChunk] | deque[_Buffer | _FileChunk]) -> None:
    for chunk in chunks:
        if isinstance(chunk, _FileChunk):
            os.close(chunk.fd)
