"""Frames out of a stream, in pieces of any size: as connections cut them, and as an oracle does."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from odradek.errors import DecodeError, FramingError
from tests.support.frames import BufferedReader, FrameReader, Reader

LIMIT = 1000
FRAMES = [b"a", b"bc" * 30, bytes(LIMIT), b"last"]
STREAM = b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)

NewReader: TypeAlias = Callable[[int], Reader]


@pytest.fixture(params=[FrameReader, BufferedReader])
def new_reader(request: pytest.FixtureRequest) -> NewReader:
    made: NewReader = request.param
    return made


def drain(reader: Reader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


@pytest.mark.parametrize("step", [1, 2, 3, 5, 64, len(STREAM)])
def test_frames_do_not_depend_on_how_bytes_arrive(new_reader: NewReader, step: int) -> None:
    reader = new_reader(LIMIT)
    frames = []
    for start in range(0, len(STREAM), step):
        reader.receive_data(STREAM[start : start + step])
        frames += drain(reader)
    assert frames == FRAMES
    assert reader.buffered_bytes == 0


def test_any_buffer_is_taken(new_reader: NewReader) -> None:
    reader = new_reader(LIMIT)
    reader.receive_data(bytearray(STREAM[:7]))
    reader.receive_data(memoryview(STREAM)[7:])
    assert drain(reader) == FRAMES


def test_a_frame_is_whole_or_not_there(new_reader: NewReader) -> None:
    reader = new_reader(LIMIT)
    reader.receive_data(b"\0\0\0\2a")
    assert reader.next_frame() is None
    assert reader.buffered_bytes == 5


@pytest.mark.parametrize(
    ("start", "length"),
    [
        pytest.param(b"\0\0\0\0", 0, id="zero"),
        pytest.param(b"\xff\xff\xff\xfb", -5, id="negative"),
        pytest.param((2_000_000_000).to_bytes(4, "big"), 2_000_000_000, id="2GB"),
        pytest.param((LIMIT + 1).to_bytes(4, "big"), LIMIT + 1, id="one-too-many"),
        pytest.param(b"GET / HTTP/1.1\r\n", 1195725856, id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", 369295618, id="TLS-hello"),
    ],
)
def test_a_bad_length_is_refused_before_its_bytes_come(
    new_reader: NewReader, start: bytes, length: int
) -> None:
    """The reader's part of the hostile frames of 11 section 14."""
    reader = new_reader(LIMIT)
    for byte in start[:3]:
        reader.receive_data(bytes([byte]))
        assert reader.next_frame() is None
    reader.receive_data(start[3:])
    for _ in range(2):
        with pytest.raises(FramingError, match=f"frame length {length}, expected 1 to {LIMIT}"):
            reader.next_frame()


def test_a_framing_error_is_the_fault_of_the_peers_bytes() -> None:
    assert issubclass(FramingError, DecodeError)
