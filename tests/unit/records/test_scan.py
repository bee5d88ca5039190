"""Stepping over runs of everyday batches; every test runs on both twins."""

import importlib
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from odradek.records import scan as scan_module
from odradek.records.batch import Buffer
from odradek.records.scan import (
    IS_COMPILED,
    TAIL_LENGTH,
    ProducerTails,
    Run,
    step_over_headers,
    step_over_run,
)
from odradek.records.scan_pure import ProducerTailsPure, step_over_headers_pure, step_over_run_pure
from odradek.storage.producers.entry import CACHED_BATCH_COUNT
from tests.support.logs import T0, batch, marker

INT64_MAX = 2**63 - 1
SIZE = 1000  # Of a batch.


class StepOver(Protocol):
    def __call__(
        self,
        data: Buffer,
        position: int,
        next_offset: int,
        last_allowed_offset: int,
        latest_epoch: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        entry_position: int,
        interval_bytes: int,
        tails: ProducerTailsPure,
        /,
    ) -> Run: ...


@pytest.fixture(
    params=[
        pytest.param(step_over_run_pure, id="pure"),
        pytest.param(
            step_over_run,
            id="compiled",
            marks=pytest.mark.skipif(not IS_COMPILED, reason="_scan is not built: setup.py"),
        ),
    ]
)
def step_over(request: pytest.FixtureRequest) -> StepOver:
    chosen: StepOver = request.param
    return chosen


def run_of(
    step_over: StepOver,
    data: Buffer,
    position: int = 0,
    *,
    next_offset: int = 0,
    last_allowed_offset: int = 2**31 - 1,
    latest_epoch: int = 0,
    max_timestamp: int = -1,
    offset_of_max_timestamp: int = 0,
    entry_position: int = 0,
    interval_bytes: int = 4096,
    tails: ProducerTailsPure | None = None,
) -> Run:
    is_pure = getattr(step_over, "__name__", "") == "step_over_run_pure"
    own: Any = ProducerTailsPure() if is_pure else ProducerTails()
    return step_over(
        data,
        position,
        next_offset,
        last_allowed_offset,
        latest_epoch,
        max_timestamp,
        offset_of_max_timestamp,
        entry_position,
        interval_bytes,
        own if tails is None else tails,
    )


def batches(count: int, *, base: int = 0, size: int = SIZE) -> bytearray:
    """One-record batches one millisecond apart."""
    data = bytearray()
    for i in range(count):
        data += batch(size=size, base_offset=base + i, timestamp=T0 + i)
    return data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_run_is_stepped_over_whole(step_over: StepOver, kind: type[Buffer]) -> None:
    run = run_of(step_over, kind(bytes(batches(12))))
    entries = [(5, 5000, T0 + 5, 5), (10, 10000, T0 + 10, 10)]
    assert run == (12 * SIZE, 12, T0 + 11, 11, 10000, entries)


def test_a_run_goes_on_where_the_bytes_before_ended(step_over: StepOver) -> None:
    run = run_of(
        step_over,
        batches(4, base=7),
        2 * SIZE,
        next_offset=9,
        max_timestamp=T0 + 2,
        offset_of_max_timestamp=5,
        entry_position=-2097,
    )
    # 4097 bytes behind the last entry, then 1000.
    assert run == (4 * SIZE, 11, T0 + 3, 10, 2000, [(9, 2000, T0 + 2, 5)])


@pytest.mark.parametrize("missing", [1, SIZE - 61, SIZE - 60, SIZE - 1, SIZE])
def test_a_torn_batch_ends_a_run(step_over: StepOver, missing: int) -> None:
    assert run_of(step_over, batches(3)[:-missing])[:2] == (2 * SIZE, 2)


def test_no_bytes_are_no_run(step_over: StepOver) -> None:
    assert run_of(step_over, b"") == (0, 0, -1, 0, 0, [])
    assert run_of(step_over, batches(1), SIZE) == (SIZE, 0, -1, 0, 0, [])


def changed(position: int, mask: int) -> bytes:
    """The batch that should come third, with bits of one byte flipped."""
    data = batch(size=SIZE, base_offset=2, timestamp=T0 + 2)
    data[position] ^= mask
    return bytes(data)


