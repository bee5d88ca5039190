"""The receive buffer against the plain frame reader: same bytes, same frames, however cut."""

import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import FramingError
from odradek.network.memory_pool import MemoryPool
from odradek.network.receive_buffer import START_BYTES, ReceiveBuffer
from tests.support.frames import FrameReader

MAX_FRAME = 60_000


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(1, MAX_FRAME + 2) | st.integers(1, 30), max_size=8),
    cuts=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    trim_every=st.integers(0, 3),
)
def test_same_frames_as_the_frame_reader(
    sizes: list[int], cuts: list[int], trim_every: int
) -> None:
    data = b"".join(struct.pack(">i", size) + bytes([size % 251]) * size for size in sizes)
    reader = FrameReader(MAX_FRAME)
    reader.receive_data(data)
    pool = MemoryPool()
    buffer = ReceiveBuffer(MAX_FRAME, pool)

    position = turn = 0
    while position < len(data):
        cut = cuts[turn % len(cuts)]
        turn += 1

        def recv_into(view: memoryview, at: int = position, most: int = cut) -> int:
            piece = data[at : at + min(most, len(view))]
            view[: len(piece)] = piece
            return len(piece)

        position += buffer.receive(recv_into)
        while True:
            try:
                frame = buffer.next_frame()
            except FramingError as error:
                with pytest.raises(FramingError, match=re.escape(str(error))):
                    reader.next_frame()
                return
            if frame is None:
                break
            assert bytes(frame) == reader.next_frame()
        if trim_every and turn % trim_every == 0:
            buffer.trim()
        assert pool.used_bytes >= buffer.capacity_bytes - START_BYTES
        assert bool(buffer.end) == bool(buffer.buffered_bytes)
    assert reader.buffered_bytes == buffer.buffered_bytes
