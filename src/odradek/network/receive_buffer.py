"""A connection's incoming bytes, and the frames in them, without copying.

Bytes are received at the end of one `bytearray` per connection; frames are handed out as views into
it. How it grows and shrinks:

1. There is no buffer until something arrives, and it starts with 16 KB. Many small frames fit, and
   are received in one call.
2. An announced length alone allocates no memory. Until a frame is complete the buffer is at
   most the larger of its first size and twice what has arrived of the frame, and never above the
   frame. Beyond the first size it is taken from the `MemoryPool`. Of a peer that we chose ourselves
   a frame up to `trusted_bytes` gets its room at once: growing step by step copies it twice.
3. Of a frame larger than the first size exactly the rest is received, so that the next one starts
   at the front again and nothing is moved.
4. A buffer that has grown stays while large frames come. `trim` gives it back, all but the bytes of
   an unfinished frame.

The buffer is moved, grown or trimmed only by `receive` and `trim`: a frame stays where it is until
one of them is called, that is, until its request was answered.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from odradek.errors import FramingError
from odradek.network.memory_pool import MemoryPool

__all__ = ["START_BYTES", "OutOfMemoryError", "ReceiveBuffer"]

_UNPACK_LENGTH: Final = Struct(">i").unpack_from

# Holds nearly every request but Produce; 2000 connections of it are 32 MB.
START_BYTES: Final = 16 << 10
# Received in one call at most while the size of the next frame is unknown: bytes of a further frame
# have to be moved to the front.
_READ_AHEAD_BYTES: Final = 64 << 10


class OutOfMemoryError(Exception):
    """The pool has nothing left; try again when it has."""


class ReceiveBuffer:
    """Receives bytes and finds frames.

    Args:
        max_frame_bytes: Longest frame; may be changed at any time.
        pool: Pays for frames larger than the first buffer.
        trusted_bytes: Longest frame whose announced length is believed.
    """

    __slots__ = (
        "_buffer",
        "_charged_bytes",
        "_frame_bytes",
        "_pool",
        "_position",
        "_trusted_bytes",
        "_view",
        "end",
        "is_drained",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, pool: MemoryPool, *, trusted_bytes: int = 0) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._trusted_bytes = trusted_bytes
        self._pool = pool
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        # The bytes not handed out are [_position, end). Invariant: 0 <= _position < end, or both
        # are 0: `end` alone tells whether any are left.
        self._position = 0
        self.end = 0
        # Size with its prefix of the unfinished frame at _position; 0 until its prefix is there.
        self._frame_bytes = 0
        self._charged_bytes = 0  # Taken from the pool.
        # Whether the last `receive` got less than there was room for: the socket was empty then.
        self.is_drained = True

    @property
    def capacity_bytes(self) -> int:
        return len(self._buffer)

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not handed out."""
        return self.end - self._position

    @property
    def has_borrowed(self) -> bool:
        """Whether memory of the pool is in use."""
        return self._charged_bytes > 0

    def first_bytes(self, count: int) -> bytes:
        """The first bytes not handed out, to recognize another protocol."""
        return bytes(self._view[self._position : min(self.end, self._position + count)])

    def receive(self, recv_into: Callable[[memoryview], int]) -> int:
        """Receives once; returns how many bytes came, 0 at the end of the stream.

        Views of earlier frames become invalid.

        Raises:
            OutOfMemoryError: A large frame has to wait for the pool.
            OSError: As `recv_into`; `BlockingIOError` if there was nothing.
        """
        if not self.end and START_BYTES <= len(self._buffer) <= _READ_AHEAD_BYTES:
            # As nearly always: all frames were handed out, and the next one is small.
            count = recv_into(self._view)
            self.end = count
            self.is_drained = count < len(self._buffer)
            return count
        if self._position:
            self._move_to_front()
        frame_bytes = self._frame_bytes
        if self.end == len(self._buffer) or len(self._buffer) < START_BYTES:
            self._grow(frame_bytes)
        end = self.end
        if frame_bytes > START_BYTES:
            limit = min(frame_bytes, len(self._buffer))
        else:
            limit = min(len(self._buffer), max(end + 1, _READ_AHEAD_BYTES))
        assert limit > end, "all frames must be handed out before more is received"
        count = recv_into(self._view[end:limit])
        self.end = end + count
        self.is_drained = count < limit - end
        return count

    def next_frame(self) -> memoryview | None:
        """The next frame without its length, or None until more has come.

        Raises:
            FramingError: The stream is no sequence of frames.
        """
        position = self._position
        start = position + 4
        end_of_all = self.end
        self._frame_bytes = 0
        if start > end_of_all:
            return None
        (length,) = _UNPACK_LENGTH(self._buffer, position)
        if not 0 < length <= self.max_frame_bytes:
            raise FramingError(f"frame length {length}, expected 1 to {self.max_frame_bytes}")
        end = start + length
        if end == end_of_all:  # The last: the next one begins at the front.
            self._position = self.end = 0
        elif end < end_of_all:
            self._position = end
        else:
            self._frame_bytes = length + 4
            return None
        return self._view[start:end]

    def trim(self) -> None:
        """Releases memory; an unfinished frame keeps the bytes that have arrived.

        A view of an earlier frame keeps that memory alive, uncounted.
        """
        self._replace(bytearray(self._view[self._position : self.end]))
        self._position = 0
        self.end = len(self._buffer)
        self._charge_at_most(max(0, self.end - START_BYTES))

    def close(self) -> None:
        """Releases all memory."""
        self._replace(bytearray())
        self._position = self.end = 0
        self._charge_at_most(0)

    def _move_to_front(self) -> None:
        rest = self.end - self._position
        if rest:
            self._view[:rest] = self._view[self._position : self.end]
        self._position = 0
        self.end = rest

    def _grow(self, frame_bytes: int) -> None:
        """Makes room for more, as rule 2 of the module allows."""
        size = max(START_BYTES, min(frame_bytes, max(2 * self.end, self._trusted_bytes)))
        if size <= len(self._buffer):
            return
        charge = size - START_BYTES - self._charged_bytes
        if charge > 0:
            if not self._pool.try_allocate(charge, self):
                raise OutOfMemoryError
            self._charged_bytes += charge
        grown = bytearray(size)
        grown[: self.end] = self._view[: self.end]
        self._replace(grown)

    def _replace(self, buffer: bytearray) -> None:
        # A view into the old buffer keeps it alive and unchanged.
        self._buffer = buffer
        self._view = memoryview(buffer)

    def _charge_at_most(self, size_bytes: int) -> None:
        surplus = self._charged_bytes - size_bytes
        if surplus > 0:
            self._charged_bytes = size_bytes
            self._pool.release(surplus)
