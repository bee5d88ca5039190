"""Appending as a leader (01 sections 10.1 to 10.3 and 9.6), and what a failing disk does to it."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import (
    ApiError,
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    InvariantViolation,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    StorageError,
)
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.compression import Codec
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.append_analysis import LogAppendInfo, analyze_records
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.recovery.loader import load_log
from odradek.testing import SimDisk
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_leader,
    bases,
    epochs,
    found_offsets,
    idempotent,
    log_of_spec,
    patched,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch, headers, offsets, read_all


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def disk(tmp_path: Path) -> SimDisk:
    (tmp_path / "data").mkdir()
    return SimDisk(tmp_path)


@pytest.fixture
def failing(tmp_path: Path, disk: SimDisk) -> Iterator[LogFixture]:
    """A log on a disk that fails when told to."""
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        yield fixture


def info_of(first_offset: int | None, last_offset: int) -> LogAppendInfo:
    info = LogAppendInfo()
    info.first_offset, info.last_offset = first_offset, last_offset
    return info


# What an append answers


@pytest.mark.parametrize(
    ("first", "last", "count"), [(5, 9, 5), (0, 0, 1), (None, 9, 0), (5, -1, 0)]
)
def test_message_count(first: int | None, last: int, count: int) -> None:
    """01 section 10.1, numMessages."""
    assert info_of(first, last).message_count == count


def test_first_or_last_offset_of_first_batch() -> None:
    info = info_of(None, 9)
    info.last_offset_of_first_batch = 4
    assert info.first_or_last_offset_of_first_batch == 4
    info.first_offset = 2
    assert info.first_or_last_offset_of_first_batch == 2


def test_analysis_of_a_set() -> None:
    """01 section 10.2: what the headers of a set tell before anything is written."""
    first = batch(3, base_offset=10, timestamp=T0 + 50)
    second = batch(2, base_offset=13, codec=Codec.LZ4)
    third = batch(1, base_offset=15, timestamp=T0 + 52)
    torn = batch(1, base_offset=16)[:-1]

    info, batches, has_producers = analyze_records(
        first + second + third + torn, AppendOrigin.REPLICATION, max_message_bytes=1000
    )

    assert (info.first_offset, info.last_offset, info.last_offset_of_first_batch) == (10, 15, 12)
    assert info.shallow_count == len(batches) == 3
    assert info.valid_bytes == len(first + second + third)
    assert [position for position, _ in batches] == [0, len(first), len(first + second)]
    assert info.source_codec == Codec.LZ4
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (T0 + 52, 12)
    assert info.offsets_monotonic
    assert info.log_append_time == -1
    assert not has_producers


@pytest.mark.parametrize(
    ("last_offsets", "monotonic"),
    [([0, 1, 2], True), ([5, 9, 7], False), ([5, 5], False), ([20, 18], False)],
)
def test_analysis_notes_the_order(last_offsets: list[int], monotonic: bool) -> None:
    records = b"".join(batch(base_offset=offset) for offset in last_offsets)

    info = analyze_records(records, AppendOrigin.REPLICATION, max_message_bytes=1000).info

    assert info.offsets_monotonic is monotonic
    assert info.last_offset == last_offsets[-1]


def test_last_codec_of_a_set_counts() -> None:
    records = b"".join(
        batch(3, base_offset=3 * i, codec=codec)
        for i, codec in enumerate([Codec.GZIP, Codec.ZSTD, Codec.NONE])
    )

    info = analyze_records(records, AppendOrigin.REPLICATION, max_message_bytes=1000).info

    assert info.source_codec == Codec.ZSTD


# Offsets


def test_leader_assigns_offsets(fixture: LogFixture) -> None:
    """01:AP-1"""
    log = log_of_spec(fixture.open())

    info = append_leader(log, batch(5, timestamp=T0 + 7), epoch=4)

    assert (info.first_offset, info.last_offset, info.message_count) == (15, 19, 5)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (T0 + 11, 19)
    assert (info.log_start_offset, info.log_append_time, info.leader_epoch) == (3, -1, 4)
    assert not info.is_duplicate
    assert log.log_end_offset == 20
    assert log.high_watermark == 8
    assert headers(read_all(log))[-1].leader_epoch == 4


def test_set_of_several_batches(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(1)

    info = append_leader(log, batch(2) + batch(3, timestamp=T0 + 100) + batch(1))

    assert (info.first_offset, info.last_offset, info.shallow_count) == (1, 6, 3)
    assert (info.max_timestamp, info.offset_of_max_timestamp) == (T0 + 102, 5)
    assert [h.base_offset for h in headers(read_all(log))] == [0, 1, 3, 6]


@pytest.mark.parametrize("kind", [bytes, lambda b: memoryview(bytes(b)), bytearray])
def test_any_buffer(fixture: LogFixture, kind: type) -> None:
    log = fixture.open()
    fixture.append(3)

    append_leader(log, kind(batch(2)))

    assert offsets(read_all(log)) == [0, 1, 2, 3, 4]


def test_read_only_bytes_are_copied(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(3)
    sent = bytes(batch())

    append_leader(log, sent)

    assert sent == bytes(batch())


def test_torn_batch_at_the_end_is_left_out(fixture: LogFixture) -> None:
    log = fixture.open()

    info = append_leader(log, batch(2) + batch()[:-3])

    assert (info.shallow_count, info.valid_bytes) == (1, len(batch(2)))
    assert read_all(log) == bytes(batch(2, leader_epoch=0))
    assert log.size_in_bytes == len(batch(2))


def test_leader_epochs_start_where_they_begin_to_write(fixture: LogFixture) -> None:
    log = fixture.open()
    for epoch in (0, 0, 2, 2, 5):
        append_leader(log, batch(2), epoch=epoch)

    assert epochs(log) == [(0, 0), (2, 4), (5, 8)]
    assert epochs(fixture.reopen(clean=False)) == [(0, 0), (2, 4), (5, 8)]


# Refusals


def test_client_must_not_number_offsets(fixture: LogFixture) -> None:
    """01:AP-2"""
    log = log_of_spec(fixture.open())

    with pytest.raises(InvalidRecordError, match="base offset of a produced batch is 7") as e:
        append_leader(log, batch(base_offset=7))
    assert e.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 15


def test_coordinator_may_number_offsets(fixture: LogFixture) -> None:
    log = fixture.open()

    append_leader(log, batch(base_offset=7), origin=AppendOrigin.COORDINATOR)

    assert offsets(read_all(log)) == [0]


def test_batch_too_large(fixture: LogFixture) -> None:
    """01:AP-5: metered with the size of the whole set."""
    log = fixture.open(config=LogConfig(max_message_bytes=200))
    rejected: list[int] = []
    log.on_append_rejected = rejected.append
    records = batch(size=200) + batch(size=201)

    with pytest.raises(RecordTooLargeError, match=r"201 bytes, max.message.bytes allows 200") as e:
        append_leader(log, records)
    assert e.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert rejected == [401]
    assert log.size_in_bytes == log.log_end_offset == 0
    append_leader(log, batch(size=200))
    assert rejected == [401]


def test_batch_too_large_after_recompression(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(max_message_bytes=300, compression_type="uncompressed"))
    rejected: list[int] = []
    log.on_append_rejected = rejected.append
    sent = batch(size=5000, codec=Codec.NONE)
    compressed = batch(value=b"v" * 4000, codec=Codec.GZIP)
    assert len(compressed) < 300 < len(sent)

    with pytest.raises(RecordTooLargeError, match="after recompression"):
        append_leader(log, compressed)
    assert rejected == [len(compressed)]
    assert log.log_end_offset == 0


def test_set_too_large(fixture: LogFixture) -> None:
    """01:AP-6"""
    log = fixture.open(config=LogConfig(segment_bytes=300))

    with pytest.raises(RecordBatchTooLargeError, match=r"400 bytes, segment.bytes allows 300") as e:
        append_leader(log, batch(size=100) * 4)
    assert e.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.size_in_bytes == log.log_end_offset == 0
    append_leader(log, batch(size=100) * 3)


@pytest.mark.parametrize("bit", [17 * 8, 21 * 8 + 3, 30 * 8, -1])
def test_flipped_bit(fixture: LogFixture, bit: int) -> None:
    """01:AP-7"""
    log = log_of_spec(fixture.open())
    size = log.size_in_bytes
    records = batch(2)
    records[bit // 8] ^= 0x80 >> bit % 8

    with pytest.raises(CorruptRecordError, match="does not match its checksum") as e:
        append_leader(log, records)
    assert e.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size_in_bytes) == (15, size)


def test_second_batch_corrupt_spoils_the_set(fixture: LogFixture) -> None:
    log = fixture.open()
    broken = batch()
    broken[-1] ^= 1

    with pytest.raises(CorruptRecordError, match=f"at position {len(broken)}"):
        append_leader(log, batch() + broken)
    assert log.size_in_bytes == 0


@pytest.mark.parametrize("records", [b"", b"short", bytes(batch()[:60])])
def test_nothing_to_append(fixture: LogFixture, records: bytes) -> None:
    """01:AP-8"""
    log = log_of_spec(fixture.open())
    size = log.size_in_bytes

    info = append_leader(log, records)

    assert (info.shallow_count, info.valid_bytes, info.message_count) == (0, 0, 0)
    assert (info.first_offset, info.last_offset, info.log_start_offset) == (None, -1, 3)
    assert (log.log_end_offset, log.size_in_bytes) == (15, size)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (patched(batch(), length=20), "length 20"),
        (patched(batch(), length=-1), "length -1"),
        (patched(batch(), magic=3, crc=0), "magic 3"),
    ],
)
def test_impossible_header(fixture: LogFixture, records: bytes, message: str) -> None:
    log = fixture.open()

    with pytest.raises(CorruptRecordError, match=message):
        append_leader(log, records)
    assert log.size_in_bytes == 0


# Producers


def test_same_idempotent_batch_twice(fixture: LogFixture) -> None:
    """01:AP-9"""
    log = fixture.open()
    fixture.append(3)
    first = append_leader(log, idempotent(0, 5, timestamp=T0 + 9))
    size = log.size_in_bytes
    log.update_high_watermark(8)
    log.maybe_increment_log_start_offset(2)

    again = append_leader(log, idempotent(0, 5, timestamp=T0 + 9))

    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert (again.first_offset, again.last_offset) == (3, 7)
    assert (again.max_timestamp, again.log_append_time) == (T0 + 13, -1)
    assert again.log_start_offset == 2
    assert (log.size_in_bytes, log.log_end_offset) == (size, 8)


def test_duplicate_on_a_log_append_time_topic(fixture: LogFixture) -> None:
    """The time of the first copy is answered, not that of the retry."""
    log = fixture.open(config=LogConfig(timestamp_type="LogAppendTime"))
    first = append_leader(log, idempotent(0, 2))
    fixture.clock.advance(5000)

    again = append_leader(log, idempotent(0, 2))

    assert again.is_duplicate
    assert first.log_append_time == again.log_append_time == again.max_timestamp == T0


def test_duplicate_behind_a_roll_leaves_an_empty_segment(fixture: LogFixture) -> None:
    """01 section 10.3, pitfall: the roll came before the duplicate was found."""
    log = fixture.open(config=LogConfig(segment_bytes=250))
    append_leader(log, idempotent(0, size=100))
    append_leader(log, idempotent(1, size=100))

    again = append_leader(log, idempotent(1, size=100))

    assert again.first_offset == 1
    assert bases(log) == [0, 2]
    assert log.active.size == 0
    append_leader(log, idempotent(2, size=100))
    assert offsets(read_all(log)) == [0, 1, 2]


def test_five_batches_are_remembered(fixture: LogFixture) -> None:
    """10:PR-1, 10:PR-2, and 15:redpanda#3039 within one log."""
    log = fixture.open()
    for number in range(6):
        append_leader(log, idempotent(5 * number, 5))
    size = log.size_in_bytes

    for number in range(1, 6):
        info = append_leader(log, idempotent(5 * number, 5))
        assert (info.first_offset, info.last_offset) == (5 * number, 5 * number + 4)
    assert log.size_in_bytes == size
    with pytest.raises(ApiError, match="sequence") as e:
        append_leader(log, idempotent(0, 5))
    assert e.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.size_in_bytes == size


