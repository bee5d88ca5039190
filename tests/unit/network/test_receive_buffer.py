"""Frames out of bytes, and how much memory they may cost meanwhile."""

import struct

import pytest

from odradek.errors import FramingError
from odradek.network.memory_pool import MemoryPool
from odradek.network.receive_buffer import START_BYTES, OutOfMemoryError, ReceiveBuffer

MAX_FRAME = 100 << 20


class Stream:
    """A socket that has some bytes, and gives at most `piece` of them at a time."""

    def __init__(self, data: bytes, piece: int = 1 << 30) -> None:
        self.data = data
        self.piece = piece

    def recv_into(self, view: memoryview) -> int:
        if not self.data:
            raise BlockingIOError
        count = min(len(view), len(self.data), self.piece)
        view[:count] = self.data[:count]
        self.data = self.data[count:]
        return count


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def frames_of(buffer: ReceiveBuffer) -> list[bytes]:
    frames = []
    while (payload := buffer.next_frame()) is not None:
        frames.append(bytes(payload))
    return frames


def receive_all(buffer: ReceiveBuffer, stream: Stream) -> list[bytes]:
    frames = []
    while stream.data:
        buffer.receive(stream.recv_into)
        frames += frames_of(buffer)
    return frames


def test_small_frames_come_in_one_receive_as_views() -> None:
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())
    received = buffer.receive(Stream(frame(b"one") + frame(b"two") + b"\0").recv_into)

    assert received == 15
    assert frames_of(buffer) == [b"one", b"two"]
    assert buffer.buffered_bytes == 1
    assert buffer.is_drained


def test_a_quiet_connection_costs_nothing_and_a_busy_one_starts_small() -> None:
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())
    assert buffer.capacity_bytes == 0

    buffer.receive(Stream(b"\0").recv_into)
    assert buffer.capacity_bytes == START_BYTES


@pytest.mark.parametrize("piece", [1, 3, 1000, 1 << 30])
@pytest.mark.parametrize("sizes", [(1, 5, 16380, 16384, 3), (100_000, 1, 50_000), (40_000,) * 4])
def test_frames_are_whole_however_they_arrive(piece: int, sizes: tuple[int, ...]) -> None:
    payloads = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    if piece == 1:
        payloads = [payload[:2_000] for payload in payloads]
    data = b"".join(map(frame, payloads))

    assert receive_all(ReceiveBuffer(MAX_FRAME, MemoryPool()), Stream(data, piece)) == payloads


def test_an_announced_length_buys_no_memory() -> None:
    pool = MemoryPool(MAX_FRAME)
    buffer = ReceiveBuffer(MAX_FRAME, pool)
    buffer.receive(Stream(struct.pack(">i", MAX_FRAME)).recv_into)
    assert buffer.next_frame() is None

    assert buffer.capacity_bytes == START_BYTES
    assert pool.used_bytes == 0
    stream = Stream(bytes(1 << 20), piece=10_000)
    arrived = 4
    while stream.data:
        arrived += buffer.receive(stream.recv_into)
        assert buffer.next_frame() is None
        assert buffer.capacity_bytes <= max(START_BYTES, 2 * arrived)
        assert pool.used_bytes == buffer.capacity_bytes - START_BYTES


def test_a_large_frame_ends_with_its_buffer_and_the_next_starts_at_the_front() -> None:
    size = 300_000
    stream = Stream(frame(bytes(size)) + frame(b"x" * size))
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())
    while (payload := buffer.next_frame()) is None:
        buffer.receive(stream.recv_into)

    assert len(payload) == size
    assert buffer.capacity_bytes == size + 4
    assert buffer.buffered_bytes == 0
    assert len(stream.data) == size + 4


def test_a_grown_buffer_stays_until_it_is_trimmed() -> None:
    pool = MemoryPool(1 << 20)
    buffer = ReceiveBuffer(1 << 20, pool)
    receive_all(buffer, Stream(frame(bytes(100_000))))
    assert buffer.capacity_bytes == 100_004

    buffer.trim()

    assert buffer.capacity_bytes == 0
    assert pool.used_bytes == 0


