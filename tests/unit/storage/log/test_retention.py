"""Deleting old segments (01 section 9.7)."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.testing import SimDisk
from tests.support.held_tasks import HeldTasks
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_leader,
    bases,
    epochs,
    idempotent,
    pass_time,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch, offsets, read_all

DAY_MS = 86_400_000
EVERYTHING = LogConfig(retention_bytes=0, retention_ms=-1)  # The size rule always holds.


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


def log_with(
    fixture: LogFixture,
    *counts: int,
    config: LogConfig,
    high_watermark: int | None = None,
    size: int | None = None,
    record_count: int = 1,
) -> Log:
    """A log with a segment of each number of batches."""
    log = fixture.open(config=config)
    for number, count in enumerate(counts):
        if number:
            log.roll()
        for _ in range(count):
            append_leader(log, batch(record_count, size=size))
    log.update_high_watermark(log.log_end_offset if high_watermark is None else high_watermark)
    return log


def test_nothing_above_the_high_watermark_goes(fixture: LogFixture) -> None:
    """01:RET-1"""
    log = log_with(fixture, 2, 2, 1, config=EVERYTHING, record_count=50, high_watermark=150)
    assert (bases(log), log.log_end_offset) == ([0, 100, 200], 250)

    assert delete_old_segments(log) == 1

    assert bases(log) == [100, 200]
    assert log.offsets() == (100, 250, 150, 150)


def test_active_segment_goes_after_a_roll(fixture: LogFixture) -> None:
    """01:RET-2"""
    log = log_with(fixture, 2, 2, 1, config=EVERYTHING, record_count=50)

    assert delete_old_segments(log) == 3

    assert bases(log) == [250]
    assert log.offsets() == (250, 250, 250, 250)
    assert append_leader(log, batch()).first_offset == 250


def test_empty_active_segment_stays(fixture: LogFixture) -> None:
    """01:RET-3"""
    log = log_with(fixture, 2, 2, 0, config=EVERYTHING, record_count=50)
    active = log.active

    assert delete_old_segments(log) == 2

    assert bases(log) == [200]
    assert log.active is active
    assert log.log_start_offset == 200
    assert delete_old_segments(log) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "left"),
    [
        pytest.param(200, [0, 1, 2], id="01:RET-4"),
        pytest.param(150, [1, 2], id="01:RET-5"),
        pytest.param(151, [0, 1, 2], id="one byte too few"),
        pytest.param(50, [2], id="two segments"),
        pytest.param(250, [0, 1, 2], id="exactly the size"),
        pytest.param(-1, [0, 1, 2], id="no limit"),
    ],
)
def test_size_rule(fixture: LogFixture, retention_bytes: int, left: list[int]) -> None:
    """Segments of 100, 100 and 50 units of 2 bytes: a batch cannot be smaller than its header."""
    config = LogConfig(retention_bytes=2 * retention_bytes, retention_ms=-1)
    log = fixture.open(config=config)
    for number, size in enumerate((200, 200, 100)):
        if number:
            log.roll()
        append_leader(log, batch(size=size))
    log.update_high_watermark(3)

    assert delete_old_segments(log) == 3 - len(left)

    assert bases(log) == left


def test_log_start_rule_alone_on_a_compacted_topic(fixture: LogFixture) -> None:
    """01:RET-6"""
    config = LogConfig(cleanup_policy=("compact",), retention_bytes=0, retention_ms=0)
    log = log_with(fixture, 2, 2, 1, config=config, record_count=50)
    fixture.clock.advance(30 * DAY_MS)
    assert delete_old_segments(log) == 0
    log.maybe_increment_log_start_offset(99)
    assert delete_old_segments(log) == 0

    log.maybe_increment_log_start_offset(100)

    assert delete_old_segments(log) == 1
    assert (bases(log), log.log_start_offset) == ([100, 200], 100)


def test_log_start_rule_with_the_others(fixture: LogFixture) -> None:
    log = log_with(fixture, 2, 2, 1, config=LogConfig(), record_count=50)
    log.maybe_increment_log_start_offset(220)

    assert delete_old_segments(log) == 2

    assert (bases(log), log.log_start_offset) == ([200], 220)


@pytest.mark.parametrize(
    ("age", "deleted"), [(0, 0), (DAY_MS, 0), (DAY_MS + 1, 1), (2 * DAY_MS, 1), (2 * DAY_MS + 1, 2)]
)
def test_time_rule(fixture: LogFixture, age: int, deleted: int) -> None:
    """The largest timestamp of a segment counts, and equal is not older."""
    log = fixture.open(config=LogConfig(retention_ms=DAY_MS))
    for number in range(2):
        append_leader(log, batch(timestamp=T0 + number * DAY_MS - 500))
        append_leader(log, batch(timestamp=T0 + number * DAY_MS))
        append_leader(log, batch(timestamp=T0 + number * DAY_MS - 900))
        log.roll()
    log.update_high_watermark(6)
    fixture.clock.advance(age)

    assert delete_old_segments(log) == deleted

    assert log.log_start_offset == 3 * deleted


def test_time_rule_stops_at_the_first_young_segment(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(retention_ms=DAY_MS))
    for timestamp in (T0 - 5 * DAY_MS, T0, T0 - 5 * DAY_MS):
        append_leader(log, batch(timestamp=timestamp))
        log.roll()
    log.update_high_watermark(3)

    assert delete_old_segments(log) == 1

    assert bases(log) == [1, 2, 3]


def test_no_time_limit(fixture: LogFixture) -> None:
    log = log_with(fixture, 2, 2, config=LogConfig(retention_ms=-1))
    fixture.clock.advance(10_000 * DAY_MS)

    assert delete_old_segments(log) == 0


def test_file_time_counts_where_no_record_has_one(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(retention_ms=DAY_MS))
    append_leader(log, batch(timestamp=-1))
    log.roll()
    log.update_high_watermark(1)
    segment = log.segments.first
    assert segment is not None
    file_time_ms = Path(segment.path).stat().st_mtime_ns // 1_000_000
    assert segment.largest_timestamp_ms() == file_time_ms

    fixture.clock.step_wall(file_time_ms + DAY_MS - fixture.clock.now_ms())
    assert delete_old_segments(log) == 0
    fixture.clock.advance(1)
    assert delete_old_segments(log) == 1


def test_all_three_rules_add_up(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(retention_ms=DAY_MS, retention_bytes=200))
    for timestamp in (T0 - 5 * DAY_MS, T0, T0, T0, T0):
        append_leader(log, batch(size=100, timestamp=timestamp))
        log.roll()
    log.update_high_watermark(5)
    log.maybe_increment_log_start_offset(4)

    assert delete_old_segments(log) == 4

    assert bases(log) == [4, 5]


def test_deleted_files(fixture: LogFixture) -> None:
    log = fixture.open(config=EVERYTHING)
    append_leader(log, idempotent(0, 5))
    log.roll()
    append_leader(log, idempotent(5, 5))
    log.roll()
    log.update_high_watermark(10)
    held = log.read(0, 1000, FetchIsolation.HIGH_WATERMARK)

    assert delete_old_segments(log) == 2

    names = fixture.names()
    assert {f"{0:020d}.log.deleted", f"{5:020d}.log.deleted", f"{5:020d}.snapshot.deleted"} <= names
    assert f"{5:020d}.snapshot" not in names
    assert f"{10:020d}.snapshot" in names
    assert offsets(held.read()) == list(range(5))
    pass_time(fixture, 60_000)
    assert not any(name.endswith(".deleted") for name in fixture.names())


def test_producer_outlives_its_records(fixture: LogFixture) -> None:
    """15:KAFKA-7190: retention takes its last record, its next sequence is known all the same."""
    log = fixture.open(config=EVERYTHING)
    append_leader(log, idempotent(0, 5))
    log.update_high_watermark(5)
    assert delete_old_segments(log) == 1
    assert log.size_in_bytes == 0

    for is_restarted in (False, True):
        if is_restarted:
            fixture.append(1)
            log = fixture.reopen(clean=True)
        with pytest.raises(ApiError, match="expected sequence 5") as e:
            append_leader(log, idempotent(6))
        assert e.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append_leader(log, idempotent(0, 5)).is_duplicate
    assert append_leader(log, idempotent(5)).first_offset == 6


def test_epochs_follow(fixture: LogFixture) -> None:
    log = fixture.open(config=EVERYTHING)
    for epoch in (1, 2, 4):
        append_leader(log, batch(5), epoch=epoch)
        log.roll()
    log.update_high_watermark(12)

    assert delete_old_segments(log) == 2

    assert epochs(log) == [(4, 10)]


def test_open_transaction_does_not_hold_its_segment(fixture: LogFixture) -> None:
    log = fixture.open(config=EVERYTHING)
    append_leader(log, transactional(0, 5))
    log.roll()
    append_leader(log, batch(5))
    log.roll()
    log.update_high_watermark(10)

    assert delete_old_segments(log) == 2
    assert log.last_stable_offset == 10 == log.log_start_offset


def test_records_left_are_all_there(fixture: LogFixture) -> None:
    log = log_with(
        fixture, 3, 3, 3, config=LogConfig(retention_bytes=450, retention_ms=-1), size=100
    )
    assert delete_old_segments(log) == 1

    assert offsets(read_all(log)) == list(range(3, 9))
    assert offsets(read_all(fixture.reopen(clean=True))) == list(range(3, 9))


def test_closed_log(fixture: LogFixture) -> None:
    log = log_with(fixture, 1, config=EVERYTHING)
    log.close()

    with pytest.raises(StorageError):
        delete_old_segments(log)


@pytest.mark.parametrize(
    ("number", "is_online"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.EMFILE, True)]
)
def test_failing_disk(tmp_path: Path, number: int, is_online: bool) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = log_with(fixture, 2, config=EVERYTHING)
        disk.fail("open", path_contains=".log", error=number)

        with pytest.raises((StorageError, ApiError)):
            delete_old_segments(log)
        assert fixture.log_directory.is_online is is_online
        if is_online:
            assert delete_old_segments(log) == 1


def test_failing_rename(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = log_with(fixture, 2, 2, config=EVERYTHING)
        disk.fail("rename")

        with pytest.raises(StorageError, match="delete segments"):
            delete_old_segments(log)
        assert not fixture.log_directory.is_online


def test_files_are_removed_in_the_background(fixture: LogFixture) -> None:
    """A large file takes milliseconds to remove; requests do not wait for it."""
    log = log_with(fixture, 1, 1, 1, config=EVERYTHING)
    tasks = HeldTasks()
    log.services = replace(log.services, tasks=tasks)
    assert delete_old_segments(log) == 3
    tasks.run_all()  # Flushes of rolls.
    tasks.run_postponed()
    waiting = [path.name for path in Path(log.directory).glob("*.deleted")]
    assert sum(name.endswith(".log.deleted") for name in waiting) == 3
    tasks.run_all()
    assert not list(Path(log.directory).glob("*.deleted"))
    assert log.is_usable


def test_a_file_that_cannot_be_removed_in_the_background(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path, disk=disk) as fixture:
        log = log_with(fixture, 1, 1, config=EVERYTHING)
        assert delete_old_segments(log) == 2
        disk.fail("unlink", path_contains=".log.deleted")
        pass_time(fixture, 60_000)
        assert not fixture.log_directory.is_online
