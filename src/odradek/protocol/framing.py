"""Bytes of a connection to frames: `receive_data` what came, then `next_frame` until None.

A frame is an int32 length, not counting itself, and that many bytes::

    offset  size  field
    0       4     length, big-endian, 1 to the maximum
    4       n     header and body

The length is judged as soon as its four bytes are there and buys no memory by itself: the buffer
holds what arrived, not what was announced. What is no Kafka frame at all shows here, too: an
HTTP request line reads as a length above a billion, a TLS hello as 369 million.

A connection that reads into its own buffer calls `parse_frame_length` alone.
"""

from struct import Struct
from typing import Final

from odradek.errors import FramingError
from odradek.protocol.primitives import Buffer

__all__ = ["FrameReader", "encode_frame_length", "parse_frame_length"]

_LENGTH: Final = Struct(">i")


def parse_frame_length(buffer: Buffer, position: int, max_bytes: int) -> int:
    """Read the length that starts a frame; its four bytes must be there.

    Raises:
        FramingError: the length is not in 1 … `max_bytes`. The stream cannot be read any further.
    """
    (length,) = _LENGTH.unpack_from(buffer, position)
    if 0 < length <= max_bytes:
        return int(length)
    raise FramingError(f"frame length {length}, expected 1 to {max_bytes}")


def encode_frame_length(length: int) -> bytes:
    """The four bytes that go before a frame of `length` bytes."""
    return _LENGTH.pack(length)


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_buffer", "_max_bytes", "_position")

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
        start = self._position + _LENGTH.size
        if start > len(self._buffer):
            return None
        end = start + parse_frame_length(self._buffer, self._position, self._max_bytes)
        if end > len(self._buffer):
            return None
        self._position = end
        with memoryview(self._buffer) as view:
            return bytes(view[start:end])
