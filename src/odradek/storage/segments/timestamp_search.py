"""The search for an offset by time.

The time index says up to which offset no record is newer than the wanted timestamp; from there the
search steps through the batches, and opens only one that can contain the answer. The index is a
hint: the batch at an entry must have the entry's timestamp, otherwise the index is rebuilt.

Opening a batch that is compressed, or has many records, can take too long for an event loop. A
caller on one passes `OpenedBatches`; the search then raises `SearchDeferredError` at such a batch.
The caller opens it on a thread, and searches again::

    search ── batch at 700 ── deferred ─► open: 712 ── search ── batch at 700 ── opened: 712
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from odradek.errors import ApiError, CorruptIndexError, OdradekError
from odradek.protocol.enums import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.record import Record, read_records
from odradek.storage.log.log import Log
from odradek.storage.segments.segment import LogSegment

__all__ = [
    "OpenedBatches",
    "SearchDeferredError",
    "TimestampedOffset",
    "fetch_offset_by_timestamp",
]

logger = logging.getLogger(__name__)

# Records that are read one by one within half a millisecond.
_FEW_RECORDS = 300

# A record within a batch: its timestamp and offset.
_Found: TypeAlias = tuple[int, int]
# The search in a batch (header, timestamp, lowest offset), and the record that was found in it.
OpenedBatches: TypeAlias = dict[tuple[BatchHeader, int, int], _Found | None]


class SearchDeferredError(OdradekError):
    """A batch has to be opened first, which would occupy an event loop for too long.

    Args:
        open_batch: Opens it, on any thread, and adds the result to the `OpenedBatches`.
    """

    def __init__(self, message: str, open_batch: Callable[[], None]) -> None:
        super().__init__(message)
        self.open_batch = open_batch


class TimestampedOffset(NamedTuple):
    """An offset found by time."""

    timestamp: int  # Of the record; -1 for the ends of the log.
    offset: int
    leader_epoch: int | None  # The epoch the offset was written under, where known.


def fetch_offset_by_timestamp(
    log: Log, timestamp: int, opened: OpenedBatches | None = None
) -> TimestampedOffset | None:
    """The first record at or after `timestamp`, or an end of the log by a negative value.

    Args:
        log: Where to look.
        timestamp: In milliseconds; negative: one of the constants above.
        opened: The batches that were opened for this search; None: all are opened here.

    Raises:
        SearchDeferredError: A batch has to be opened that is not among `opened`.
        StorageError: The log is closed or its disk failed.
    """
    log.check_usable()
    try:
        if timestamp == EARLIEST:
            return _answer(log, -1, log.log_start_offset)
        if timestamp == LATEST:
            return _answer(log, -1, log.log_end_offset)
        if timestamp == MAX_TIMESTAMP:
            return _record_with_max_timestamp(log, opened)
        for segment in log.segments:
            if segment.largest_timestamp_ms() < timestamp:
                continue
            found = _first_at_or_after(log, segment, timestamp, opened)
            if found is not None:
                return found
    except OSError as error:
        raise log.fail("look up a timestamp", error) from error
    return None


def _answer(log: Log, timestamp: int, offset: int) -> TimestampedOffset:
    return TimestampedOffset(timestamp, offset, log.leader_epochs.epoch_for_offset(offset))


def _first_at_or_after(
    log: Log, segment: LogSegment, timestamp: int, opened: OpenedBatches | None
) -> TimestampedOffset | None:
    start = max(_indexed_offset(segment, timestamp), log.log_start_offset)
    place = segment.translate_offset(start)
    if place is None:
        return None
    lowest = min(start, place.header.base_offset)
    for position, header, view, _ in segment.walk(place.position, next_offset=lowest):
        if header.max_timestamp < timestamp:
            continue
        batch = _Batch(segment, position, header, view)
        found = _look_into(batch, timestamp, log.log_start_offset, opened)
        if found is not None:
            return _answer(log, *found)
    return None


class _Batch(NamedTuple):
    """A batch that can contain the answer."""

    segment: LogSegment
    position: int
    header: BatchHeader
    data: Buffer


def _look_into(
    batch: _Batch, timestamp: int, lowest: int, opened: OpenedBatches | None
) -> _Found | None:
    """The first record of a batch at or after a time, with at least the lowest offset."""
    header = batch.header
    is_quick = not header.is_compressed and header.record_count <= _FEW_RECORDS
    if opened is None or is_quick:
        return _find(batch, timestamp, lowest)
    key = (header, timestamp, lowest)
    if key in opened:
        return opened[key]
    mine = batch._replace(data=bytes(batch.data))  # The view may be invalid by then.

    def open_batch() -> None:
        opened[key] = _find(mine, timestamp, lowest)

    raise SearchDeferredError(
        f"{batch.segment.path}: the batch at position {batch.position} has to be opened", open_batch
    )


def _find(batch: _Batch, timestamp: int, lowest: int) -> _Found | None:
    for record in _records_of(batch):
        if record.timestamp >= timestamp and record.offset >= lowest:
            return record.timestamp, record.offset
    return None


def _records_of(batch: _Batch) -> Iterator[Record]:
    """The records of a batch up to the first unreadable one: a bad batch fails no search."""
    try:
        yield from read_records(batch.data, header=batch.header)
    except ApiError as error:
        logger.warning(
            "%s: a search by time skips the batch at position %d: %s",
            batch.segment.path, batch.position, error,
        )  # fmt: skip


def _indexed_offset(segment: LogSegment, timestamp: int) -> int:
    """The offset to start at: the floor in the time index, if its batch confirms it."""
    try:
        return _checked_floor(segment, timestamp)
    except CorruptIndexError as error:
        logger.warning("rebuilding the indexes of %s: %s", segment.path, error)
        segment.rebuild_indexes()
    try:
        return _checked_floor(segment, timestamp)
    except CorruptIndexError:
        return segment.base_offset  # No entry is usable: every batch is read.


def _checked_floor(segment: LogSegment, timestamp: int) -> int:
    newly_mapped = not segment.time_index.is_loaded
    index = segment.time_index.get()
    if newly_mapped:
        index.sanity_check()
    slot, _ = index.slot_range(timestamp)
    # The entry that is used and its neighbours: a wrong neighbour would make the search longer.
    entries = [index.entry(n) for n in range(max(0, slot - 1), min(slot + 2, index.entries))]
    for before, after in itertools.pairwise(entries):
        if after.timestamp <= before.timestamp or after.offset < before.offset:
            raise CorruptIndexError(f"time index {index.path}: {after} does not follow {before}")
    for entry in entries:
        place = segment.translate_offset(entry.offset)
        if place is None or place.header.max_timestamp != entry.timestamp:
            raise CorruptIndexError(
                f"time index {index.path}: the batch at offset {entry.offset} does not have the"
                f" timestamp {entry.timestamp}"
            )
    return segment.base_offset if slot < 0 else index.entry(slot).offset


def _record_with_max_timestamp(log: Log, opened: OpenedBatches | None) -> TimestampedOffset | None:
    best: LogSegment | None = None
    for segment in log.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    wanted = best.max_timestamp
    place = best.translate_offset(best.offset_of_max_timestamp)
    if place is None or place.header.max_timestamp != wanted:
        return None  # Damaged since it was found.
    position, header = place
    batch = _Batch(best, position, header, best.read_at(position, header.size))
    # No record of the batch is newer, so the first one that is as new has this timestamp.
    found = _look_into(batch, wanted, best.base_offset, opened)
    return None if found is None else _answer(log, *found)