OTHER_BATCHES = [
    pytest.param(batch(size=SIZE, base_offset=3, timestamp=T0), id="gap"),
    pytest.param(batch(size=SIZE, base_offset=1, timestamp=T0), id="going back"),
    pytest.param(batch(size=SIZE, base_offset=2, timestamp=T0, leader_epoch=1), id="new epoch"),
    pytest.param(marker(commit=True, base_offset=2), id="marker"),
    pytest.param(
        batch(
            size=SIZE,
            base_offset=2,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
        id="transaction",
    ),
    pytest.param(changed(SIZE - 1, 0x01), id="last bit"),
    pytest.param(changed(17, 0x80), id="bit of the checksum"),
    pytest.param(changed(21, 0x80), id="first bit it covers"),
    pytest.param(changed(16, 0x01), id="magic 3"),
    pytest.param(bytes(SIZE), id="zeros"),
    pytest.param(b"\xff" * SIZE, id="ones"),
]


@pytest.mark.parametrize("other", OTHER_BATCHES)
def test_another_batch_ends_a_run(step_over: StepOver, other: Buffer) -> None:
    data = bytes(batches(2)) + bytes(other) + bytes(batches(2, base=3))
    assert run_of(step_over, data) == (2 * SIZE, 2, T0 + 1, 1, 0, [])


@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, 48, SIZE - 11, 2**31 - 1])
def test_a_wrong_length_ends_a_run(step_over: StepOver, length: int) -> None:
    data = batches(3)
    struct.pack_into(">i", data, 2 * SIZE + 8, length)
    assert run_of(step_over, data)[:2] == (2 * SIZE, 2)


def test_offsets_end_where_they_may(step_over: StepOver) -> None:
    data = batches(3, base=INT64_MAX - 3)
    limits = {INT64_MAX - 1: 3, INT64_MAX - 2: 2, INT64_MAX - 3: 1, INT64_MAX - 4: 0}
    for last_allowed, expected in limits.items():
        run = run_of(step_over, data, next_offset=INT64_MAX - 3, last_allowed_offset=last_allowed)
        assert run[:2] == (expected * SIZE, INT64_MAX - 3 + expected)


@pytest.mark.parametrize("position", [-1, SIZE + 1])
def test_a_position_elsewhere_is_refused(step_over: StepOver, position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position} is not within {SIZE} bytes"):
        run_of(step_over, batches(1), position)


TAILS = [
    pytest.param(ProducerTailsPure, id="pure"),
    pytest.param(
        ProducerTails,
        id="compiled",
        marks=pytest.mark.skipif(not IS_COMPILED, reason="_scan is not built: setup.py"),
    ),
]


def of_producer(producer_id: int, base_offset: int) -> bytes:
    """A batch of an idempotent producer."""
    return bytes(
        batch(
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=base_offset,
        )
    )


def test_of_an_idempotent_producer_the_last_headers_are_kept() -> None:
    """10 section 8.4: as many as a partition remembers."""
    assert TAIL_LENGTH == CACHED_BATCH_COUNT
    data = b"".join(of_producer(7 if n % 3 else 8, n) for n in range(30))
    size = len(data) // 30
    for step_over, tails in (
        (step_over_run_pure, ProducerTailsPure()),
        (step_over_run, ProducerTails()),
    ):
        run = run_of(step_over, data, tails=tails)  # type: ignore[arg-type]  # Each has its own.
        assert run[:2] == (len(data), 30)
        kept = sorted(
            [n for n in range(30) if n % 3][-5:] + [n for n in range(30) if not n % 3][-5:]
        )
        assert tails.drain() == [data[n * size : n * size + 61] for n in kept]
        assert tails.drain() == []


@pytest.mark.parametrize("make", TAILS)
def test_producers_that_share_a_slot_lose_nothing(make: type[ProducerTailsPure]) -> None:
    tails = make()
    wanted = []
    for n in range(12):
        header = of_producer(3 + 1024 * (n // 2 % 2), n)[:61]
        tails.note(3 + 1024 * (n // 2 % 2), header)
        wanted.append(header)
    assert len(tails) == 10
    assert tails.drain() == wanted
    assert len(tails) == 0


@pytest.mark.parametrize("step", [step_over_headers_pure, step_over_headers], ids=["pure", "used"])
def test_headers_are_stepped_over_while_offsets_grow(step: Callable[..., tuple[int, int]]) -> None:
    data = batches(3) + batches(2, base=7)
    assert step(data, 0, 0) == (5 * SIZE, 9)
    assert step(data, SIZE, 1) == (5 * SIZE, 9)
    assert step(data, SIZE, 2) == (SIZE, 2)
    # A batch may reach beyond the bytes; less than a header is left alone.
    assert step(data[: 4 * SIZE + 61], 0, 0) == (5 * SIZE, 9)
    assert step(data[: 4 * SIZE + 60], 0, 0) == (4 * SIZE, 8)
    data[3 * SIZE + 16] = 3
    assert step(data, 0, 0) == (3 * SIZE, 3)
    with pytest.raises(ValueError, match="position 1 is not within 0 bytes"):
        step(b"", 1, 0)


class TestFallback:
    @pytest.fixture
    def _without_extension(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setitem(sys.modules, "odradek.records._scan", None)
        yield
        monkeypatch.undo()
        importlib.reload(scan_module)

    @pytest.mark.usefixtures("_without_extension")
    def test_pure_twin_is_used_if_the_extension_is_missing(self) -> None:
        reloaded = importlib.reload(scan_module)
        assert not reloaded.IS_COMPILED
        assert reloaded.step_over_run is step_over_run_pure
