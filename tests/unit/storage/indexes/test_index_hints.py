"""Indexes are hints: whatever stands in them, no answer is wrong, and no record goes for it."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from odradek.errors import InvalidRecordError
from odradek.model import AppendOrigin
from odradek.protocol.enums import MAX_TIMESTAMP
from odradek.records.batch import CRC_POSITION, iter_headers
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, Codec
from odradek.storage.log.config import LogConfig
from odradek.storage.log.expansion import ExpandedRecords, ExpansionDeferredError
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.segments.timestamp_search import fetch_offset_by_timestamp
from tests.support.logs import T0, LogFixture, batch, flip_bit, marker

HOUR_MS = 3_600_000
SIZE = 200
COUNT = 40
LOG, INDEX, TIME_INDEX = (f"{0:020d}{kind}" for kind in (".log", ".index", ".timeindex"))


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, config=LogConfig(index_interval_bytes=800)) as made:
        yield made


def write(fixture: LogFixture, count: int = COUNT) -> None:
    """One-record batches, ten milliseconds apart, in a segment that is not the last."""
    log = fixture.open()
    for n in range(count):
        log.append_as_leader(batch(size=SIZE, timestamp=T0 + 10 * n), leader_epoch=0)
    log.roll()
    fixture.close()


def check_all_times(log: Log, what: str) -> None:
    for n in range(COUNT):
        for timestamp in (T0 + 10 * n, T0 + 10 * n - 5):
            found = fetch_offset_by_timestamp(log, timestamp)
            assert found is not None, f"{what}: nothing at {timestamp - T0}"
            assert found.offset == n, f"{what}: {found.offset} at {timestamp - T0}"
    assert fetch_offset_by_timestamp(log, T0 + 10 * COUNT) is None, what
    newest = fetch_offset_by_timestamp(log, MAX_TIMESTAMP)
    assert newest is not None, what
    assert newest[:2] == (T0 + 10 * (COUNT - 1), COUNT - 1), what


def test_a_zero_filled_time_index_hides_nothing(fixture: LogFixture) -> None:
    write(fixture)
    path = fixture.path(TIME_INDEX)
    path.write_bytes(bytes(path.stat().st_size))
    check_all_times(fixture.open(clean=True, recovery_point=COUNT), "zeros")


@pytest.mark.slow
def test_no_flipped_bit_of_a_time_index_hides_anything(fixture: LogFixture) -> None:
    write(fixture)
    path = fixture.path(TIME_INDEX)
    sound = path.read_bytes()
    assert len(sound) >= 8 * 12
    for bit in range(0, len(sound) * 8, 11):
        path.write_bytes(sound)
        flip_bit(path, bit)
        log = fixture.open(clean=True, recovery_point=COUNT)
        check_all_times(log, f"bit {bit}")
        log.close()


@pytest.mark.parametrize("slots", [1, 2, 100])
def test_a_time_index_without_its_end_hides_nothing(slots: int, fixture: LogFixture) -> None:
    write(fixture)
    path = fixture.path(TIME_INDEX)
    os.truncate(path, max(0, path.stat().st_size - 12 * slots))
    check_all_times(fixture.open(clean=True, recovery_point=COUNT), f"{slots} slots less")


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_no_record_goes_before_its_time_for_a_damaged_time_index(
    damage: str, fixture: LogFixture
) -> None:
    """Retention of 24 h, a record 11 h old, and an index that says 30 h."""
    fixture.config = LogConfig(index_interval_bytes=800, retention_ms=24 * HOUR_MS)
    log = fixture.open()
    now_ms = fixture.clock.now_ms()
    for n in range(20):
        log.append_as_leader(batch(size=SIZE, timestamp=now_ms - 30 * HOUR_MS + n), leader_epoch=0)
    log.append_as_leader(batch(size=SIZE, timestamp=now_ms - 11 * HOUR_MS), leader_epoch=0)
    log.roll()
    log.append_as_leader(batch(size=SIZE, timestamp=now_ms), leader_epoch=0)
    fixture.close()
    path = fixture.path(TIME_INDEX)
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 12)
    else:
        path.write_bytes(bytes(path.stat().st_size))
    os.utime(fixture.path(LOG), (0, 0))
    log = fixture.open(clean=True, recovery_point=22)
    log.update_high_watermark(22)
    assert delete_old_segments(log) == 0
    fixture.clock.advance(14 * HOUR_MS)
    assert delete_old_segments(log) == 1


@pytest.mark.slow
@pytest.mark.parametrize("position", [COUNT * SIZE, 1 << 30, -1])
def test_an_entry_that_leads_out_of_the_file_hides_nothing(
    position: int, fixture: LogFixture
) -> None:
    write(fixture)
    path = fixture.path(INDEX)
    data = bytearray(path.read_bytes())
    entries = len(data) // 8
    assert entries > 3
    for slot in (1, entries - 1):
        struct.pack_into(">i", data, slot * 8 + 4, position)
    path.write_bytes(data)
    log = fixture.open(clean=True, recovery_point=COUNT)
    for offset in reversed(range(COUNT)):
        found = log.read(offset, 1, FetchIsolation.LOG_END).read()
        assert [header.base_offset for _, header in iter_headers(found)] == [offset]


def test_an_entry_that_leads_into_a_batch_hides_nothing(fixture: LogFixture) -> None:
    """From byte 19 on, half of all batches can be read as a header of an old format."""
    write(fixture)
    log_data = fixture.path(LOG).read_bytes()
    number = next(n for n in range(20, COUNT) if log_data[n * SIZE + 19] >= 0x80)
    path = fixture.path(INDEX)
    data = bytearray(path.read_bytes())
    slot = next(
        n for n in range(len(data) // 8) if struct.unpack_from(">i", data, n * 8)[0] >= number - 4
    )
    struct.pack_into(">ii", data, slot * 8, number - 1, number * SIZE + 19)
    path.write_bytes(data[: (slot + 1) * 8])
    log = fixture.open(clean=True, recovery_point=COUNT)
    assert log.segments.first is not None
    for offset in reversed(range(COUNT)):
        found = log.read(offset, 1, FetchIsolation.LOG_END).read()
        assert [header.base_offset for _, header in iter_headers(found)] == [offset]
    assert not log.segments.first.damage


def test_no_segment_outlives_its_time_for_a_damaged_time_index(fixture: LogFixture) -> None:
    """One high bit of the last entry, and the segment would look a thousand years younger."""
    write(fixture)
    path = fixture.path(TIME_INDEX)
    data = bytearray(path.read_bytes())
    timestamp, offset = struct.unpack_from(">qi", data, len(data) - 12)
    assert timestamp == T0 + 10 * (COUNT - 1)
    struct.pack_into(">qi", data, len(data) - 12, timestamp + 1000 * 8760 * HOUR_MS, offset)
    path.write_bytes(data)
    fixture.clock.advance(25 * HOUR_MS)
    config = LogConfig(index_interval_bytes=800, retention_ms=24 * HOUR_MS)
    log = fixture.open(clean=True, recovery_point=COUNT, config=config)
    log.update_high_watermark(COUNT)
    assert log.segments.first is not None
    assert log.segments.first.largest_timestamp_ms() == timestamp
    assert delete_old_segments(log) == 1


def test_aborted_transactions_are_listed_whatever_the_offset_index_says(
    fixture: LogFixture,
) -> None:
    """An upper bound that is too low would serve aborted records as committed ones."""
    log = fixture.open()
    fixture.append(20, size=SIZE)
    aborted = batch(
        size=SIZE, is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(aborted, leader_epoch=0)
    fixture.append(9, size=SIZE)
    abort = marker(commit=False, producer_id=7)
    log.append_as_leader(abort, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    fixture.append(20, size=SIZE)
    fixture.close()
    path = fixture.path(INDEX)
    sound = path.read_bytes()
    low_bits_of_offsets = [bit for bit in range(len(sound) * 8) if 24 <= bit % 64 < 32]
    for bit in {*range(0, len(sound) * 8, 3), *low_bits_of_offsets}:
        path.write_bytes(sound)
        flip_bit(path, bit)
        log = fixture.open(clean=True, recovery_point=51)
        log.update_high_watermark(51)
        for length in (SIZE, 22 * SIZE, 26 * SIZE):
            found = log.read(0, length, FetchIsolation.TXN_COMMITTED)
            last = [header.last_offset for _, header in iter_headers(found.read())][-1]
            listed = [one.first_offset for one in found.aborted_transactions or []]
            if last >= 20:
                assert listed == [20], f"bit {bit}, {length} bytes"
        log.close()


def undecodable(base_offset: int, timestamp: int) -> bytes:
    """A batch with a good checksum and records that cannot be expanded."""
    data = batch(size=SIZE, base_offset=base_offset, timestamp=timestamp)
    data[22] |= int(Codec.ZSTD)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(data[21:]))
    return bytes(data)


@pytest.mark.parametrize("kind", ["checksum", "records"])
def test_one_damaged_batch_fails_no_search_by_time(kind: str, fixture: LogFixture) -> None:
    write(fixture)
    data = bytearray(fixture.path(LOG).read_bytes())
    if kind == "checksum":
        data[20 * SIZE + 150] ^= 1
    else:
        data[20 * SIZE : 21 * SIZE] = undecodable(20, T0 + 200)
    fixture.path(LOG).write_bytes(data)
    log = fixture.open(clean=True, recovery_point=COUNT)
    for n in range(COUNT):
        found = fetch_offset_by_timestamp(log, T0 + 10 * n)
        assert found is not None
        assert found.offset == (21 if n == 20 else n)


def test_the_newest_record_is_found_without_reading_the_segment(fixture: LogFixture) -> None:
    """ListOffsets(-3): the batch is looked up, not searched for."""
    write(fixture)
    log = fixture.open(clean=True, recovery_point=COUNT)
    segment = log.segments.first
    assert segment is not None
    assert segment.max_timestamp == T0 + 10 * (COUNT - 1)
    # Damage in front of it is not even noticed.
    with open(segment.path, "r+b") as file:
        file.write(bytes(SIZE * 10))
    found = fetch_offset_by_timestamp(log, MAX_TIMESTAMP)
    assert found is not None
    assert found.offset == COUNT - 1
    assert not len(segment.damage)


def test_a_leader_accepts_nothing_that_its_readers_would_not_expand(fixture: LogFixture) -> None:
    """10 sections 4 and 5: one bound, whatever `max.message.bytes` is. 300 MiB in ten kilobytes."""
    block = struct.pack("<I", 131_072 << 3 | 1 << 1)[:3] + b"\0"  # One byte, 131,072 times.
    count = (300 << 20) // 131_072
    last = struct.pack("<I", 131_072 << 3 | 1 << 1 | 1)[:3] + b"\0"
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 300 << 20) + block * (count - 1) + last
    data = bytearray(batch())[:61] + frame
    data[22] |= int(Codec.ZSTD)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(data[21:]))
    log = fixture.open(config=LogConfig(max_message_bytes=16 << 20))
    with pytest.raises(ExpansionDeferredError) as deferred:
        log.append_as_leader(data, leader_epoch=0)
    records = ExpandedRecords(data)
    deferred.value.expand(records)
    with pytest.raises(InvalidRecordError, match=f"at most {DEFAULT_MAX_DECOMPRESSED_SIZE}"):
        log.append_as_leader(records, leader_epoch=0)