@pytest.mark.parametrize(
    ("frame_bytes", "capacity"), [(100_000, 100_004), (300_000, 200_000), (10, START_BYTES)]
)
def test_a_frame_of_a_trusted_peer_gets_its_room_at_once(frame_bytes: int, capacity: int) -> None:
    """Up to what is trusted: beyond it the buffer grows with what arrives."""
    buffer = ReceiveBuffer(1 << 20, MemoryPool(), trusted_bytes=200_000)
    stream = Stream(frame(bytes(frame_bytes)), piece=START_BYTES)
    buffer.receive(stream.recv_into)
    is_whole = bool(frames_of(buffer))
    if not is_whole:
        buffer.receive(stream.recv_into)
    assert buffer.capacity_bytes == capacity


def test_trimming_keeps_what_has_arrived_of_a_frame() -> None:
    pool = MemoryPool(1 << 20)
    buffer = ReceiveBuffer(1 << 20, pool)
    data = frame(b"y" * 100_000)
    receive_all(buffer, Stream(data[:40_000]))
    buffer.trim()

    assert buffer.capacity_bytes == 40_000
    assert pool.used_bytes == 40_000 - START_BYTES
    assert receive_all(buffer, Stream(data[40_000:])) == [b"y" * 100_000]


def test_a_view_that_somebody_kept_survives_trimming() -> None:
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())
    buffer.receive(Stream(frame(b"kept")).recv_into)
    kept = buffer.next_frame()
    buffer.trim()
    buffer.receive(Stream(frame(b"next")).recv_into)

    assert kept is not None
    assert bytes(kept) == b"kept"


def test_a_large_frame_waits_for_the_pool() -> None:
    pool = MemoryPool(200_000)
    assert pool.try_allocate(200_000)
    buffer = ReceiveBuffer(200_000, pool)
    stream = Stream(frame(bytes(100_000)))
    with pytest.raises(OutOfMemoryError):
        receive_all(buffer, stream)
    left = len(stream.data)
    assert left > 0

    pool.release(200_000)

    assert receive_all(buffer, stream) == [bytes(100_000)]
    buffer.trim()
    assert pool.used_bytes == 0


@pytest.mark.parametrize("count", [2, 6, 30])
@pytest.mark.parametrize("piece", [1_000, 16_384, 1 << 20])
def test_large_frames_never_wait_for_one_another_for_ever(count: int, piece: int) -> None:
    size = 200_000
    pool = MemoryPool(250_000)
    buffers = [ReceiveBuffer(size + 4, pool) for _ in range(count)]
    streams = [Stream(frame(bytes([i]) * size), piece) for i in range(count)]
    finished: list[int] = []
    while len(finished) < count:
        progress = 0
        for i, (buffer, stream) in enumerate(zip(buffers, streams, strict=True)):
            if not stream.data:
                continue
            try:
                progress += buffer.receive(stream.recv_into)
            except OutOfMemoryError:
                continue
            assert pool.used_bytes <= 250_000 + size
            if (payload := buffer.next_frame()) is not None:
                assert bytes(payload) == bytes([i]) * size
                finished.append(i)
                buffer.trim()
        assert progress > 0, f"all wait, only {finished} were finished"
    assert pool.used_bytes == 0


def test_closing_gives_everything_back() -> None:
    pool = MemoryPool(1 << 20)
    buffer = ReceiveBuffer(1 << 20, pool)
    receive_all(buffer, Stream(frame(bytes(100_000))[:70_000]))
    buffer.close()

    assert pool.used_bytes == 0
    assert buffer.buffered_bytes == 0


@pytest.mark.parametrize("length", [0, -1, -(2**31), MAX_FRAME + 1, 2**31 - 1])
def test_a_length_nobody_can_mean_is_refused_before_any_memory(length: int) -> None:
    buffer = ReceiveBuffer(MAX_FRAME, MemoryPool())
    buffer.receive(Stream(struct.pack(">i", length)).recv_into)

    with pytest.raises(FramingError, match=rf"{length}, expected 1 to {MAX_FRAME}"):
        buffer.next_frame()
    assert buffer.capacity_bytes == START_BYTES
    assert buffer.first_bytes(2) == struct.pack(">i", length)[:2]


def test_the_end_of_the_stream_is_no_bytes() -> None:
    assert ReceiveBuffer(MAX_FRAME, MemoryPool()).receive(lambda view: 0) == 0
