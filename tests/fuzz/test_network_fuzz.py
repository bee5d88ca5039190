"""Any bytes, in any pieces, into a connection's buffer and the header behind it."""

import contextlib
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.errors import DecodeError
from odradek.network.memory_pool import MemoryPool
from odradek.network.receive_buffer import START_BYTES, ReceiveBuffer
from odradek.protocol.headers import parse_request_header

MAX_FRAME = 1 << 20

framed = st.binary(max_size=40).map(lambda payload: len(payload).to_bytes(4, "big") + payload)


@settings(deadline=None, max_examples=300)
@given(pieces=st.lists(st.binary(min_size=1, max_size=60) | framed, min_size=1, max_size=12))
def test_bytes_give_frames_or_a_decode_error_and_cost_no_memory(pieces: list[bytes]) -> None:
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())

    def receive(piece: bytes, view: memoryview, /) -> int:
        view[: len(piece)] = piece
        return len(piece)

    with contextlib.suppress(DecodeError):
        for piece in pieces:
            buffer.receive(partial(receive, piece))
            while (payload := buffer.next_frame()) is not None:
                assert 0 < len(payload) <= MAX_FRAME
                _, position = parse_request_header(payload)
                assert 8 <= position <= len(payload)
    assert buffer.capacity_bytes == START_BYTES
