"""Reading a whole segment: what is rebuilt, what is cut, what is never cut."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.recovery.segment_recovery import (
    NEVER_CUT,
    RecoveredSegment,
    SegmentOverflow,
    recover_segment,
)
from odradek.storage.segments.segment import LogSegment
from tests.support.logs import PARTITION, T0, batch, flip_bit, marker

Prepare = Callable[..., LogSegment]
SIZE = 1000  # Of a batch.


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Prepare]:
    """Makes segments out of raw bytes, and closes them."""
    opened: list[LogSegment] = []

    def make(data: bytes, base_offset: int = 0, config: LogConfig | None = None) -> LogSegment:
        (tmp_path / f"{base_offset:020d}.log").write_bytes(data)
        segment = LogSegment(
            str(tmp_path), base_offset, config=config or LogConfig(), disk=Disk(), now_ms=T0
        )
        opened.append(segment)
        return segment

    yield make
    for segment in opened:
        segment.close_handles()


def recover(
    segment: LogSegment,
    *,
    cut_from: int = 0,
    epochs: LeaderEpochCache | None = None,
    state: ProducerStateManager | None = None,
    before_cut: Callable[[], None] | None = None,
) -> RecoveredSegment:
    return recover_segment(
        segment,
        state or new_state(segment),
        epochs,
        cut_from=cut_from,
        index_interval_bytes=4096,
        before_cut=before_cut,
    )


def new_state(segment: LogSegment) -> ProducerStateManager:
    directory = str(Path(segment.path).parent)
    return ProducerStateManager(PARTITION, directory, disk=Disk(), expiration_ms=86_400_000)


def batches(count: int, size: int = SIZE, *, base: int = 0, epoch: int = 0) -> bytearray:
    """One-record batches one millisecond apart."""
    data = bytearray()
    for i in range(count):
        data += batch(size=size, base_offset=base + i, leader_epoch=epoch, timestamp=T0 + i)
    return data


def entries(segment: LogSegment) -> list[tuple[int, int]]:
    return [(offset, position) for offset, position in segment.offset_index.get()]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1000, [(5, 5000), (10, 10000)]),
        (1024, [(5, 5120), (10, 10240)]),
        (4096, [(2, 8192), (4, 16384), (6, 24576), (8, 32768), (10, 40960)]),
        (4097, [(i, i * 4097) for i in range(1, 12)]),
        (1500, [(3, 4500), (6, 9000), (9, 13500)]),
    ],
    ids=lambda value: f"01:SEG-8-{value}" if isinstance(value, int) else "",
)
def test_recovery_finds_the_entries_that_appending_made(
    size: int, expected: list[tuple[int, int]], prepare: Prepare
) -> None:
    """01:SEG-8, 01:SEG-12"""
    segment = prepare(batches(12, size))
    assert recover(segment) == (12, 0, None, False, None)
    assert entries(segment) == expected
    times = [(T0 + offset, offset) for offset, _ in expected]
    if times[-1] != (T0 + 11, 11):
        times.append((T0 + 11, 11))
    assert list(segment.time_index.get()) == times
    # Trimmed, as after an orderly close.
    assert segment.offset_index.get().length == 8 * len(expected)
    assert segment.time_index.get().length == 12 * len(times)


def test_junk_behind_the_last_batch_is_cut(prepare: Prepare) -> None:
    """01:SEG-10"""
    segment = prepare(batches(3) + b"seventeen bytes.!")
    result = recover(segment)
    assert result.truncated_bytes == 17
    assert result.next_offset == 3
    assert result.damage is not None
    assert result.damage.position == 3000
    assert segment.size == Path(segment.path).stat().st_size == 3000


def test_an_empty_segment_has_nothing_to_recover(prepare: Prepare) -> None:
    segment = prepare(b"", 50)
    assert recover(segment) == (50, 0, None, False, None)
    assert segment.max_timestamp == -1


# Bits of batch 6 (of 12), counted from its start; and where it is noticed.
DAMAGE = [
    pytest.param(7 * 8 + 5, id="base-offset-down"),  # 6 becomes 2.
    pytest.param(6 * 8, id="base-offset-up"),
    pytest.param(3 * 8, id="base-offset-far-up"),
    pytest.param(0, id="base-offset-negative"),
    pytest.param(11 * 8, id="length-up"),
    pytest.param(10 * 8 + 7, id="length-down"),
    pytest.param(8 * 8, id="length-negative"),
    pytest.param(16 * 8 + 5, id="magic"),
    pytest.param(17 * 8, id="checksum"),
    pytest.param(23 * 8, id="last-offset-delta"),
    pytest.param(35 * 8, id="max-timestamp"),
    pytest.param(900 * 8, id="value"),
]


@pytest.mark.parametrize("bit", DAMAGE)
def test_above_the_recovery_point_damage_ends_the_segment(bit: int, prepare: Prepare) -> None:
    """01 §8.4: everything in front stays, whatever the damage looks like."""
    segment = prepare(batches(12))
    flip_bit(segment.path, 6000 * 8 + bit)
    calls: list[int] = []
    result = recover(segment, cut_from=6, before_cut=lambda: calls.append(segment.size))
    assert result.next_offset == 6
    assert result.truncated_bytes == 6000
    assert segment.size == 6000
    assert calls == [12_000], "called once, before the cut"
    assert not result.is_tail_damaged
    assert entries(segment) == [(5, 5000)]


@pytest.mark.parametrize("bit", DAMAGE)
@pytest.mark.parametrize("cut_from", [7, 12, NEVER_CUT])
def test_below_the_recovery_point_nothing_is_cut(
    bit: int, cut_from: int, prepare: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged batch is stepped over; where its length lies, the chain is found again."""
    segment = prepare(batches(12))
    flip_bit(segment.path, 6000 * 8 + bit)
    damaged = Path(segment.path).read_bytes()
    result = recover(segment, cut_from=cut_from)
    assert Path(segment.path).read_bytes() == damaged
    assert result.truncated_bytes == 0
    assert result.damage is None
    assert (result.next_offset, result.is_tail_damaged) == (12, False)
    assert all(segment.read(i, 1) is not None for i in range(12))
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert errors
    assert "position 6000, behind offset 5" in errors[0]