def test_follower_that_becomes_leader_knows_the_last_five(fixture: LogFixture) -> None:
    """10:PR-11, 15:redpanda#3039: the leader died before it answered; its successor is asked."""
    log = fixture.open()
    for number in range(6):
        log.append_as_follower(idempotent(number, base_offset=number, leader_epoch=0))

    for number in range(1, 6):
        info = append_leader(log, idempotent(number), epoch=1)
        assert (info.is_duplicate, info.first_offset) == (True, number)
    assert log.log_end_offset == 6
    assert append_leader(log, idempotent(6), epoch=1).first_offset == 6


def test_gap_in_the_sequence(fixture: LogFixture) -> None:
    """10:PR-3"""
    log = fixture.open()
    append_leader(log, idempotent(0, 5))

    with pytest.raises(ApiError, match="expected sequence 5") as e:
        append_leader(log, idempotent(6))
    assert e.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 5
    assert append_leader(log, idempotent(5)).first_offset == 5


def test_new_epoch_starts_at_sequence_0(fixture: LogFixture) -> None:
    """10:PR-4"""
    log = fixture.open()
    append_leader(log, idempotent(0, 5))

    with pytest.raises(ApiError, match="expected sequence 0") as e:
        append_leader(log, idempotent(3, epoch=1))
    assert e.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append_leader(log, idempotent(0, epoch=1)).first_offset == 5


