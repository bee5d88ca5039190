"""High watermark, log start and log end (01 sections 8.1 and 9.2 to 9.4)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import OffsetOutOfRangeError, StorageError
from odradek.model import AppendOrigin
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata, LogOffsetSnapshot
from odradek.storage.log.reader import FetchIsolation
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_follower,
    append_leader,
    bases,
    epochs,
    found_offsets,
    log_of_spec,
    transactional,
)
from tests.support.logs import LogFixture, batch, marker


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    """Log start 3, high watermark 8, log end 15."""
    return log_of_spec(fixture.open())


def test_four_offsets(log: Log) -> None:
    """01:OFF-1"""
    assert log.offsets() == LogOffsetSnapshot(
        log_start_offset=3, log_end_offset=15, high_watermark=8, last_stable_offset=8
    )


def test_new_log_has_its_high_watermark_at_its_start(fixture: LogFixture) -> None:
    assert fixture.open(log_start_offset=7).offsets() == (7, 7, 7, 7)


# High watermark


@pytest.mark.parametrize(
    ("offset", "result"),
    [
        pytest.param(2, 3, id="01:HW-1 below the log start"),
        pytest.param(10, 10, id="01:HW-1 within"),
        pytest.param(14, 14, id="01:HW-1 below the last record"),
        pytest.param(20, 15, id="01:HW-1 beyond the log end"),
    ],
)
def test_follower_takes_the_leaders_high_watermark(log: Log, offset: int, result: int) -> None:
    assert log.update_high_watermark(offset) == result
    assert log.high_watermark == result


def test_follower_high_watermark_may_fall(log: Log) -> None:
    """01:HW-1: unconditional, unlike a leader's."""
    log.update_high_watermark(12)

    assert log.update_high_watermark(5) == 5


def test_leader_high_watermark_beyond_the_end(log: Log) -> None:
    """01:HW-2"""
    with pytest.raises(ValueError, match="beyond the log end 15"):
        log.maybe_increment_high_watermark(LogOffsetMetadata(16))
    assert log.high_watermark == 8


@pytest.mark.parametrize(
    "offset", [pytest.param(8, id="01:HW-3 same"), pytest.param(7, id="01:HW-3 lower")]
)
def test_leader_high_watermark_does_not_fall(log: Log, offset: int) -> None:
    place = log.read(offset, 1, FetchIsolation.LOG_END).offset_metadata

    assert log.maybe_increment_high_watermark(place) is None
    assert log.high_watermark == 8


def test_leader_high_watermark_rises(log: Log) -> None:
    """01:HW-4: the old one comes back with its place, though only its offset was known."""
    batch_size = len(batch())

    old = log.maybe_increment_high_watermark(LogOffsetMetadata(12))

    assert old == LogOffsetMetadata(8, 0, 8 * batch_size)
    assert log.high_watermark == 12


def test_leader_high_watermark_rises_by_a_single_record(log: Log) -> None:
    """01:HW-4"""
    assert log.maybe_increment_high_watermark(LogOffsetMetadata(9)) is not None
    assert log.high_watermark == 9


def test_without_followers_what_is_written_is_committed(fixture: LogFixture) -> None:
    log = fixture.open()

    for count in (1, 2):
        log.append_unreplicated(batch(count), 0, AppendOrigin.CLIENT)

        assert log.fetch_high_watermark_metadata() == log.log_end_offset_metadata
    assert log.high_watermark == 3


def test_without_followers_a_transaction_is_stable_as_soon_as_its_marker_is_written(
    fixture: LogFixture,
) -> None:
    log = fixture.open()
    log.append_unreplicated(transactional(0, 2), 0, AppendOrigin.CLIENT)
    assert (log.last_stable_offset, log.high_watermark) == (0, 2)

    log.append_unreplicated(marker(commit=True), 0, AppendOrigin.COORDINATOR)

    assert (log.last_stable_offset, log.high_watermark) == (3, 3)


@pytest.mark.parametrize(
    ("high_watermark", "stable"),
    [
        pytest.param(2, 2, id="at the high watermark"),
        pytest.param(3, 2, id="one below it"),
    ],
)
def test_an_open_transaction_holds_the_last_stable_offset(
    fixture: LogFixture, high_watermark: int, stable: int
) -> None:
    log = fixture.open()
    fixture.append(2)
    append_leader(log, transactional(0))

    log.update_high_watermark(high_watermark)

    assert log.last_stable_offset == stable


def test_same_offset_on_a_newer_segment(fixture: LogFixture) -> None:
    """01:HW-5"""
    log = fixture.open()
    fixture.append(8)
    log.maybe_increment_high_watermark(log.log_end_offset_metadata)
    old = log.fetch_high_watermark_metadata()
    # As it stands when the last follower's fetch comes after a roll that left it behind.
    log.roll()
    fixture.append(2)
    log.set_high_watermark(old)
    moved = LogOffsetMetadata(8, 8, 0)

    assert log.maybe_increment_high_watermark(moved) == old
    assert log.fetch_high_watermark_metadata() == moved
    assert log.maybe_increment_high_watermark(moved) is None


def test_negative_high_watermark(log: Log) -> None:
    """01:HW-6"""
    with pytest.raises(ValueError, match="-1 is negative"):
        log.set_high_watermark(LogOffsetMetadata(-1))
    assert log.high_watermark == 8


def test_uncommitted_count(log: Log) -> None:
    """01:HW-7"""
    assert log.uncommitted_count == 7
    log.update_high_watermark(15)
    assert log.uncommitted_count == 0


def test_high_watermark_is_resolved_once(log: Log) -> None:
    assert log.fetch_high_watermark_metadata() == LogOffsetMetadata(8, 0, 8 * len(batch()))