def test_damage_above_is_cut_though_there_is_some_below(prepare: Prepare) -> None:
    segment = prepare(batches(12))
    flip_bit(segment.path, 3500 * 8)
    flip_bit(segment.path, 9500 * 8)
    result = recover(segment, cut_from=8)
    assert (result.next_offset, segment.size) == (9, 9000)


@pytest.mark.parametrize("base", [0, (1 << 32) - 6])
def test_a_lost_chain_is_found_again(
    base: int, prepare: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    """Twice in one segment; the batches behind are read, indexed and replayed."""
    segment = prepare(batches(20, base=base), base)
    for position in (3000, 11_000):
        with open(segment.path, "r+b") as file:
            file.seek(position)
            file.write(b"\xff" * 1500)
    state = new_state(segment)
    result = recover(segment, cut_from=base + 20, state=state)
    assert (result.next_offset, result.truncated_bytes) == (base + 20, 0)
    assert state.map_end_offset == base + 20
    found = [segment.translate_offset(base + i) for i in range(20)]
    positions = [place.position // 1000 for place in found if place is not None]
    assert positions == [0, 1, 2, 5, 5, 5, *range(6, 11), 13, 13, *range(13, 20)]
    assert any("go on at position 5000" in r.getMessage() for r in caplog.records)


def test_a_damaged_last_batch_below_the_recovery_point_is_a_damaged_tail(prepare: Prepare) -> None:
    segment = prepare(batches(12))
    flip_bit(segment.path, 11_500 * 8)
    assert recover(segment, cut_from=12) == (11, 0, None, True, None)


def test_zeros_that_were_preallocated_are_cut(prepare: Prepare) -> None:
    segment = prepare(batches(3) + bytes(100_000))
    result = recover(segment, cut_from=3)
    assert (result.next_offset, result.truncated_bytes, segment.size) == (3, 100_000, 3000)


@pytest.mark.parametrize("epoch", [0, 3])
def test_epochs_come_back_from_the_batches(epoch: int, prepare: Prepare, tmp_path: Path) -> None:
    """15:KAFKA-10432: epoch 0 is an epoch, too."""
    cache = LeaderEpochCache(str(tmp_path / "leader-epoch-checkpoint"), disk=Disk())
    data = batches(2, base=10, epoch=epoch) + batches(2, base=12, epoch=epoch)
    data += batches(1, base=14, epoch=epoch + 5)
    recover(prepare(data, 10), epochs=cache)
    assert cache.entries == ((epoch, 10), (epoch + 5, 14))


def test_batches_without_an_epoch_add_none(prepare: Prepare, tmp_path: Path) -> None:
    cache = LeaderEpochCache(str(tmp_path / "leader-epoch-checkpoint"), disk=Disk())
    recover(prepare(batches(2, epoch=-1)), epochs=cache)
    assert cache.entries == ()


def test_producers_are_replayed(prepare: Prepare) -> None:
    data = batch(
        2, base_offset=0, producer_id=7, producer_epoch=1, base_sequence=4, is_transactional=True
    )
    data += batches(1, base=2)
    segment = prepare(data)
    state = new_state(segment)
    recover(segment, state=state)
    entry = state.producers[7]
    assert (entry.producer_epoch, entry.batches[-1].last_sequence) == (1, 5)
    assert entry.current_transaction_first_offset == 0
    assert state.map_end_offset == 3


def test_aborted_transactions_are_listed_again(prepare: Prepare) -> None:
    """01:SEG-13 from raw bytes: an index that lies is replaced, a good one left alone."""
    data = batch(
        2, base_offset=0, producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    data += marker(commit=False, base_offset=2, producer_id=7, producer_epoch=1)
    segment = prepare(data)
    segment_index = Path(segment.transaction_index.path)
    segment_index.write_bytes(b"\x00\x01 from a later release")
    recover(segment)
    (found,) = segment.transaction_index.all_entries()
    assert found == (7, 0, 2, 3)
    inode = segment_index.stat().st_ino
    recover(segment)
    assert segment_index.stat().st_ino == inode


@pytest.mark.parametrize("cut_from", [0, NEVER_CUT])
def test_offsets_too_far_from_the_base_ask_for_a_split(cut_from: int, prepare: Prepare) -> None:
    data = batches(2) + batches(2, base=INT32_MAX)
    segment = prepare(data)
    with pytest.raises(SegmentOverflow) as caught:
        recover(segment, cut_from=cut_from)
    assert caught.value.segment is segment
    assert Path(segment.path).read_bytes() == data


def test_indexes_without_room_are_no_reason_to_fail(prepare: Prepare) -> None:
    segment = prepare(batches(12, 4097), config=LogConfig(segment_index_bytes=24))
    assert recover(segment).next_offset == 12
    assert entries(segment) == [(1, 4097)]
    assert list(segment.time_index.get()) == [(T0 + 1, 1), (T0 + 11, 11)]


@pytest.mark.parametrize("cut_from", [7, 8])
def test_damage_that_reaches_over_the_recovery_point_ends_the_log_there(
    cut_from: int, prepare: Prepare
) -> None:
    """01 §8.4: its bytes stay; a sound batch behind it does not continue the log."""
    segment = prepare(batches(12))
    with open(segment.path, "r+b") as file:
        file.seek(6100)
        file.write(bytes(2000))
    result = recover(segment, cut_from=cut_from)
    assert (result.next_offset, result.is_tail_damaged) == (6, True)
    assert result.damage is not None
    assert "reaches over the recovery point" in result.damage.reason
    assert (segment.size, result.truncated_bytes) == (9000, 3000)
    assert segment.read(6, 1) is None


def test_damage_up_to_the_recovery_point_ends_nothing(prepare: Prepare) -> None:
    segment = prepare(batches(12))
    with open(segment.path, "r+b") as file:
        file.seek(6100)
        file.write(bytes(2000))
    result = recover(segment, cut_from=9)
    assert (result.next_offset, result.damage, segment.size) == (12, None, 12_000)