def test_older_epoch(fixture: LogFixture) -> None:
    """10:PR-5"""
    log = fixture.open()
    append_leader(log, idempotent(0, epoch=1))

    with pytest.raises(ApiError, match="expected epoch 1") as e:
        append_leader(log, idempotent(1, epoch=0))
    assert e.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 1


def test_sequence_wraps(fixture: LogFixture) -> None:
    """10:PR-6"""
    log = fixture.open()
    append_leader(log, idempotent(2147483646))
    append_leader(log, idempotent(2147483647, 3))

    assert log.producer_state.producers[4000].batches[-1].last_sequence == 1
    with pytest.raises(ApiError, match="expected sequence 2"):
        append_leader(log, idempotent(3))
    assert append_leader(log, idempotent(2)).first_offset == 4


def test_unknown_producer_continues(fixture: LogFixture) -> None:
    """10:PR-7"""
    log = fixture.open()

    assert append_leader(log, idempotent(17)).first_offset == 0
    assert append_leader(log, idempotent(18)).first_offset == 1


def test_duplicate_after_a_clean_restart(fixture: LogFixture) -> None:
    """10:PR-8"""
    log = fixture.open()
    append_leader(log, idempotent(0, 3))
    append_leader(log, idempotent(3, 2))

    log = fixture.reopen(clean=True)

    info = append_leader(log, idempotent(3, 2))
    assert info.is_duplicate
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (3, 4, 5)
    assert append_leader(log, idempotent(5)).first_offset == 5


