"""Finding an offset by time (01 section 6, cooperation)."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, StorageError
from odradek.protocol.enums import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.segments.timestamp_search import (
    OpenedBatches,
    SearchDeferredError,
    TimestampedOffset,
    fetch_offset_by_timestamp,
)
from odradek.testing import SimDisk
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_leader,
    commit,
    log_of_spec,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch

SMALL_INDEX = LogConfig(index_interval_bytes=0, segment_bytes=800)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


def timed(*timestamps: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch with a record of each timestamp."""
    return build_batch([(time, b"k", b"v", ()) for time in timestamps], codec=codec)


def find(log: Log, timestamp: int) -> tuple[int, int] | None:
    """Timestamp and offset of what is found."""
    found = fetch_offset_by_timestamp(log, timestamp)
    assert find_in_parts(log, timestamp)[0] == found
    return None if found is None else (found.timestamp, found.offset)


def find_in_parts(log: Log, timestamp: int) -> tuple[TimestampedOffset | None, int]:
    """What is found if batches are opened elsewhere; and how many were."""
    opened: OpenedBatches = {}
    while True:
        try:
            return fetch_offset_by_timestamp(log, timestamp, opened), len(opened)
        except SearchDeferredError as deferred:
            deferred.open_batch()


# The ends


def test_ends_of_the_log(fixture: LogFixture) -> None:
    log = log_of_spec(fixture.open())

    assert fetch_offset_by_timestamp(log, EARLIEST) == TimestampedOffset(-1, 3, 0)
    assert fetch_offset_by_timestamp(log, LATEST) == TimestampedOffset(-1, 15, 0)


def test_empty_log(fixture: LogFixture) -> None:
    log = fixture.open(log_start_offset=7)

    assert fetch_offset_by_timestamp(log, EARLIEST) == TimestampedOffset(-1, 7, None)
    assert fetch_offset_by_timestamp(log, LATEST) == TimestampedOffset(-1, 7, None)
    assert fetch_offset_by_timestamp(log, MAX_TIMESTAMP) is None
    assert fetch_offset_by_timestamp(log, 0) is None


def test_leader_epochs(fixture: LogFixture) -> None:
    """01 section 8.8: the epoch the offset was written under."""
    log = fixture.open()
    for number, epoch in enumerate((1, 1, 3, 6)):
        append_leader(log, batch(2, timestamp=T0 + 10 * number), epoch=epoch)
    log.update_high_watermark(8)
    log.maybe_increment_log_start_offset(3)

    assert fetch_offset_by_timestamp(log, EARLIEST) == (-1, 3, 1)
    assert fetch_offset_by_timestamp(log, T0 + 20) == (T0 + 20, 4, 3)
    assert fetch_offset_by_timestamp(log, T0 + 30) == (T0 + 30, 6, 6)
    assert fetch_offset_by_timestamp(log, MAX_TIMESTAMP) == (T0 + 31, 7, 6)
    assert fetch_offset_by_timestamp(log, LATEST) == (-1, 8, 6)


# By time


@pytest.mark.parametrize("clean", [None, True, False])
@pytest.mark.parametrize("index_interval_bytes", [0, 300, 4096])
def test_first_record_at_or_after(
    fixture: LogFixture, index_interval_bytes: int, clean: bool | None
) -> None:
    """Every time in a log whose timestamps go up and down, against a plain search."""
    config = LogConfig(index_interval_bytes=index_interval_bytes, segment_bytes=1000)
    log = fixture.open(config=config)
    times = [T0 + (37 * number % 101) + 3 * number for number in range(90)]
    for start in range(0, 90, 3):
        append_leader(log, timed(*times[start : start + 3]))
    if clean is not None:
        log = fixture.reopen(clean=clean)

    for wanted in range(T0 - 1, max(times) + 2):
        expected = next(((t, o) for o, t in enumerate(times) if t >= wanted), None)
        assert find(log, wanted) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_record_within_a_batch(fixture: LogFixture, codec: Codec) -> None:
    log = fixture.open()
    append_leader(log, timed(T0, T0 + 5, T0 + 10, codec=codec))

    assert find(log, T0 + 5) == (T0 + 5, 1)
    assert find(log, T0 + 6) == (T0 + 10, 2)


def test_first_of_equal_timestamps(fixture: LogFixture) -> None:
    log = fixture.open(config=SMALL_INDEX)
    for _ in range(20):
        append_leader(log, timed(T0, T0))

    assert find(log, T0) == (T0, 0)
    assert find(log, MAX_TIMESTAMP) == (T0, 0)


def test_log_append_time(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(timestamp_type="LogAppendTime", index_interval_bytes=0))
    for _ in range(5):
        append_leader(log, timed(1, 2, 3))
        fixture.clock.advance(10)

    assert find(log, T0 + 11) == (T0 + 20, 6)
    assert find(log, MAX_TIMESTAMP) == (T0 + 40, 12)


def test_records_below_the_log_start_are_not_found(fixture: LogFixture) -> None:
    """Also where the log start lies inside a batch that has a record old enough."""
    log = fixture.open(config=SMALL_INDEX)
    for number in range(20):
        append_leader(log, timed(T0 + 10 * number, T0 + 10 * number + 5))
    log.update_high_watermark(40)

    log.maybe_increment_log_start_offset(25)

    assert find(log, T0) == (T0 + 125, 25)
    assert find(log, T0 + 130) == (T0 + 130, 26)


def test_log_start_behind_the_only_match(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, timed(T0 + 100, T0))
    log.update_high_watermark(2)
    log.maybe_increment_log_start_offset(1)

    assert find(log, T0 + 50) is None


