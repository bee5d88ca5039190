"""Finding an offset by time.

The time index says up to which offset no record is newer than the one looked for; from there the
batch headers are stepped through, and only the batch that can hold the answer is opened.
"""

from typing import NamedTuple

from odradek.errors import CorruptIndexError
from odradek.records.record import read_records
from odradek.storage.log import Log
from odradek.storage.segment import LogSegment

__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "MAX_TIMESTAMP",
    "TimestampedOffset",
    "fetch_offset_by_timestamp",
]

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


class TimestampedOffset(NamedTuple):
    """An offset found by time."""

    timestamp: int  # Of the record; -1 for the ends of the log.
    offset: int
    leader_epoch: int | None  # The epoch the offset was written under, where known.


def fetch_offset_by_timestamp(log: Log, timestamp: int) -> TimestampedOffset | None:
    """The first record at or after `timestamp`, or an end of the log by a negative value.

    Raises:
        StorageError: The log is closed or its disk failed.
    """
    log.check_usable()
    try:
        if timestamp == EARLIEST_TIMESTAMP:
            return _answer(log, -1, log.log_start_offset)
        if timestamp == LATEST_TIMESTAMP:
            return _answer(log, -1, log.log_end_offset)
        if timestamp == MAX_TIMESTAMP:
            return _record_with_max_timestamp(log)
        for segment in log.segments:
            if segment.largest_timestamp_ms() < timestamp:
                continue
            if (found := _first_at_or_after(log, segment, timestamp)) is not None:
                return found
    except OSError as error:
        raise log.fail("look up a timestamp", error) from error
    return None


def _answer(log: Log, timestamp: int, offset: int) -> TimestampedOffset:
    return TimestampedOffset(timestamp, offset, log.leader_epochs.epoch_for_offset(offset))


def _first_at_or_after(log: Log, segment: LogSegment, timestamp: int) -> TimestampedOffset | None:
    start = max(_indexed_offset(segment, timestamp), log.log_start_offset)
    place = segment.translate_offset(start)
    if place is None:
        return None
    for _, header, view, _ in segment.scan(place.position):
        if header.max_timestamp < timestamp:
            continue
        for record in read_records(view, header=header):
            if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                return _answer(log, record.timestamp, record.offset)
    return None


def _indexed_offset(segment: LogSegment, timestamp: int) -> int:
    """Where to start: the time index's floor, if its neighbours confirm it."""
    try:
        return _checked_floor(segment, timestamp)
    except CorruptIndexError:
        segment.rebuild_indexes()
        return _checked_floor(segment, timestamp)


def _checked_floor(segment: LogSegment, timestamp: int) -> int:
    newly_mapped = not segment.time_index.is_loaded
    index = segment.time_index.get()
    if newly_mapped:
        index.sanity_check()
    slot, _ = index.slot_range(timestamp)
    if slot < 0:
        return segment.base_offset
    entry = index.entry(slot)
    before = index.entry(slot - 1) if slot else None
    after = index.entry(slot + 1) if slot + 1 < index.entries else None
    if (before is not None and not (before.timestamp < entry.timestamp)) or (
        before is not None and before.offset > entry.offset
    ):
        raise CorruptIndexError(
            f"time index {index.path}: slot {slot} does not follow the one before"
        )
    if after is not None and (after.timestamp <= entry.timestamp or after.offset < entry.offset):
        raise CorruptIndexError(f"time index {index.path}: slot {slot + 1} does not follow")
    # The entry's batch ends at its offset, so that batch must be there, or the entry lies.
    if segment.translate_offset(entry.offset) is None:
        raise CorruptIndexError(
            f"time index {index.path}: offset {entry.offset} is beyond the end of the segment"
        )
    return entry.offset


def _record_with_max_timestamp(log: Log) -> TimestampedOffset | None:
    best: LogSegment | None = None
    for segment in log.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    wanted = best.max_timestamp
    for _, header, view, _ in best.scan():
        if header.max_timestamp != wanted:
            continue
        for record in read_records(view, header=header):
            if record.timestamp == wanted:
                return _answer(log, wanted, record.offset)
    return None