@pytest.mark.parametrize("clean", [True, False])
def test_corrupt_newest_snapshot(fixture: LogFixture, clean: bool) -> None:
    """10:PR-9: an older one and the log give the same answers."""
    log = fixture.open(config=LogConfig(segment_bytes=400))
    for number in range(8):
        append_leader(log, idempotent(number, size=100))
    append_leader(log, idempotent(0, producer_id=77, size=100))
    recovery_point = fixture.close() if clean else fixture.abandon()
    newest = max(name for name in fixture.names() if name.endswith(".snapshot"))
    data = bytearray(fixture.path(newest).read_bytes())
    data[-1] ^= 1
    fixture.path(newest).write_bytes(data)

    log = fixture.open(clean=clean, recovery_point=recovery_point)

    assert append_leader(log, idempotent(7, size=100)).first_offset == 7
    assert append_leader(log, idempotent(0, producer_id=77, size=100)).first_offset == 8
    with pytest.raises(ApiError, match="expected sequence 8"):
        append_leader(log, idempotent(9))
    assert log.log_end_offset == 9


def test_idle_producer_continues(fixture: LogFixture) -> None:
    """10:PR-10"""
    log = fixture.open()
    append_leader(log, idempotent(0, 3))
    fixture.clock.advance(fixture.services.producer_id_expiration_ms)
    assert log.producer_state.remove_expired(fixture.clock.now_ms()) == 0  # Up to T0 + 2.
    fixture.clock.advance(2)
    assert log.producer_state.remove_expired(fixture.clock.now_ms()) == 1

    assert append_leader(log, idempotent(3)).first_offset == 3


