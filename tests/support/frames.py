"""Frames out of a stream: the plainest way, as the oracle, and the buffer that connections use.

Both take bytes with `receive_data` and give frames with `next_frame` until None. A frame is an
int32 length, not counting itself, and that many bytes.
"""

from typing import Protocol

from odradek.errors import FramingError
from odradek.network.memory_pool import MemoryPool
from odradek.network.receive_buffer import ReceiveBuffer
from odradek.protocol.primitives import Buffer


class Reader(Protocol):
    """What both offer."""

    @property
    def buffered_bytes(self) -> int: ...

    def receive_data(self, data: Buffer) -> None: ...

    def next_frame(self) -> bytes | None: ...


class FrameReader:
    """Cuts a stream of bytes into frames, in the plainest way."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        # Start of the first frame not handed out yet. Invariant: <= len(_buffer).
        self._position = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not handed out."""
        return len(self._buffer) - self._position

    def receive_data(self, data: Buffer) -> None:
        """Take in what came from the peer, in pieces of any size."""
        if self._position:
            # Frames handed out are dropped once per receive, not once per frame.
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next frame without its length, or None until more has come.

        Raises:
            FramingError: the stream is no sequence of frames; every later call says so again.
        """
        start = self._position + 4
        if start > len(self._buffer):
            return None
        length = int.from_bytes(self._buffer[self._position : start], "big", signed=True)
        if not 0 < length <= self._max_bytes:
            raise FramingError(f"frame length {length}, expected 1 to {self._max_bytes}")
        end = start + length
        if end > len(self._buffer):
            return None
        self._position = end
        with memoryview(self._buffer) as view:
            return bytes(view[start:end])


class BufferedReader:
    """A `ReceiveBuffer` that is handed bytes, as if a socket had them."""

    def __init__(self, max_bytes: int) -> None:
        self._buffer = ReceiveBuffer(max_bytes, MemoryPool())
        self._waiting = bytearray()

    @property
    def buffered_bytes(self) -> int:
        return self._buffer.buffered_bytes + len(self._waiting)

    def receive_data(self, data: Buffer) -> None:
        self._waiting += data

    def next_frame(self) -> bytes | None:
        while True:
            frame = self._buffer.next_frame()
            if frame is not None:
                return bytes(frame)
            if not self._waiting:
                return None
            self._buffer.receive(self._take)

    def _take(self, room: memoryview) -> int:
        count = min(len(room), len(self._waiting))
        room[:count] = self._waiting[:count]
        del self._waiting[:count]
        return count
