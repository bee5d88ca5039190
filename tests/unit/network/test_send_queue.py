"""Outgoing chunks, piece by piece, as the encrypted path takes them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.network.send_queue import INLINE_FILE_BYTES, SendQueue, TruncatedFileError
from tests.support.descriptors import copies_of
from tests.support.network import Region


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment"
    path.write_bytes(bytes(range(256)) * 1024)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def drain(queue: SendQueue, step: int = 1 << 30) -> bytes:
    data = b""
    while (piece := queue.next_piece()) is not None:
        data += bytes(piece[:step])
        queue.advance(len(piece[:step]))
    return data


@pytest.mark.parametrize("step", [1, 7, 1 << 30])
def test_a_frame_is_its_length_and_its_parts(step: int) -> None:
    queue = SendQueue()
    queue.append_frame([b"abc"])
    queue.append_frame([b"de", b"", memoryview(b"fg"), bytearray(b"h")])
    queue.append_frame([])

    assert queue.queued_bytes == 7 + 9 + 4
    assert drain(queue, step) == b"\0\0\0\3abc\0\0\0\5defgh\0\0\0\0"
    assert not queue
    assert queue.queued_bytes == 0


@pytest.mark.parametrize("length", [0, 1, INLINE_FILE_BYTES, INLINE_FILE_BYTES + 1, 200_000])
def test_a_file_region_gives_the_same_bytes_at_any_size(fd: int, length: int) -> None:
    queue = SendQueue()
    queue.append_frame([b"head", Region(fd, 100, length), b"tail"])

    expected = b"head" + os.pread(fd, length, 100) + b"tail"
    assert drain(queue) == len(expected).to_bytes(4, "big") + expected


def test_a_region_outlives_the_descriptor_it_came_with(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    path.write_bytes(b"z" * 100_000)
    descriptor = os.open(path, os.O_RDONLY)
    queue = SendQueue()
    queue.append_frame([Region(descriptor, 0, 100_000)])
    os.close(descriptor)
    path.unlink()

    assert drain(queue)[4:] == b"z" * 100_000


def test_a_small_region_that_is_too_short_is_found_before_the_length_is_out(fd: int) -> None:
    queue = SendQueue()
    with pytest.raises(TruncatedFileError, match="100 bytes too early"):
        queue.append_frame([Region(fd, 0, 100_000), Region(fd, 262_044, 200)])

    assert not queue
    assert queue.queued_bytes == 0


def test_a_large_region_that_became_too_short_is_found_when_it_is_sent(fd: int) -> None:
    queue = SendQueue()
    queue.append_frame([Region(fd, 0, 200_000)])
    os.ftruncate(fd, 70_000)

    with pytest.raises(TruncatedFileError, match="70000"):
        drain(queue)
    queue.clear()


def test_clearing_closes_the_descriptors(fd: int) -> None:
    queue = SendQueue()
    queue.append_frame([Region(fd, 0, 100_000)])
    assert copies_of(fd) == 2

    queue.clear()

    assert copies_of(fd) == 1
    assert not queue


def test_a_large_buffer_is_given_in_pieces() -> None:
    queue = SendQueue()
    queue.append_frame([memoryview(bytes(1 << 20))])
    first = queue.next_piece()
    assert first == b"\0\x10\0\0"
    queue.advance(4)

    second = queue.next_piece()

    assert second is not None
    assert len(second) == 64 << 10
