"""One pass over one log: the part that runs on a thread and uses no log.

1. `read_keys` reads the dirty segments and stores the last offset of each key, until the table is
   full: `end_offset` is where the pass ends.
2. `clean` copies one group of segments after the other through the filter into a new segment,
   complete and synced, with the suffix `.cleaned`.

The pass has its own descriptors; if segments are removed or change meanwhile, the owner of the log
cancels the pass and does not use its segments. The pass checks for cancellation after every few
hundred kilobytes, and waits there to keep to the configured rate.

A batch with a bad checksum ends the pass: rewriting it would give it a valid one.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from odradek.errors import CorruptRecordError, OdradekError
from odradek.files import Disk
from odradek.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER_SIZE,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
)
from odradek.records.key_table import MAX_SLOTS, SLOT_SIZE, KeyTable
from odradek.records.record import read_region
from odradek.storage.cleaning.batch_filter import BatchFilter, LastRecord
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.cleaning.plan import SourceSegment, group_sources
from odradek.storage.cleaning.throttle import Throttle
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import LogConfig
from odradek.storage.paths import CLEANED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, segment_path
from odradek.storage.segments.scan import Scan, Skim
from odradek.storage.segments.segment import LogSegment

__all__ = [
    "CleaningCancelledError",
    "CleaningPass",
    "LeftBehindError",
    "PassPlan",
    "PassStats",
    "TableTooSmallError",
]

# Bytes between two checks of cancellation and rate.
_STRIDE_BYTES = 256 << 10
# Seconds after which a waiting thread checks whether it may continue: the rate may be raised.
_LOOK_SECONDS = 0.5


class CleaningCancelledError(OdradekError):
    """The pass was cancelled."""


class TableTooSmallError(OdradekError):
    """The table has not even room for the keys of one batch."""


class LeftBehindError(OdradekError):
    """A `.cleaned` segment could not be removed, for the reason in `error`.

    The next start would treat it as an interrupted swap, and undo every later one as well.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPlan:
    """The facts about a log that a pass needs, as of its beginning."""

    name: str  # Of the partition, for messages.
    directory: str
    config: LogConfig
    sources: Sequence[SourceSegment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: Sequence[AbortedTransaction]
    last_records: dict[int, LastRecord]  # By producer id.
    now_ms: int
    secret: bytes = field(repr=False)  # For the table of keys.


@dataclass(slots=True)
class PassStats:
    """Figures of a pass."""

    map_bytes_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    invalid_records: int = 0
    keys: int = 0
    buffer_utilization: float = 0.0  # Of the table, 0 to 1.


@dataclass(slots=True)
class CleaningPass:
    """A running pass.

    Attributes:
        plan: The facts about its log.
        end_offset: The first dirty offset once the pass is done; set by `read_keys`.
        groups: Segments that are merged into one; set by `read_keys`.
        cancelled: Set from any thread: the pass ends with `CleaningCancelledError`.
    """

    plan: PassPlan
    disk: Disk
    config: CleanerConfig
    throttle: Throttle
    stats: PassStats = field(default_factory=PassStats)
    end_offset: int = -1
    groups: list[list[SourceSegment]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    _table: KeyTable | None = None
    _filter: BatchFilter | None = None
    _owed_bytes: int = 0

    # Reading the keys

    def read_keys(self) -> None:
        """Fills the table and decides where the pass ends.

        Raises:
            CleaningCancelledError: It was cancelled.
            TableTooSmallError: The first batch has more keys than the table.
            ApiError: A batch is damaged.
            OSError: The disk failed, or a segment was removed.
        """
        plan = self.plan
        table = self._table = KeyTable(self._slot_count(), self.config.load_factor, plan.secret)
        # The pass would never read the markers of transactions that ended before, and later ones
        # of the same producers would count as aborted.
        transactions = CleanedTransactions(
            t for t in plan.aborted if t.last_offset >= plan.first_dirty_offset
        )
        latest_offset = plan.first_dirty_offset - 1
        for source in plan.sources:
            if source.end_offset <= plan.first_dirty_offset:
                continue
            read, is_whole = self._read_keys_of(source, table, transactions)
            self.stats.map_bytes_read += source.size
            latest_offset = max(latest_offset, read)
            if not is_whole:
                break
            latest_offset = max(latest_offset, source.end_offset - 1)
        self.stats.keys = len(table)
        self.stats.buffer_utilization = len(table) / table.capacity
        if latest_offset < plan.first_dirty_offset:
            raise TableTooSmallError(
                f"{plan.name}: the batch at offset {plan.first_dirty_offset} has more than the"
                f" {table.capacity} keys there is room for; raise log.cleaner.dedupe.buffer.size,"
                " or lower log.cleaner.threads"
            )
        self.end_offset = latest_offset + 1
        self.groups = group_sources(
            plan.sources,
            end_offset=self.end_offset,
            max_bytes=plan.config.segment_bytes,
            max_index_bytes=plan.config.segment_index_bytes,
        )
        self._filter = BatchFilter(
            table,
            latest_offset=latest_offset,
            transactions=CleanedTransactions(plan.aborted),
            last_records=plan.last_records,
            first_uncleanable_offset=plan.first_uncleanable_offset,
            now_ms=plan.now_ms,
            config=plan.config,
        )

    def _slot_count(self) -> int:
        """Slots for as many keys as there may be, within the memory of one thread."""
        most = self.config.dedupe_buffer_bytes // self.config.threads // SLOT_SIZE
        offsets = self.plan.first_uncleanable_offset - self.plan.first_dirty_offset
        wanted = int(offsets / self.config.load_factor) + 2
        return max(2, min(most, wanted, MAX_SLOTS))

    def _read_keys_of(
        self, source: SourceSegment, table: KeyTable, transactions: CleanedTransactions
    ) -> tuple[int, bool]:
        """Last offset of the last batch whose keys all fit, and whether that was the last batch."""
        first_dirty = self.plan.first_dirty_offset
        latest_offset = -1

        def skim(chunk: memoryview, position: int, _chunk_start: int) -> int:
            nonlocal latest_offset
            end, last_offset = table.put_run(chunk, position, first_dirty)
            latest_offset = max(latest_offset, last_offset)
            self._owe(end - position)
            return end

        for header, batch in self._batches(source, skim):
            self._owe(len(batch))
            last_offset = header.base_offset + header.last_offset_delta
            if header.magic < CURRENT_MAGIC or last_offset < first_dirty:
                continue
            attributes = header.attributes  # Bits instead of properties: this runs for each batch.
            if attributes & CONTROL_MASK:
                transactions.is_marker_of_nothing(header, batch)
            elif not (
                attributes & TRANSACTIONAL_MASK and transactions.is_aborted(header)
            ) and not table.put(
                read_region(batch, header=header)
                if attributes & CODEC_MASK
                else batch[HEADER_SIZE:],
                header.record_count,
                header.base_offset,
                first_dirty,
            ):
                return latest_offset, False
            latest_offset = last_offset
        return latest_offset, True

    # Copying

    def clean(self, group: Sequence[SourceSegment], now_ms: int) -> LogSegment:
        """Writes the records of a group that stay to a segment, complete and synced as `.cleaned`.

        Raises:
            CleaningCancelledError: It was cancelled; the segment is removed.
            ApiError: A batch is damaged; likewise.
            OSError: The disk failed; likewise.
            LeftBehindError: One of these, and the segment could not be removed.
        """
        assert self._filter is not None
        segment = self._new_segment(group[0].base_offset, now_ms)
        try:
            if segment.size:  # Bytes that an earlier pass could not remove.
                segment.truncate_file(0)
                segment.indexes.reset()
            mtime_ns = self._copy(group, segment, self._filter)
            segment.transaction_index.reset()
            for transaction in self._filter.transactions.take_kept():
                segment.transaction_index.append(transaction)
            segment.on_become_inactive()
            segment.flush()
            os.utime(segment.path, ns=(mtime_ns, mtime_ns))
            self._check_cancelled()
        except BaseException:
            try:
                segment.delete_if_exists()
            except OSError as error:
                segment.close_handles()
                raise LeftBehindError(error) from error
            raise
        stats, batch_filter = self.stats, self._filter
        stats.bytes_written += segment.size
        stats.records_read = batch_filter.records_read
        stats.records_kept = batch_filter.records_kept
        stats.invalid_records = batch_filter.invalid_records
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        plan = self.plan
        try:
            return LogSegment(
                plan.directory,
                base_offset,
                config=plan.config,
                disk=self.disk,
                now_ms=now_ms,
                stage=CLEANED_SUFFIX,
                create=True,
            )
        except OSError:  # Some of its files may exist.
            for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                try:
                    self.disk.unlink(
                        segment_path(plan.directory, base_offset, suffix, CLEANED_SUFFIX)
                    )
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise LeftBehindError(error) from error
            raise

    def _copy(
        self, group: Sequence[SourceSegment], segment: LogSegment, batch_filter: BatchFilter
    ) -> int:
        """Copies a group; returns when the last of its segments was written to."""
        mtime_ns = 0
        writer = _Writer(segment, self._buffer_bytes)

        def skim(chunk: memoryview, position: int, _chunk_start: int) -> int:
            end, data, batches = batch_filter.retain_run(chunk, position)
            if batches:
                writer.add(data, batches)
            self._owe(end - position + len(data))
            return end

        for source in group:
            for header, batch in self._batches(source, skim):
                retained = batch_filter.retain(header, batch)
                size = len(batch)
                if retained is not None:
                    data, last_offset, max_timestamp = retained
                    writer.add(data, ((last_offset, max_timestamp, len(data)),))
                    size += len(data)
                self._owe(size)
            self.stats.bytes_read += source.size
            mtime_ns = os.stat(source.path).st_mtime_ns
        writer.flush()
        return mtime_ns

    # Reading, waiting

    @property
    def _buffer_bytes(self) -> int:
        return max(self.config.io_buffer_bytes // self.config.threads, HEADER_SIZE)

    def _batches(
        self, source: SourceSegment, skim: Skim
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a segment except skimmed ones; a damaged one is an error."""
        self._check_cancelled()
        fd = self.disk.open(source.path, os.O_RDONLY)
        try:
            scan = Scan(
                self.disk,
                fd,
                0,
                source.size,
                check_crc=True,
                chunk_bytes=self._buffer_bytes,
                skim=skim,
            )
            for position, header, view, is_crc_valid in scan:
                if not is_crc_valid:
                    raise CorruptRecordError(
                        f"{source.path}: the batch at position {position} does not match its"
                        f" checksum {header.crc:#010x}"
                    )
                yield header, view
            if scan.damage is not None:
                raise CorruptRecordError(
                    f"{source.path}: {scan.damage.reason}, at position {scan.damage.position}"
                )
        finally:
            self.disk.close(fd)

    def _owe(self, byte_count: int) -> None:
        """Counts bytes read or written; waits when there are enough of them."""
        self._owed_bytes += byte_count
        if self._owed_bytes >= _STRIDE_BYTES:
            self._pace()

    def _pace(self) -> None:
        """Waits as long as the rate demands for the bytes since the last wait."""
        wait_ms = self.throttle.spend(self._owed_bytes)
        self._owed_bytes = 0
        while wait_ms >= 1 and not self.cancelled.wait(min(wait_ms / 1000, _LOOK_SECONDS)):
            wait_ms = self.throttle.left_ms()
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise CleaningCancelledError(f"{self.plan.name}: the pass was cancelled")


class _Writer:
    """Collects batches, so that they are written in large pieces."""

    __slots__ = ("_batches", "_buffer_bytes", "_data", "_segment", "_size")

    def __init__(self, segment: LogSegment, buffer_bytes: int) -> None:
        self._segment = segment
        self._buffer_bytes = buffer_bytes
        self._data: list[Buffer] = []
        self._batches: list[tuple[int, int, int]] = []
        self._size = 0

    def add(self, data: Buffer, batches: Sequence[tuple[int, int, int]]) -> None:
        """Adds whole batches: (last offset, max timestamp, size) of each."""
        self._data.append(data)
        self._batches += batches
        self._size += len(data)
        if self._size >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Writes the collected batches."""
        if not self._batches:
            return
        self._segment.append(
            b"".join(self._data),
            self._batches,
            largest_offset=self._batches[-1][0],
            largest_timestamp=max(batch[1] for batch in self._batches),
        )
        self._data, self._batches, self._size = [], [], 0
