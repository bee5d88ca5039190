"""One segment: what it writes, indexes, reads, rolls, cuts and forgives."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.errors import CorruptRecordError, OffsetOverflowError
from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.storage.indexes.offset_index import OffsetPosition
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.segments.segment import LogSegment
from odradek.testing import SimDisk
from tests.support.logs import (
    T0,
    LogFixture,
    batch,
    file_names,
    flip_bit,
    headers,
    make_services,
    marker,
    readable_offsets,
)

OpenSegment = Callable[..., LogSegment]


@pytest.fixture
def open_segment(tmp_path: Path) -> Iterator[OpenSegment]:
    """Opens segments in `tmp_path` and closes what the test leaves open."""
    opened: list[LogSegment] = []

    def open_one(
        base_offset: int = 0,
        *,
        create: bool = False,
        stage: str = "",
        roll_jitter_ms: int = 0,
        disk: Disk | None = None,
        config: LogConfig | None = None,
    ) -> LogSegment:
        segment = LogSegment(
            str(tmp_path),
            base_offset,
            config=config or LogConfig(),
            disk=disk or Disk(),
            now_ms=T0,
            roll_jitter_ms=roll_jitter_ms,
            stage=stage,
            create=create,
        )
        opened.append(segment)
        return segment

    yield open_one
    for segment in opened:
        segment.close_handles()


def append_set(segment: LogSegment, *batches: bytearray) -> None:
    """Appends batches with offsets of their own as one set."""
    found = [header for one in batches for header in headers(one)]
    segment.append(
        b"".join(batches),
        [(header.last_offset, header.max_timestamp, header.size) for header in found],
        largest_offset=found[-1].last_offset,
        largest_timestamp=max(header.max_timestamp for header in found),
    )


def fill(segment: LogSegment, count: int, size: int, *, as_one_set: bool = False) -> None:
    """Appends one-record batches of `size` bytes, one millisecond apart."""
    base = segment.base_offset
    batches = [batch(size=size, base_offset=base + i, timestamp=T0 + i) for i in range(count)]
    if as_one_set:
        append_set(segment, *batches)
        return
    for one in batches:
        append_set(segment, one)


def entries(segment: LogSegment) -> list[tuple[int, int]]:
    return [(offset, position) for offset, position in segment.offset_index.get()]


def offset_at(segment: LogSegment, offset: int) -> int | None:
    """Base offset of the batch that a read from `offset` starts with."""
    found = segment.read(offset, 1, min_one_message=True)
    return None if found is None else headers(found.read())[0].base_offset


def should_roll(
    segment: LogSegment,
    *,
    size: int = 100,
    max_offset: int | None = None,
    max_timestamp: int = T0,
    now_ms: int = T0,
    max_segment_bytes: int = 1 << 30,
    max_segment_ms: int = 1000,
) -> bool:
    return segment.should_roll(
        size=size,
        max_offset=segment.base_offset if max_offset is None else max_offset,
        max_timestamp=max_timestamp,
        now_ms=now_ms,
        max_segment_bytes=max_segment_bytes,
        max_segment_ms=max_segment_ms,
    )


def aborted() -> AbortedTransaction:
    return AbortedTransaction(producer_id=1, first_offset=0, last_offset=1, last_stable_offset=2)


# Names


@pytest.mark.parametrize(
    ("base", "prefix"),
    [(0, "0" * 20), (123, "0" * 17 + "123"), (12345, "00000000000000012345")],
)
def test_files_are_named_after_the_base_offset(
    base: int, prefix: str, open_segment: OpenSegment, tmp_path: Path
) -> None:
    """01 §2: twenty digits; the transaction index comes with the first aborted transaction."""
    open_segment(base, create=True)
    assert file_names(tmp_path) == {f"{prefix}.log", f"{prefix}.index", f"{prefix}.timeindex"}


def test_a_missing_log_file_is_not_made(open_segment: OpenSegment) -> None:
    with pytest.raises(FileNotFoundError):
        open_segment(5)


# Appending


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        pytest.param(1000, [(5, 5000), (10, 10000)], id="01:SEG-5"),
        pytest.param(1024, [(5, 5120), (10, 10240)], id="01:SEG-6"),
        pytest.param(
            4096, [(2, 8192), (4, 16384), (6, 24576), (8, 32768), (10, 40960)], id="01:SEG-7-4096"
        ),
        pytest.param(4097, [(i, i * 4097) for i in range(1, 12)], id="01:SEG-7-4097"),
    ],
)
def test_index_entries_pair_a_last_offset_with_its_batch_start(
    size: int, expected: list[tuple[int, int]], open_segment: OpenSegment
) -> None:
    segment = open_segment(create=True)
    fill(segment, 12, size)
    assert entries(segment) == expected


def test_each_batch_of_a_set_is_indexed(open_segment: OpenSegment) -> None:
    """01:SEG-12: ten batches in one append, entries as if they had come one by one."""
    segment = open_segment(create=True)
    fill(segment, 10, 1500, as_one_set=True)
    assert entries(segment) == [(3, 4500), (6, 9000), (9, 13500)]
    segment.rebuild_indexes()
    assert entries(segment) == [(3, 4500), (6, 9000), (9, 13500)]


@pytest.mark.parametrize(
    ("offset", "is_accepted"),
    [(99, False), (100, True), (100 + INT32_MAX, True), (101 + INT32_MAX, False)],
)
def test_offsets_stay_within_int32_of_the_base(
    offset: int, is_accepted: bool, open_segment: OpenSegment
) -> None:
    """01:SEG-9"""
    segment = open_segment(100, create=True)
    one = batch(base_offset=offset)
    if is_accepted:
        append_set(segment, one)
        assert segment.size == len(one)
        return
    with pytest.raises(OffsetOverflowError, match=f"offset {offset} does not fit"):
        append_set(segment, one)
    assert segment.size == os.path.getsize(segment.path) == 0


def test_an_empty_set_does_nothing(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    segment.append(b"", [], largest_offset=-5, largest_timestamp=0)
    assert segment.size == 0


def test_the_first_of_equal_timestamps_is_the_largest(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(2, base_offset=0, timestamp=T0))
    append_set(segment, batch(base_offset=2, timestamp=T0 + 1))
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (T0 + 1, 1)


def test_a_short_write_is_an_error_and_counts_nothing(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    segment = LogSegment(str(tmp_path), 0, config=LogConfig(), disk=disk, now_ms=T0, create=True)
    append_set(segment, batch(size=200))
    disk.short_write(150)
    with pytest.raises(OSError, match="short write: 150 of 200 bytes"):
        append_set(segment, batch(size=200, base_offset=1))
    assert segment.size == 200
    assert os.path.getsize(segment.path) == 350
    segment.close_handles()


def test_an_index_that_fills_up_inside_a_set_costs_entries_only(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True, config=LogConfig(segment_index_bytes=24))
    fill(segment, 12, 4097, as_one_set=True)
    assert [offset_at(segment, i) for i in range(12)] == list(range(12))
    assert should_roll(segment)


# Reading


def test_read_limits(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(size=250, base_offset=0))
    append_set(segment, batch(size=120, base_offset=1))
    append_set(segment, batch(size=200, base_offset=2))

    # 01:SEG-1: the smaller of what is asked for and what is left
    found = segment.read(1, 100, max_position=300)
    assert found is not None
    assert found.records is not None
    assert (found.records.position, found.records.length) == (250, 50)
    assert found.offset_metadata == LogOffsetMetadata(1, 0, 250)

    # 01:SEG-2: at least one batch
    found = segment.read(1, 10, min_one_message=True)
    assert found is not None
    assert found.records is not None
    assert (found.records.length, found.first_entry_incomplete) == (120, False)
    assert [header.base_offset for header in headers(found.read())] == [1]

    # 01:SEG-3: or not
    found = segment.read(1, 10)
    assert found is not None
    assert found.records is not None
    assert (found.records.length, found.first_entry_incomplete) == (10, True)

    # 01:SEG-4: metadata only
    found = segment.read(1, 0)
    assert found is not None
    assert found.offset_metadata == LogOffsetMetadata(1, 0, 250)
    assert found.read() == b""

    assert segment.read(3, 100) is None
    with pytest.raises(ValueError, match="-1 is negative"):
        segment.read(0, -1)


def test_a_read_starts_with_the_batch_that_contains_the_offset(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(5, base_offset=0))
    append_set(segment, batch(5, base_offset=20))
    assert [offset_at(segment, i) for i in (0, 4, 5, 19, 22, 24)] == [0, 0, 20, 20, 20, 20]
    assert segment.read(25, 1) is None


def test_a_slice_outlives_renames_appends_and_removal(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    one = batch(size=200)
    append_set(segment, one)
    found = segment.read(0, 1000)
    assert found is not None
    append_set(segment, batch(size=200, base_offset=1))
    segment.change_stage(".deleted")
    assert found.read() == one
    os.unlink(segment.path)
    assert found.read() == one
    segment.truncate_file(100)
    assert len(found.read()) == 100


def test_damage_hides_no_sound_batch(
    open_segment: OpenSegment,
) -> None:
    segment = open_segment(create=True)
    fill(segment, 12, 1000)
    segment.close()
    segment = open_segment()  # What a process wrote itself it does not doubt.
    with open(segment.path, "r+b") as file:
        file.seek(1008)
        file.write(b"\xff" * 4)  # The length of batch 1.
    assert offset_at(segment, 0) == 0
    assert [offset_at(segment, i) for i in range(1, 12)] == [2, *range(2, 12)]
    assert segment.read(12, 1) is None


# Index as a hint


@pytest.mark.slow
def test_any_flipped_index_bit_is_harmless(
    tmp_path: Path, open_segment: OpenSegment, caplog: pytest.LogCaptureFixture
) -> None:
    """01:IDX-11, 15:KAFKA-15511"""
    segment = open_segment(create=True)
    fill(segment, 16, 1000)
    segment.close()
    index_path = Path(segment.offset_index.path)
    good = index_path.read_bytes()
    assert len(good) == 24
    caplog.set_level(logging.ERROR)
    rebuilt = 0
    for bit in range(len(good) * 8):
        index_path.write_bytes(good)
        flip_bit(index_path, bit)
        flipped = index_path.read_bytes()
        again = open_segment()
        assert [offset_at(again, i) for i in range(16)] == list(range(16)), f"bit {bit}"
        tail = again.read_next_offset()
        assert (tail.next_offset, tail.damage) == (16, None), f"bit {bit}"
        again.close()
        rebuilt += index_path.read_bytes() != flipped
        assert index_path.read_bytes() in (good, flipped)
    assert rebuilt > 100
    assert not caplog.records


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-1], id="cut-by-one"),
        pytest.param(lambda data: data[:5], id="no-whole-slot"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
        pytest.param(lambda data: data + bytes(4800), id="left-preallocated"),
        pytest.param(lambda data: b"\xff" * len(data), id="ones"),
        pytest.param(lambda data: Random(1).randbytes(len(data)), id="noise"),
        pytest.param(lambda data: data[::-1], id="backwards"),
    ],
)
def test_a_spoilt_index_is_never_believed(
    kind: str, spoil: Callable[[bytes], bytes], open_segment: OpenSegment, tmp_path: Path
) -> None:
    """01:IDX-12, and what decides over retention is checked before it does"""
    segment = open_segment(create=True)
    fill(segment, 40, 1000)
    segment.close()
    path = tmp_path / f"{0:020d}.{kind}"
    path.write_bytes(spoil(path.read_bytes()))
    again = open_segment()
    assert [offset_at(again, i) for i in range(40)] == list(range(40))
    assert again.read_next_offset() == (40, None)
    assert again.largest_timestamp_ms() == T0 + 39
    append_set(again, batch(size=1000, base_offset=40, timestamp=T0 + 40))
    assert offset_at(again, 40) == 40
    again.close()
    assert path.stat().st_size % {"index": 8, "timeindex": 12}[kind] == 0


def test_a_contradicting_index_is_rebuilt_when_it_refuses_an_entry(
    open_segment: OpenSegment,
) -> None:
    segment = open_segment(create=True)
    fill(segment, 12, 1000)
    segment.offset_index.get().append(5000, 1)  # Nothing that the log could say.
    for i in range(12, 20):
        append_set(segment, batch(size=1000, base_offset=i, timestamp=T0 + i))
    assert entries(segment)[:3] == [(5, 5000), (10, 10000), (15, 15000)]
    assert [offset_at(segment, i) for i in range(20)] == list(range(20))


def test_opening_maps_nothing_and_a_lookup_maps_one(tmp_path: Path) -> None:
    """01 §7: opening 1000 inactive segments maps no index; the first lookup maps exactly one."""
    services = make_services()
    config = LogConfig(index_interval_bytes=100)
    data = batch(size=150) + batch(size=150, base_offset=1)
    segments = []
    for base in range(0, 2000, 2):
        (tmp_path / f"{base:020d}.log").write_bytes(data)
        (tmp_path / f"{base:020d}.index").write_bytes(b"")
        segments.append(
            LogSegment(str(tmp_path), base, config=config, disk=services.disk, now_ms=T0)
        )
    indexes = [index for s in segments for index in (s.offset_index, s.time_index)]
    assert not any(index.is_loaded for index in indexes)
    segments[500].read(1000, 100)
    assert [index.is_loaded for index in indexes].count(True) == 1
    for segment in segments:
        segment.close()
    assert [index.is_loaded for index in indexes].count(True) == 1


# Finding the end


def test_the_end_is_behind_the_last_batch(open_segment: OpenSegment) -> None:
    segment = open_segment(7, create=True)
    assert segment.read_next_offset() == (7, None)
    append_set(segment, batch(3, base_offset=10))
    assert segment.read_next_offset() == (13, None)


@pytest.mark.parametrize(
    ("bit", "expected"),
    [
        pytest.param(7 * 8 + 4, "expected 11 up", id="base-offset"),  # 11 becomes 3.
        pytest.param(8 * 8 + 1, "are left", id="length"),
        pytest.param(16 * 8 + 1, "magic", id="magic"),
        pytest.param(23 * 8, "checksum", id="last-offset-delta"),
        pytest.param(999 * 8, "checksum", id="value"),
    ],
)
def test_damage_at_the_end_is_seen(bit: int, expected: str, open_segment: OpenSegment) -> None:
    """01:LOAD-14 at the segment; the log's part is in test_loader."""
    segment = open_segment(create=True)
    fill(segment, 12, 1000)
    flip_bit(segment.path, 11_000 * 8 + bit)
    tail = segment.read_next_offset()
    assert tail.damage is not None
    assert expected in tail.damage.reason
    assert (tail.next_offset, tail.damage.position) == (11, 11_000)