def test_coordinator_is_not_asked_for_sequences(fixture: LogFixture) -> None:
    log = fixture.open()
    append_leader(log, transactional(-1), origin=AppendOrigin.COORDINATOR)

    info = append_leader(log, transactional(-1), origin=AppendOrigin.COORDINATOR)

    assert (info.first_offset, info.is_duplicate) == (1, False)


# Rolling


def test_roll_by_size(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=250))
    fixture.append(5, size=100)

    assert bases(log) == [0, 2, 4]
    assert {f"{base:020d}.log" for base in (0, 2, 4)} <= fixture.names()


def test_roll_by_age_of_the_first_batch(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_ms=1000))
    append_leader(log, batch(timestamp=T0))
    append_leader(log, batch(timestamp=T0 + 1000))
    append_leader(log, batch(timestamp=T0 + 1001))

    assert bases(log) == [0, 2]


@pytest.mark.parametrize("index_bytes", [4, 12, 24, 36])
def test_roll_when_an_index_is_full(fixture: LogFixture, index_bytes: int) -> None:
    """However small the indexes, every record is there and found."""
    config = LogConfig(segment_index_bytes=index_bytes, index_interval_bytes=0)
    log = fixture.open(config=config)
    fixture.append(20, size=100)

    assert len(bases(log)) > 1
    assert offsets(read_all(log)) == list(range(20))
    log = fixture.reopen(clean=True)
    fixture.append(1, size=100)
    assert offsets(read_all(log)) == list(range(21))


def test_more_batches_in_a_set_than_an_index_holds(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_index_bytes=24, index_interval_bytes=0))

    append_leader(log, batch(size=100) * 10)
    fixture.append(1)

    assert offsets(read_all(log)) == list(range(11))
    assert bases(log) == [0, 10]


def test_roll_takes_a_snapshot_and_flushes(fixture: LogFixture) -> None:
    """01 section 9.6"""
    log = fixture.open()
    append_leader(log, idempotent(0, 3))

    segment = log.roll()

    assert segment is log.active
    assert bases(log) == [0, 3]
    assert "00000000000000000003.snapshot" in fixture.names()
    assert log.recovery_point == 3
    assert log.log_end_offset_metadata == LogOffsetMetadata(3, 3, 0)


def test_roll_of_an_empty_segment_makes_it_anew(fixture: LogFixture) -> None:
    log = fixture.open()
    before = log.active

    log.roll()

    assert bases(log) == [0]
    assert log.active is not before
    fixture.append(2)
    assert offsets(read_all(log)) == [0, 1]