def test_high_watermark_at_the_end_has_its_place_at_once(log: Log) -> None:
    log.update_high_watermark(15)

    assert log.watermarks.high_watermark == log.log_end_offset_metadata


@pytest.mark.parametrize("offset", [3, 15])
def test_offsets_from_the_log_start_to_the_end_have_a_place(log: Log, offset: int) -> None:
    place = log.watermarks.resolve(offset)

    assert place == LogOffsetMetadata(offset, 0, offset * len(batch()))


@pytest.mark.parametrize("offset", [2, 16])
def test_offsets_outside_the_log_have_no_place(log: Log, offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=rf"offset {offset} is outside \[3, 15\]"):
        log.watermarks.resolve(offset)


def test_high_watermark_of_a_closed_log(fixture: LogFixture, log: Log) -> None:
    log.close()

    with pytest.raises(StorageError, match="closed"):
        log.fetch_high_watermark_metadata()


def test_high_watermark_inside_a_batch_hides_all_of_it(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, batch(10))
    append_leader(log, batch(10))
    log.update_high_watermark(12)

    result = log.read(5, 1 << 20, FetchIsolation.HIGH_WATERMARK)

    assert found_offsets(result) == list(range(10))


def test_high_watermark_inside_a_compacted_gap(fixture: LogFixture) -> None:
    log = fixture.open()
    append_follower(log, (0, 9))
    append_follower(log, (20, 29))
    log.update_high_watermark(15)

    assert found_offsets(log.read(0, 1 << 20, FetchIsolation.HIGH_WATERMARK)) == list(range(10))
    between = log.read(12, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    assert between.read() == b""
    assert found_offsets(log.read(12, 1 << 20, FetchIsolation.LOG_END)) == list(range(20, 30))


# Log end


def test_roll_moves_the_place_of_a_high_watermark_at_the_end(fixture: LogFixture) -> None:
    """15:KAFKA-9196: what is appended behind the roll must not be hidden by the old place."""
    log = fixture.open()
    fixture.append(5)
    log.maybe_increment_high_watermark(log.log_end_offset_metadata)

    log.roll()

    assert log.fetch_high_watermark_metadata() == LogOffsetMetadata(5, 5, 0)
    assert log.log_end_offset_metadata == LogOffsetMetadata(5, 5, 0)
    fixture.append(2)
    assert log.maybe_increment_high_watermark(log.log_end_offset_metadata) == LogOffsetMetadata(
        5, 5, 0
    )
    assert found_offsets(log.read(0, 1 << 20, FetchIsolation.HIGH_WATERMARK)) == list(range(5))
    assert found_offsets(log.read(5, 1 << 20, FetchIsolation.HIGH_WATERMARK)) == [5, 6]


def test_log_end_carries_the_active_segment(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=200))
    fixture.append(4, size=100)

    assert bases(log) == [0, 2]
    assert log.log_end_offset_metadata == LogOffsetMetadata(4, 2, 200)


def test_lower_log_end_takes_high_watermark_and_recovery_point_along(log: Log) -> None:
    """01 section 9.3, with the ruling: also when the high watermark equals the new end."""
    log.update_high_watermark(15)
    log.flush()

    log.truncate_to(12)

    assert (log.high_watermark, log.log_end_offset, log.recovery_point) == (12, 12, 12)
    assert log.fetch_high_watermark_metadata() == log.log_end_offset_metadata


@pytest.mark.parametrize("end", [9, 10])
def test_lower_log_end_above_the_high_watermark_leaves_it(log: Log, end: int) -> None:
    log.truncate_to(end)

    assert (log.high_watermark, log.log_end_offset) == (8, end)


@pytest.mark.parametrize(("offset", "is_news"), [(14, True), (15, False), (16, False)])
def test_recovery_point_is_lowered_only(log: Log, offset: int, is_news: bool) -> None:
    log.flush()

    assert log.watermarks.lower_recovery_point(offset) is is_news
    assert log.recovery_point == min(offset, 15)


# Log start


def test_log_start_above_the_high_watermark(log: Log) -> None:
    with pytest.raises(OffsetOutOfRangeError, match="log start 9 is above the high watermark 8"):
        log.maybe_increment_log_start_offset(9)
    assert log.log_start_offset == 3


def test_log_start_only_rises(log: Log) -> None:
    assert not log.maybe_increment_log_start_offset(3)
    assert not log.maybe_increment_log_start_offset(1)
    assert log.maybe_increment_log_start_offset(8)
    assert log.log_start_offset == 8


def test_log_start_takes_epochs_along(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(5, epoch=1)
    fixture.append(5, epoch=3)
    log.update_high_watermark(10)

    log.maybe_increment_log_start_offset(7)

    assert epochs(log) == [(3, 7)]


@pytest.mark.parametrize("offset", [9, 12])
def test_log_start_takes_the_high_watermark_along_and_not_the_recovery_point(
    log: Log, offset: int
) -> None:
    """01 §9.4: what is hidden is not thereby on disk."""
    log.update_log_start_offset(offset)

    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (offset, offset, 0)


def test_log_start_passes_an_open_transaction(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, transactional(0, 3))
    fixture.append(4)
    log.update_high_watermark(7)
    assert log.last_stable_offset == 0

    log.maybe_increment_log_start_offset(2)

    assert log.last_stable_offset == 2
    log.read(2, 100, FetchIsolation.TXN_COMMITTED)


def test_log_start_survives_a_restart(fixture: LogFixture) -> None:
    log = log_of_spec(fixture.open())
    assert log.has_log_start_above_first_segment

    log = fixture.reopen(clean=True)

    assert log.offsets() == (3, 15, 3, 3)