@pytest.mark.parametrize("up_to", [8, 31, 60])
def test_a_batch_that_jumps_ahead_alone_is_the_damaged_one(
    up_to: int, open_segment: OpenSegment
) -> None:
    """Its checksum does not cover the offset; the batch behind it tells."""
    segment = open_segment(create=True)
    fill(segment, 13, 1000)
    flip_bit(segment.path, 11_000 * 8 + 63 - up_to)
    tail = segment.read_next_offset()
    assert tail.damage is not None
    assert (tail.next_offset, tail.damage.position) == (11, 11_000)


# Rolling


def test_roll_by_size(open_segment: OpenSegment) -> None:
    """01 §3.4 rule 1: when size > limit - set size, which an exact fit is not."""
    segment = open_segment(create=True)
    append_set(segment, batch(size=600))
    assert not should_roll(segment, size=400, max_segment_bytes=1000)
    assert should_roll(segment, size=401, max_segment_bytes=1000)


def test_roll_by_age_of_the_data(open_segment: OpenSegment) -> None:
    """01 §3.4 rule 2: from the first batch's largest timestamp to the new ones."""
    segment = open_segment(create=True)
    assert not should_roll(segment, max_timestamp=T0 + 10**9, now_ms=T0 + 10**9)  # Empty.
    append_set(segment, batch(2, timestamp=T0))
    append_set(segment, batch(base_offset=2, timestamp=T0 + 500))
    assert not should_roll(segment, max_timestamp=T0 + 1001, now_ms=T0 + 10**9)
    assert should_roll(segment, max_timestamp=T0 + 1002)
    segment.close()

    again = open_segment()
    assert not should_roll(again, max_timestamp=T0 + 1001)
    assert should_roll(again, max_timestamp=T0 + 1002)