def test_roll_to_a_higher_offset(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(2)

    log.roll(10)

    assert bases(log) == [0, 10]
    assert log.log_end_offset == 2


def test_roll_below_the_active_segment(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(2)
    log.roll(10)

    with pytest.raises(InvariantViolation, match="below the active segment 10"):
        log.roll()


def test_roll_removes_stray_files(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(2)
    fixture.path("00000000000000000002.log").write_bytes(b"stray")
    fixture.path("00000000000000000002.txnindex").write_bytes(b"stray")

    log.roll()

    assert log.active.size == 0
    assert "00000000000000000002.txnindex" not in fixture.names()


def test_roll_jitter_is_drawn_per_segment(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_ms=1000, segment_jitter_ms=500))
    jitters = set()
    for _ in range(8):
        fixture.append(1)
        jitters.add(log.roll().roll_jitter_ms)

    assert len(jitters) > 1
    assert all(0 <= jitter < 500 for jitter in jitters)


def test_new_settings_hold_from_the_next_append(fixture: LogFixture) -> None:
    log = fixture.open()
    fixture.append(1, size=200)

    log.config = LogConfig(max_message_bytes=100)

    with pytest.raises(RecordTooLargeError):
        append_leader(log, batch(size=200))


# Failures of the disk


@pytest.mark.parametrize("kind", ["error", "short", "full"])
def test_failed_write(failing: LogFixture, disk: SimDisk, kind: str) -> None:
    """15:KAFKA-10778: no append succeeds after it, memory is as before, recovery cuts the tear."""
    log = failing.open()
    failing.append(5)
    acknowledged = read_all(log)
    before = log.offsets()
    failures: list[LogDirectory] = []
    failing.log_directory.on_failure = failures.append
    if kind == "error":
        disk.fail("write", path_contains=".log")
    elif kind == "short":
        disk.short_write(30, path_contains=".log")
    else:
        disk.full_after(30)

    with pytest.raises(StorageError, match=r"append .*failed") as e:
        append_leader(log, batch())
    assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failures == [failing.log_directory]
    disk.heal()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"append .*failed"):
            append_leader(log, batch())
    with pytest.raises(StorageError):
        log.append_as_follower(bytes(batch(base_offset=5)))
    with pytest.raises(StorageError):
        log.read(0, 100, FetchIsolation.LOG_END)
    assert log.offsets() == before
    torn = failing.path("00000000000000000000.log").stat().st_size - len(acknowledged)
    assert torn == (0 if kind == "error" else 30)

    log = failing.reopen(clean=False)
    assert read_all(log) == acknowledged
    assert log.size_in_bytes == len(acknowledged)
    failing.append(1)
    assert offsets(read_all(log)) == list(range(6))


def test_failed_write_stops_all_logs_of_the_directory(failing: LogFixture, disk: SimDisk) -> None:
    """15:KAFKA-10778"""
    log = failing.open()
    other = load_log(
        str(failing.log_directory.path) + "/u-0",
        TopicPartition("u", 0),
        config=LogConfig(),
        log_directory=failing.log_directory,
        services=failing.services,
    )
    failing.log_directory.logs["u-0"] = other
    disk.fail("write", path_contains="t-0")

    with pytest.raises(StorageError):
        append_leader(log, batch())
    with pytest.raises(StorageError, match="u-0"):
        append_leader(other, batch())


def test_log_that_its_directory_does_not_know_fails_too(failing: LogFixture, disk: SimDisk) -> None:
    log = failing.open()
    failing.log_directory.logs.clear()
    disk.fail("write", path_contains=".log")

    for _ in range(2):
        with pytest.raises(StorageError):
            append_leader(log, batch())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_running_out_of_descriptors_fails_the_append_alone(
    failing: LogFixture, disk: SimDisk, number: int
) -> None:
    """01 section 8.7, Failure: no descriptor is no fault of the disk."""
    log = failing.open(config=LogConfig(segment_bytes=250))
    failing.append(2, size=100)
    disk.fail("open", path_contains=".log", error=number)

    with pytest.raises(ApiError, match="open files") as e:
        append_leader(log, batch(size=100))  # It has to roll.
    assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failing.log_directory.is_online
    assert log.log_end_offset == 2
    failing.append(2, size=100)
    assert offsets(read_all(log)) == [0, 1, 2, 3]
    assert offsets(read_all(failing.reopen(clean=True))) == [0, 1, 2, 3]


@pytest.mark.parametrize("after", range(12))
def test_running_out_of_descriptors_at_any_step_of_a_roll(
    failing: LogFixture, disk: SimDisk, after: int
) -> None:
    log = failing.open(config=LogConfig(segment_bytes=250))
    append_leader(log, idempotent(0, size=100))
    append_leader(log, idempotent(1, size=100))
    disk.fail("open", error=errno.EMFILE, after=after)

    with contextlib.suppress(ApiError):
        append_leader(log, idempotent(2, size=100))
    disk.heal()
    append_leader(log, idempotent(2, size=100))

    assert failing.log_directory.is_online
    assert bases(log) == [0, 2]
    assert offsets(read_all(log)) == [0, 1, 2]
    assert offsets(read_all(failing.reopen(clean=False))) == [0, 1, 2]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_running_out_of_descriptors_behind_the_write(
    failing: LogFixture, disk: SimDisk, suffix: str
) -> None:
    """The batch is in the file, so it counts; only its index entry is missing."""
    log = failing.open(config=LogConfig(index_interval_bytes=100))
    failing.append(2, size=100)
    disk.fail("open", path_contains=suffix, error=errno.EMFILE)

    failing.append(1, size=100)

    assert failing.log_directory.is_online
    assert log.log_end_offset == 3
    failing.append(5, size=100)
    assert offsets(read_all(log)) == list(range(8))
    for offset in range(8):
        assert found_offsets(log.read(offset, 1, FetchIsolation.LOG_END)) == [offset]


def test_running_out_of_descriptors_at_the_first_append_after_a_start(
    failing: LogFixture, disk: SimDisk
) -> None:
    """The largest timestamp so far is looked up before the write, not behind it."""
    log = failing.open()
    failing.append(2)
    log = failing.reopen(clean=True)
    disk.fail("open", path_contains=".timeindex", error=errno.EMFILE)

    with pytest.raises(ApiError, match="open files"):
        append_leader(log, batch())
    failing.append(1)
    assert offsets(read_all(log)) == [0, 1, 2]


def test_leader_epoch_that_could_not_be_written_is_written_later(
    failing: LogFixture, disk: SimDisk
) -> None:
    """No record of an epoch is stored before the epoch is on disk."""
    log = failing.open()
    disk.fail("open", path_contains="leader-epoch-checkpoint", error=errno.EMFILE, times=2)
    for _ in range(2):
        with pytest.raises(ApiError, match="open files"):
            append_leader(log, batch(), epoch=3)
        assert log.log_end_offset == 0

    append_leader(log, batch(), epoch=3)

    stored = disk.durable_bytes(str(failing.path("leader-epoch-checkpoint")))
    assert stored == b"0\n1\n3 0\n"


@pytest.mark.parametrize("operation", ["open", "write"])
def test_leader_epoch_cannot_be_written(failing: LogFixture, disk: SimDisk, operation: str) -> None:
    log = failing.open()
    failing.append(2, epoch=1)
    disk.fail(operation, path_contains="leader-epoch-checkpoint")

    with pytest.raises(StorageError):
        append_leader(log, batch(), epoch=2)
    assert log.log_end_offset == 2


def test_closed_log_refuses(fixture: LogFixture) -> None:
    log = fixture.open()
    log.close()
    log.close()

    with pytest.raises(StorageError, match="t-0: the log is closed"):
        append_leader(log, batch())


def test_invariants_hold_after_any_append(fixture: LogFixture) -> None:
    """01 section 9.9"""
    log: Log = fixture.open(config=LogConfig(segment_bytes=350))
    for number in range(30):
        append_leader(log, batch(1 + number % 3, size=150))
        if number % 4 == 0:
            log.update_high_watermark(log.log_end_offset - number % 3)
        start, end, high_watermark, stable = log.offsets()
        assert start <= stable <= high_watermark <= end
        assert log.recovery_point <= end
    found = bases(log)
    assert found == sorted(set(found))
    for segment in log.segments:
        following = log.segments.higher(segment.base_offset)
        upper = following.base_offset if following else log.log_end_offset
        assert all(
            segment.base_offset <= b.header.base_offset <= b.header.last_offset < upper
            for b in segment.scan()
        )
