"""Reading a log (01 sections 10.4 and 10.5)."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode, OffsetOutOfRangeError, StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation
from odradek.testing import SimDisk
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_follower,
    append_leader,
    bases,
    found_offsets,
    log_of_spec,
)
from tests.support.logs import LogFixture, batch, offsets, read_all

LARGE = 1 << 20
ALL_ISOLATIONS = pytest.mark.parametrize("isolation", list(FetchIsolation))


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    """Log start 3, high watermark 8, log end 15."""
    return log_of_spec(fixture.open())


@ALL_ISOLATIONS
@pytest.mark.parametrize("offset", [2, 16])
def test_outside_of_the_log(log: Log, offset: int, isolation: FetchIsolation) -> None:
    """01:RD-1"""
    with pytest.raises(OffsetOutOfRangeError, match=rf"offset {offset} is outside \[3, 15\]") as e:
        log.read(offset, LARGE, isolation)
    assert e.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@ALL_ISOLATIONS
def test_at_the_log_end(log: Log, isolation: FetchIsolation) -> None:
    """01:RD-2"""
    result = log.read(15, LARGE, isolation)

    assert result.read() == b""
    assert result.offset_metadata == log.log_end_offset_metadata
    assert result.offset_metadata.message_offset == 15


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [
        pytest.param(FetchIsolation.LOG_END, range(3, 15), id="01:RD-3 log end"),
        pytest.param(FetchIsolation.HIGH_WATERMARK, range(3, 8), id="01:RD-3 high watermark"),
        pytest.param(FetchIsolation.TXN_COMMITTED, range(3, 8), id="01:RD-3 last stable offset"),
    ],
)
def test_limit_of_each_isolation(log: Log, isolation: FetchIsolation, expected: range) -> None:
    result = log.read(3, LARGE, isolation)

    assert found_offsets(result) == list(expected)
    assert result.offset_metadata == LogOffsetMetadata(3, 0, 3 * len(batch()))
    assert not result.first_entry_incomplete


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(8, id="01:RD-4 at the high watermark"),
        pytest.param(10, id="01:RD-5 beyond it"),
    ],
)
def test_nothing_to_see_yet(log: Log, offset: int) -> None:
    result = log.read(offset, LARGE, FetchIsolation.HIGH_WATERMARK)

    assert result.read() == b""
    assert result.offset_metadata == LogOffsetMetadata(offset, 0, offset * len(batch()))
    assert result.aborted_transactions is None


@pytest.mark.parametrize("offset", [8, 10, 15])
def test_empty_committed_read_lists_no_aborted_transactions(log: Log, offset: int) -> None:
    assert log.read(offset, LARGE, FetchIsolation.TXN_COMMITTED).aborted_transactions == []


def test_compacted_gap_between_segments(fixture: LogFixture) -> None:
    """01:RD-6"""
    log = fixture.open()
    append_follower(log, *((offset, offset) for offset in range(10)))
    log.roll(20)
    append_follower(log, *((offset, offset) for offset in range(20, 30)))
    log.update_high_watermark(30)
    assert bases(log) == [0, 20]

    for isolation in FetchIsolation:
        assert found_offsets(log.read(12, LARGE, isolation)) == list(range(20, 30))


def test_everything_behind_was_compacted_away(fixture: LogFixture) -> None:
    log = fixture.open()
    append_follower(log, (0, 9))
    log.roll(30)
    log.update_log_end_offset(30)

    result = log.read(12, LARGE, FetchIsolation.LOG_END)

    assert result.read() == b""
    assert result.offset_metadata == log.log_end_offset_metadata


def test_read_starts_at_the_batch_that_contains_the_offset(fixture: LogFixture) -> None:
    log = fixture.open()
    for _ in range(3):
        append_leader(log, batch(10))

    result = log.read(15, LARGE, FetchIsolation.LOG_END)

    assert found_offsets(result) == list(range(10, 30))
    assert result.offset_metadata.message_offset == 15


def test_log_start_inside_a_batch(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, batch(10))
    log.update_high_watermark(10)
    log.maybe_increment_log_start_offset(4)

    assert found_offsets(log.read(4, LARGE, FetchIsolation.LOG_END)) == list(range(10))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, LARGE, FetchIsolation.LOG_END)


@pytest.mark.parametrize(
    ("max_length", "min_one_message", "length", "incomplete"),
    [
        pytest.param(250, False, 250, False, id="ends anywhere behind a whole batch"),
        pytest.param(10, True, 100, False, id="at least one batch"),
        pytest.param(10, False, 10, True, id="a part of the first batch"),
        pytest.param(100, False, 100, False, id="exactly the first batch"),
        pytest.param(0, True, 100, False, id="no room but one batch"),
        pytest.param(0, False, 0, False, id="no room"),
    ],
)
def test_length(
    fixture: LogFixture, max_length: int, min_one_message: bool, length: int, incomplete: bool
) -> None:
    log = fixture.open()
    fixture.append(5, size=100)

    result = log.read(1, max_length, FetchIsolation.LOG_END, min_one_message=min_one_message)

    assert len(result.read()) == length
    assert result.first_entry_incomplete is incomplete
    assert result.offset_metadata == LogOffsetMetadata(1, 0, 100)


def test_negative_length(log: Log) -> None:
    with pytest.raises(ValueError, match="negative"):
        log.read(3, -1, FetchIsolation.LOG_END)


def test_limit_in_a_later_segment(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=300))
    fixture.append(9, size=100)
    log.update_high_watermark(4)

    assert bases(log) == [0, 3, 6]
    assert found_offsets(log.read(0, LARGE, FetchIsolation.HIGH_WATERMARK)) == [0, 1, 2]
    assert found_offsets(log.read(3, LARGE, FetchIsolation.HIGH_WATERMARK)) == [3]
    assert found_offsets(log.read(6, LARGE, FetchIsolation.HIGH_WATERMARK)) == []
    assert offsets(read_all(log)) == list(range(9))


def test_place_noted_before_the_file_became_shorter(fixture: LogFixture) -> None:
    """A cleaned segment may be shorter than the place of the high watermark in it."""
    log = fixture.open()
    fixture.append(5)
    end = log.log_end_offset_metadata
    log.roll()
    fixture.append(1)
    beyond = end.relative_position + 1000
    log.set_high_watermark(LogOffsetMetadata(end.message_offset, end.segment_base_offset, beyond))

    result = log.read(0, LARGE, FetchIsolation.HIGH_WATERMARK)

    assert result.records is not None
    assert result.records.length == 5 * len(batch())


def test_slice_outlives_roll_and_removal(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(3)
    expected = read_all(log)
    held = log.read(0, LARGE, FetchIsolation.LOG_END)
    log.update_high_watermark(3)

    log.truncate_fully_and_start_at(10)
    fixture.append(1)

    assert held.read() == expected


def test_reads_survive_a_restart(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=2000, index_interval_bytes=200))
    fixture.append(50, size=100)
    expected = read_all(log)

    for clean in (True, False):
        log = fixture.reopen(clean=clean)
        assert read_all(log) == expected
        for offset in range(50):
            assert found_offsets(log.read(offset, 1, FetchIsolation.LOG_END)) == [offset]


def test_closed_log(fixture: LogFixture, log: Log) -> None:
    log.close()

    with pytest.raises(StorageError, match="the log is closed") as e:
        log.read(3, 1, FetchIsolation.LOG_END)
    assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_read_error_takes_the_directory_offline(tmp_path: Path) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        append_leader(log, batch(3))
        disk.fail("pread", path_contains=".log")

        with pytest.raises(StorageError, match=r"read .*failed"):
            log.read(1, LARGE, FetchIsolation.LOG_END)
        assert not fixture.log_directory.is_online
        with pytest.raises(StorageError):
            append_leader(log, batch())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_running_out_of_descriptors_fails_the_read_alone(tmp_path: Path, number: int) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(
        tmp_path / "data",
        disk=disk,
        config=LogConfig(segment_bytes=1000, index_interval_bytes=100),
    ) as fixture:
        log = fixture.open()
        fixture.append(20, size=100)
        log = fixture.reopen(clean=True)
        disk.fail("open", path_contains=".index", error=number)

        with pytest.raises(ApiError, match="open files") as e:
            log.read(5, LARGE, FetchIsolation.LOG_END)  # The first to use that index.
        assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert fixture.log_directory.is_online
        assert found_offsets(log.read(5, LARGE, FetchIsolation.LOG_END)) == list(range(5, 10))