def test_roll_by_age_of_the_segment_without_timestamps(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(timestamp=-1))
    assert not should_roll(segment, max_timestamp=-1, now_ms=T0 + 1000)
    assert should_roll(segment, max_timestamp=-1, now_ms=T0 + 1001)


def test_roll_earlier_by_the_jitter(open_segment: OpenSegment) -> None:
    """01 §3.5"""
    segment = open_segment(create=True, roll_jitter_ms=400)
    append_set(segment, batch(timestamp=T0))
    assert not should_roll(segment, max_timestamp=T0 + 600)
    assert should_roll(segment, max_timestamp=T0 + 601)


@pytest.mark.parametrize("index_bytes", [16, 24], ids=["offset-index", "time-index"])
def test_roll_when_an_index_is_full(index_bytes: int, open_segment: OpenSegment) -> None:
    """01 §3.4 rule 3: 16 bytes hold two offset entries; 24 two times, of which one is kept back."""
    segment = open_segment(create=True, config=LogConfig(segment_index_bytes=index_bytes))
    fill(segment, 6, 1000)
    assert should_roll(segment)
    assert len(entries(segment)) == (1 if index_bytes == 24 else 0)


def test_roll_when_offsets_run_out(open_segment: OpenSegment) -> None:
    """01 §3.4 rule 4"""
    segment = open_segment(100, create=True)
    assert not should_roll(segment, max_offset=100 + INT32_MAX)
    assert should_roll(segment, max_offset=101 + INT32_MAX)
    assert should_roll(segment, max_offset=99)