def test_file_time_leads_on_to_the_next_segment(fixture: LogFixture) -> None:
    """A segment without timestamps claims its file's time: none is there, so the search goes on."""
    log = fixture.open()
    append_leader(log, timed(-1, -1))
    log.roll()
    append_leader(log, timed(T0, T0 + 1))
    first = log.segments.first
    assert first is not None
    os.utime(first.path, (T0 // 1000 + 10**6, T0 // 1000 + 10**6))
    assert first.largest_timestamp_ms() > T0 + 1

    assert find(log, T0 + 1) == (T0 + 1, 3)
    assert find(log, T0 + 2) is None


def test_missing_time_index(fixture: LogFixture) -> None:
    """Accepted as empty after a clean stop: slower, and right."""
    log = fixture.open(config=SMALL_INDEX)
    for number in range(20):
        append_leader(log, timed(T0 + number))
    recovery_point = fixture.close()
    fixture.path(f"{0:020d}.timeindex").unlink()

    log = fixture.open(clean=True, recovery_point=recovery_point)

    assert find(log, T0 + 3) == (T0 + 3, 3)
    assert find(log, T0 + 15) == (T0 + 15, 15)


@pytest.mark.parametrize("damage", ["order", "offset", "length", "zeros"])
def test_damaged_time_index_is_rebuilt(
    fixture: LogFixture, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """01:IDX-12 and 01 section 4.6, by time."""
    log = fixture.open(config=LogConfig(index_interval_bytes=0))
    for number in range(30):
        append_leader(log, timed(T0 + 10 * number))
    log.roll()
    recovery_point = fixture.close()
    path = fixture.path(f"{0:020d}.timeindex")
    good = path.read_bytes()
    data = bytearray(good)
    if damage == "order":
        data[15 * 12 : 16 * 12] = data[2 * 12 : 3 * 12]
    elif damage == "offset":
        data[-4:] = (10**6).to_bytes(4, "big")
    elif damage == "length":
        del data[-5:]
    else:
        data[-48:] = bytes(48)
    path.write_bytes(data)

    log = fixture.open(clean=True, recovery_point=recovery_point)

    for number in range(30):
        assert find(log, T0 + 10 * number) == (T0 + 10 * number, number)
    assert find(log, T0 + 291) is None


def test_marker_counts_as_a_record(fixture: LogFixture) -> None:
    """As in Kafka: a consumer that seeks there goes on with what follows."""
    log = fixture.open()
    append_leader(log, transactional(0, timestamp=T0))
    commit(log, timestamp=T0 + 10)
    append_leader(log, batch(timestamp=T0 + 20))

    assert find(log, T0 + 5) == (T0 + 10, 1)


@pytest.mark.parametrize(
    ("count", "codec", "expected"),
    [(3, Codec.NONE, 0), (3, Codec.GZIP, 1), (1_000, Codec.NONE, 1)],
)
@pytest.mark.parametrize("is_max", [False, True])
def test_a_batch_that_takes_long_to_open_is_left_to_the_caller(
    fixture: LogFixture, count: int, codec: Codec, expected: int, is_max: bool
) -> None:
    """02 section 12: an event loop has no time to expand it, or to read so many records."""
    log = fixture.open()
    append_leader(log, timed(*range(T0, T0 + count), codec=codec))

    last = TimestampedOffset(T0 + count - 1, count - 1, 0)
    asked = MAX_TIMESTAMP if is_max else last.timestamp
    assert find_in_parts(log, asked) == (last, expected)


def test_a_batch_is_opened_again_if_the_log_start_has_risen_meanwhile(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, timed(T0, T0 + 1, T0 + 2, codec=Codec.GZIP))
    opened: OpenedBatches = {}
    with pytest.raises(SearchDeferredError) as deferred:
        fetch_offset_by_timestamp(log, T0, opened)
    deferred.value.open_batch()
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(2)
    with pytest.raises(SearchDeferredError) as deferred:
        fetch_offset_by_timestamp(log, T0, opened)
    deferred.value.open_batch()

    assert fetch_offset_by_timestamp(log, T0, opened) == TimestampedOffset(T0 + 2, 2, 0)


# Largest timestamp


def test_offset_of_the_record_with_the_largest_timestamp(fixture: LogFixture) -> None:
    """15:KAFKA-16310: the record's offset, not its batch's last."""
    log = fixture.open()
    append_leader(log, timed(T0, T0 + 3))
    append_leader(log, timed(T0 + 1, T0 + 9, T0 + 9, T0 + 2))
    append_leader(log, timed(T0 + 9, T0 + 4))

    assert find(log, MAX_TIMESTAMP) == (T0 + 9, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_largest_timestamp_in_an_old_segment(fixture: LogFixture, clean: bool) -> None:
    """15:KAFKA-16310, across segments and a restart."""
    log = fixture.open(config=SMALL_INDEX)
    for number in range(40):
        append_leader(log, timed(T0 + number, T0 + number + (500 if number == 11 else 0), T0))

    log = fixture.reopen(clean=clean)

    assert len(log.segments) > 3
    assert find(log, MAX_TIMESTAMP) == (T0 + 511, 34)


def test_no_timestamps_at_all(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, timed(-1, -1))

    assert find(log, MAX_TIMESTAMP) is None
    assert find(log, T0) is None


# Failures


def test_closed_log(fixture: LogFixture) -> None:
    log = fixture.open()
    log.close()

    with pytest.raises(StorageError):
        fetch_offset_by_timestamp(log, T0)


@pytest.mark.parametrize(("number", "is_online"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_failing_disk(tmp_path: Path, number: int, is_online: bool) -> None:
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        append_leader(log, timed(T0))
        disk.fail("pread", path_contains=".log", error=number)

        with pytest.raises((StorageError, ApiError), match="look up a timestamp"):
            fetch_offset_by_timestamp(log, T0)
        assert fixture.log_directory.is_online is is_online