def test_damage_at_the_start_does_not_stop_appends(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(timestamp=T0))
    segment.close()
    flip_bit(segment.path, 16 * 8)  # The magic.
    again = open_segment()
    with pytest.raises(CorruptRecordError):
        again.header_at(0)
    assert not should_roll(again, now_ms=T0 + 1000)
    assert should_roll(again, now_ms=T0 + 1001)


@pytest.mark.parametrize("jitter_ms", [0, 300, 5000])
def test_a_logs_segments_draw_their_jitter(jitter_ms: int, tmp_path: Path) -> None:
    """01 §3.5: 0 without the setting, else in [0, min(jitter, roll age)), for each segment anew."""
    config = LogConfig(segment_jitter_ms=jitter_ms, segment_ms=1000)
    with LogFixture(tmp_path, config=config) as fixture:
        log = fixture.open()
        for _ in range(30):
            fixture.append()
            log.roll()
        jitters = {segment.roll_jitter_ms for segment in log.segments}
        reopened = {s.roll_jitter_ms for s in fixture.reopen(clean=True).segments}
    for drawn in (jitters, reopened):
        if jitter_ms == 0:
            assert drawn == {0}
        else:
            assert len(drawn) > 10
            assert all(0 <= jitter < min(jitter_ms, 1000) for jitter in drawn)


# Truncation


@pytest.mark.parametrize(
    ("offset", "kept"),
    [(0, 0), (1, 0), (2, 0), (3, 1), (10, 3), (11, 3), (12, 4), (35, 11), (36, 12), (10**6, 12)],
)
def test_truncation_removes_whole_batches(
    offset: int, kept: int, open_segment: OpenSegment
) -> None:
    """01:SEG-11 for the last two: nothing to remove, and everything can still be read"""
    segment = open_segment(create=True)
    for i in range(12):
        append_set(segment, batch(3, size=1000, base_offset=3 * i, timestamp=T0 + 10 * i))
    assert segment.truncate_to(offset, now_ms=T0 + 5) == (12 - kept) * 1000
    assert segment.size == os.path.getsize(segment.path) == kept * 1000
    assert segment.read_next_offset() == (3 * kept, None)
    assert [offset_at(segment, 3 * i + 1) for i in range(kept)] == [3 * i for i in range(kept)]
    assert entries(segment) == [e for e in [(17, 5000), (32, 10000)] if e[1] < kept * 1000]
    assert segment.max_timestamp == (T0 + 10 * (kept - 1) + 2 if kept else -1)
    # The indexes have their room again, and the counter starts anew.
    assert segment.offset_index.get().length == LogConfig().segment_index_bytes
    append_set(segment, batch(size=1000, base_offset=3 * kept, timestamp=T0))
    assert entries(segment) == [e for e in [(17, 5000), (32, 10000)] if e[1] < kept * 1000]


def test_an_emptied_segment_is_new(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(timestamp=T0))
    segment.truncate_to(0, now_ms=T0 + 7000)
    assert segment.created_ms == T0 + 7000
    append_set(segment, batch(timestamp=T0 + 9000))
    assert not should_roll(segment, max_timestamp=T0 + 10_000)
    assert should_roll(segment, max_timestamp=T0 + 10_001)


def test_truncation_survives_a_smaller_index_limit(open_segment: OpenSegment) -> None:
    segment = open_segment(create=True)
    fill(segment, 40, 1000)
    segment.close()
    again = open_segment(config=LogConfig(segment_index_bytes=16))
    again.truncate_to(39, now_ms=T0)
    assert again.size == 39_000
    assert should_roll(again)


# Shape and life


def test_preallocation(open_segment: OpenSegment, tmp_path: Path) -> None:
    """01 §3.6: full size while active, its content's size afterwards."""
    config = LogConfig(preallocate=True, segment_bytes=1 << 20)
    segment = open_segment(create=True, config=config)
    assert (segment.size, os.path.getsize(segment.path)) == (0, 1 << 20)
    fill(segment, 3, 500)
    assert (segment.size, os.path.getsize(segment.path)) == (1500, 1 << 20)
    assert segment.read(3, 10) is None
    segment.on_become_inactive()
    assert os.path.getsize(segment.path) == 1500


def test_becoming_inactive_closes_the_books(open_segment: OpenSegment, tmp_path: Path) -> None:
    segment = open_segment(create=True)
    fill(segment, 8, 1000)
    assert os.path.getsize(segment.offset_index.path) == LogConfig().segment_index_bytes
    segment.on_become_inactive()
    assert os.path.getsize(segment.offset_index.path) == 8
    assert list(segment.time_index.get()) == [(T0 + 5, 5), (T0 + 7, 7)]
    assert os.path.getsize(segment.time_index.path) == 24
    segment.close()
    again = open_segment()
    assert (again.max_timestamp, again.offset_of_max_timestamp) == (T0 + 7, 7)


def test_the_age_of_a_segment_without_timestamps_is_that_of_its_file(
    open_segment: OpenSegment,
) -> None:
    segment = open_segment(create=True)
    append_set(segment, batch(timestamp=-1))
    os.utime(segment.path, ns=(5_000_000, 7_000_000))
    assert segment.largest_timestamp_ms() == 7


@pytest.mark.parametrize("with_aborted", [False, True])
def test_all_files_change_their_stage_together(
    with_aborted: bool, open_segment: OpenSegment, tmp_path: Path
) -> None:
    """15:KAFKA-5752: also what is not open, and what comes later gets the new name."""
    segment = open_segment(create=True)
    suffixes = {".log", ".index", ".timeindex"}
    if with_aborted:
        segment.transaction_index.append(aborted())
        suffixes.add(".txnindex")
    segment.change_stage(".deleted")
    assert file_names(tmp_path) == {f"{0:020d}{suffix}.deleted" for suffix in suffixes}

    successor = open_segment(create=True)
    successor.transaction_index.append(aborted())
    segment.delete_if_exists()
    assert file_names(tmp_path) == {
        f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex")
    }
    segment.delete_if_exists()  # Again: nothing left, no anomaly.


def test_a_segment_that_was_staged_names_its_transaction_index_right(
    open_segment: OpenSegment, tmp_path: Path
) -> None:
    segment = open_segment(create=True, stage=".cleaned")
    segment.change_stage(".swap")
    segment.change_stage("")
    segment.transaction_index.append(aborted())
    assert f"{0:020d}.txnindex" in file_names(tmp_path)


def test_recovering_restores_the_transaction_index(tmp_path: Path) -> None:
    """01:SEG-13: byte for byte what appending wrote"""
    with LogFixture(tmp_path) as fixture:
        log = fixture.open()
        for sequence in range(2):
            for producer_id in (4000, 4001):
                log.append_as_leader(
                    batch(
                        2,
                        producer_id=producer_id,
                        producer_epoch=0,
                        base_sequence=2 * sequence,
                        is_transactional=True,
                    ),
                    leader_epoch=0,
                )
            for producer_id in (4001, 4000):
                log.append_as_leader(
                    marker(commit=sequence == 1 and producer_id == 4000, producer_id=producer_id),
                    leader_epoch=0,
                    origin=AppendOrigin.COORDINATOR,
                )
        path = fixture.path(f"{0:020d}.txnindex")
        written = path.read_bytes()
        assert len(written) == 3 * 34
        fixture.reopen(clean=False)
        assert path.read_bytes() == written
        path.unlink()
        fixture.reopen(clean=False)
        assert path.read_bytes() == written


def test_positions_are_paired_with_offsets(open_segment: OpenSegment) -> None:
    segment = open_segment(50, create=True)
    fill(segment, 7, 1000)
    assert segment.offset_index.get().lookup(56) == OffsetPosition(55, 5000)


def test_room_is_reserved_for_a_busy_segment_and_given_back(tmp_path: Path) -> None:
    fixture = LogFixture(tmp_path / "data", disk=Disk())
    log = fixture.open()
    quiet = os.fstat(log.active.fd).st_blocks
    for _ in range(3):
        fixture.append(1, size=900_000)
    busy = os.fstat(log.active.fd)
    path = log.active.path
    fixture.close()
    closed = os.stat(path)
    assert quiet == 0
    assert busy.st_size == closed.st_size == 3 * 900_000
    assert closed.st_blocks * 512 < busy.st_size + (1 << 20)
    assert readable_offsets(fixture.open(clean=True)) == [0, 1, 2]
