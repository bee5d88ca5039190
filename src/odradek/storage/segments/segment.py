"""One segment: a file of record batches, its indexes, and its largest timestamp.

The file's offsets lie in [base_offset, next segment's base). Only the last segment of a log, the
*active* one, is appended to. Reads never wait for writes: they use `pread` on a descriptor that
outlives renames and ends with the removal of the file.

| module            | its part of a segment                                             |
|-------------------|-------------------------------------------------------------------|
| `segment`         | the log file: append, roll or not, read, cut, rename, remove      |
| `segment_indexes` | the three indexes and the largest timestamp, kept up with appends |
| `offset_lookup`   | from an offset to a position                                      |
| `last_places`     | the positions of the last batches, for consumers at the end       |
| `segment_scan`    | batch by batch: the end of the file, the rebuild of indexes       |
"""

import errno
import logging
import os
from collections.abc import Sequence
from struct import Struct
from typing import final

from odradek.errors import CorruptRecordError, OffsetOverflowError
from odradek.files import Disk
from odradek.records.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    is_crc_valid,
    peek_header,
)
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.paths import LOG_SUFFIX, segment_path
from odradek.storage.segments.chain_check import ChainCheck
from odradek.storage.segments.damage import NEVER_CUT, BatchWalk, Extent
from odradek.storage.segments.file_slice import FileSlice
from odradek.storage.segments.known_damage import KnownDamage
from odradek.storage.segments.last_places import LastPlaces
from odradek.storage.segments.offset_lookup import BatchPlace, find_batch
from odradek.storage.segments.scan import Scan, Skim
from odradek.storage.segments.segment_indexes import SegmentIndexes
from odradek.storage.segments.segment_scan import TailScan, read_next_offset, rebuild_indexes

__all__ = ["BatchPlace", "FetchDataInfo", "LogSegment", "TailScan"]

logger = logging.getLogger(__name__)

_BASE_OFFSET_AND_MAGIC = Struct(">q8xb")


@final
class FetchDataInfo:
    """The result of a read."""

    __slots__ = (
        "aborted_transactions",
        "first_entry_incomplete",
        "offset_metadata",
        "records",
    )

    def __init__(
        self,
        offset_metadata: LogOffsetMetadata,
        records: FileSlice | None,
        first_entry_incomplete: bool = False,
        aborted_transactions: list[AbortedTransaction] | None = None,
    ) -> None:
        self.offset_metadata = offset_metadata
        self.records = records  # None: nothing to read there now.
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions  # None unless TXN_COMMITTED.

    def read(self) -> bytes:
        """The bytes of the batches."""
        return b"" if self.records is None else self.records.read()


# Nothing is reserved for smaller segments: a thousand quiet partitions would take much space.
_RESERVE_FROM = 1 << 20
_RESERVE_BYTES = 8 << 20


class LogSegment:
    """A segment's files.

    Args:
        directory: The partition directory.
        base_offset: Number in the file names. Invariant: <= every offset stored here.
        config: Index sizes and interval.
        disk: Where the files live.
        now_ms: Creation time, for the roll age of a segment without timestamps.
        roll_jitter_ms: Subtracted from this segment's roll age.
        stage: Suffix of the file names, e.g. ``.cleaned``.
        create: Whether the log file is new; otherwise it must exist.

    Raises:
        FileNotFoundError: No log file, and not `create`.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_last_places",
        "_reserved",
        "_rolling_based_timestamp",
        "base_offset",
        "chain",
        "created_ms",
        "damage",
        "fd",
        "indexes",
        "offset_index",
        "offset_limit",
        "path",
        "roll_jitter_ms",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        disk: Disk,
        now_ms: int,
        roll_jitter_ms: int = 0,
        stage: str = "",
        create: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self._directory = directory
        self._disk = disk
        # Timestamp that the time-based roll counts from; None until known.
        self._rolling_based_timestamp: int | None = None
        self.path = segment_path(directory, base_offset, LOG_SUFFIX, stage)
        self.damage = KnownDamage()
        # Where the next segment begins, above every offset stored here; None if there is none.
        self.offset_limit: int | None = None
        self._last_places = LastPlaces()
        self.indexes = indexes = SegmentIndexes(
            directory, base_offset, stage, config=config, disk=disk, is_new=create
        )
        self.offset_index = indexes.offset_index
        self.time_index = indexes.time_index
        self.transaction_index = indexes.transaction_index
        # End of the space that was reserved on disk, or that needs no reservation.
        self._reserved = 0
        self.fd = disk.open(self.path, os.O_RDWR | (os.O_CREAT if create else 0))
        # End of the valid bytes. Invariant: the descriptor's write position.
        self.size = os.lseek(self.fd, 0, os.SEEK_END)
        self.chain = ChainCheck(self.size)
        if create:
            try:
                indexes.create_files(disk)
                if config.preallocate:
                    disk.ftruncate(self.fd, config.segment_bytes)
            except OSError:
                self._close_descriptor()
                raise

    def __repr__(self) -> str:
        return f"LogSegment({self.path}, size={self.size})"

    # Appending

    def append(
        self,
        records: bytes | bytearray | memoryview,
        batches: Sequence[tuple[int, int, int]],
        *,
        largest_offset: int,
        largest_timestamp: int,
    ) -> None:
        """Writes whole batches at the end; into the page cache, not to the disk.

        Args:
            records: The bytes of all batches.
            batches: (last offset, max timestamp, size) of each, in order.
            largest_offset: Last offset of the last batch.
            largest_timestamp: Largest timestamp of all batches.

        Raises:
            OffsetOverflowError: `largest_offset` is too far from the base; nothing is written.
            OSError: Not everything was written; the torn batch is left for recovery.
        """
        if not records:
            return
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise OffsetOverflowError(
                f"offset {largest_offset} does not fit in segment {self.path}:"
                f" expected {self.base_offset}..{self.base_offset + INT32_MAX}"
            )
        position = start = self._write(records, largest_timestamp)
        for last_offset, max_timestamp, size in batches:
            base_offset, magic = _BASE_OFFSET_AND_MAGIC.unpack_from(records, position - start)
            if magic == CURRENT_MAGIC:
                self._last_places.note(base_offset, position)
            else:  # The header of an old format has no first offset.
                self._last_places.clear()
            if not self.indexes.note_batch(last_offset, max_timestamp, size, position):
                self.rebuild_indexes()
            position += size

    def append_single(
        self,
        batch: bytes | bytearray | memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        """`append` of a single batch that fits the segment, as the caller has checked."""
        indexes = self.indexes
        if indexes.max_timestamp is None:
            self._load_max_timestamp()
        position = self.size
        length = len(batch)
        end = position + length
        if end > self._reserved:
            self._reserve(end)
        written = self._disk.write(self.fd, batch)
        if written != length:
            raise self._short_write(written, length)
        if position == 0:
            self._rolling_based_timestamp = max_timestamp
        self.size = end
        self._last_places.note(base_offset, position)
        if not indexes.note_batch(last_offset, max_timestamp, length, position):
            self.rebuild_indexes()

    def _write(self, records: bytes | bytearray | memoryview, largest_timestamp: int) -> int:
        """Writes at the end; returns the position of the first byte."""
        if self.indexes.max_timestamp is None:
            self._load_max_timestamp()  # Before the write: it may have to open a file.
        position = self.size
        length = len(records)
        if position + length > self._reserved:
            self._reserve(position + length)
        written = self._disk.write(self.fd, records)
        if written != length:
            raise self._short_write(written, length)
        if position == 0:
            self._rolling_based_timestamp = largest_timestamp
        self.size = position + length
        return position

    def _short_write(self, written: int, length: int) -> OSError:
        return OSError(errno.ENOSPC, f"short write: {written} of {length} bytes", self.path)

    def _reserve(self, end: int) -> None:
        """Reserves space on disk for later appends, once the segment is not small any more."""
        self._reserved = max(end, _RESERVE_FROM)
        if end > _RESERVE_FROM:
            self._reserved += _RESERVE_BYTES
            self._disk.reserve(self.fd, end, _RESERVE_BYTES)

    def should_roll(
        self,
        size: int,
        max_offset: int,
        max_timestamp: int,
        now_ms: int,
        max_segment_bytes: int,
        max_segment_ms: int,
    ) -> bool:
        """Whether an append of `size` bytes has to go to a new segment."""
        if (
            self.size > max_segment_bytes - size
            or not 0 <= max_offset - self.base_offset <= INT32_MAX
        ):
            return True
        if self.size > 0:
            since = self._rolling_based_timestamp
            waited_ms = (
                max_timestamp - since
                if since is not None and since >= 0
                else self._waited_ms(max_timestamp, now_ms)
            )
            if waited_ms > max_segment_ms - self.roll_jitter_ms:
                return True
        indexes = self.indexes
        offset_index = indexes.writable_offset_index
        if offset_index is None:  # Not written to yet, so not full.
            return False
        time_index = indexes.writable_time_index
        return offset_index.entries >= offset_index.max_entries or (
            # As `is_full`, without its frame: every append comes here.
            time_index is not None and time_index.entries >= time_index.max_entries - 1
        )

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        since = self._rolling_based_timestamp
        if since is None:
            try:
                first = self.header_at(0)
            except CorruptRecordError:
                first = None  # Damage that is kept; the segment's own age counts instead.
            since = first.max_timestamp if first is not None else NO_TIMESTAMP
            self._rolling_based_timestamp = since
        return max_timestamp - since if since >= 0 else now_ms - self.created_ms

    # Reading

    def read(
        self,
        start_offset: int,
        max_size: int,
        *,
        max_position: int | None = None,
        min_one_message: bool = False,
    ) -> FetchDataInfo | None:
        """Bytes from the batch that contains `start_offset` on; None if all offsets are lower.

        Earlier offsets of that batch are included; clients drop them.

        Raises:
            ValueError: `max_size` is negative.
        """
        if max_size < 0:
            raise ValueError(f"max_size {max_size} is negative")
        known = None if self.damage else self._last_places.find(start_offset, self.size)
        place: BatchPlace | None = None
        while True:
            if known is not None:  # Written by this process: no look-up is needed.
                position, first_size = known
            else:
                place = find_batch(self, start_offset)
                if place is None:
                    return None
                position, first_size = place.position, place.header.size
            adjusted = max(max_size, first_size) if min_one_message else max_size
            limit = self.size if max_position is None else max_position
            length = max(0, min(limit - position, adjusted))
            if place is not None and length and (position < self.chain.trusted_from or self.damage):
                length = self._sound_length(place, length, start_offset)
                if not length:
                    continue  # The batch is damaged, which the next look-up knows.
            break
        return FetchDataInfo(
            LogOffsetMetadata(start_offset, self.base_offset, position),
            FileSlice(self._disk, self.fd, position, length, known is not None),
            0 < adjusted < first_size,
        )

    def _sound_length(self, place: BatchPlace, length: int, start_offset: int) -> int:
        """How many bytes of a read are a chain of batches."""
        position, header = place
        broken = self.damage.next_unserved(position)
        end = position + length if broken is None else min(position + length, broken)
        if position < self.chain.trusted_from:
            # A base offset that is too high may be wrong: batches from `start_offset` on count.
            lowest = min(start_offset, header.base_offset)
            end = self.chain.reach(self, position, lowest, end)
        return end - position

    def translate_offset(self, offset: int, start_position: int = 0) -> BatchPlace | None:
        """The first batch whose last offset is at or above `offset`."""
        return find_batch(self, offset, start_position)

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from a position below `size` on."""
        return self._disk.pread(self.fd, min(length, self.size - position), position)

    def header_at(self, position: int) -> BatchHeader | None:
        """The batch header at a byte position; None where the file ends before or inside it.

        Raises:
            CorruptRecordError: The bytes there are not a batch header.
        """
        data = self._disk.pread(self.fd, min(HEADER_SIZE, max(0, self.size - position)), position)
        return peek_header(data)

    def is_misnamed(self) -> bool:
        """Whether the first batch starts below the base offset, which no append writes."""
        try:
            header = self.header_at(0)
        except CorruptRecordError:
            return False
        return header is not None and header.base_offset < self.base_offset

    def scan(self, start: int = 0, *, check_crc: bool = False) -> Scan:
        """Steps through the batches from a position on."""
        return Scan(self._disk, self.fd, start, self.size, check_crc=check_crc)

    def walk(
        self,
        start: int = 0,
        *,
        next_offset: int | None = None,
        cut_from: int = NEVER_CUT,
        is_reach_known: bool = False,
        skim: Skim | None = None,
    ) -> BatchWalk:
        """Walks over all sound batches from a position on and the damage between; see `damage`.

        Args:
            start: The position of a batch, or where one should be.
            next_offset: Its base offset or a lower one; None for that of the segment.
            cut_from: Damage at or above this offset ends the walk.
            is_reach_known: Whether a last batch that no append could have written is damage.
            skim: Consumes whole runs of batches ahead of the walk.
        """
        return BatchWalk(
            self._disk,
            self.fd,
            start=start,
            end=self.size,
            next_offset=self.base_offset if next_offset is None else next_offset,
            last_offset=self.base_offset + INT32_MAX,
            offset_limit=self.offset_limit,
            cut_from=cut_from,
            on_damage=self._note_damage,
            is_reach_known=is_reach_known,
            skim=skim,
        )

    def _note_damage(self, extent: Extent) -> None:
        self.damage.note(self.path, extent)

    def offset_behind(self, position: int) -> int | None:
        """An offset above all records in front of a position, by the index; None if not known.

        The batch of the index entry must be behind the position and end at the entry's offset: too
        low a result would hide aborted transactions.
        """
        if not self.offset_index.is_loaded:
            return None
        entry = self.offset_index.get().fetch_upper_bound(position, 0)
        if entry is None or not position <= entry.position < self.size:
            return None
        try:
            header = self.header_at(entry.position)
        except CorruptRecordError:
            return None
        is_borne_out = header is not None and (
            self.base_offset <= header.base_offset <= header.last_offset <= entry.offset
        )
        return entry.offset if is_borne_out else None

    def read_next_offset(self) -> TailScan:
        """The offset behind the last batch, found from the last index entry; CRCs are checked."""
        return read_next_offset(self)

    def rebuild_indexes(self) -> None:
        """Rebuilds offset and time index from the sound batches; never changes the log file."""
        rebuild_indexes(self)

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp seen; -1 if none."""
        if self.indexes.max_timestamp is None:
            self._load_max_timestamp()
        assert self.indexes.max_timestamp is not None
        return self.indexes.max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch that has the largest timestamp."""
        if self.indexes.max_timestamp is None:
            self._load_max_timestamp()
        return self.indexes.offset_of_max_timestamp

    def _load_max_timestamp(self) -> None:
        """Reads the largest timestamp from the time index, and checks it against the batches.

        An index has no checksum, and may lack its end: the batch of its last entry must have the
        timestamp, and the batches behind that one are read.
        """
        indexes = self.indexes
        if not indexes.load_max_timestamp():
            self.rebuild_indexes()
            return
        timestamp, offset = indexes.max_timestamp, indexes.offset_of_max_timestamp
        assert timestamp is not None
        place = find_batch(self, offset) if timestamp >= 0 else None
        if timestamp >= 0 and (place is None or place.header.max_timestamp != timestamp):
            logger.warning(
                "rebuilding the indexes of %s: no batch at offset %d has the timestamp %d",
                self.path, offset, timestamp,
            )  # fmt: skip
            self.rebuild_indexes()
            return
        scan = self.scan(0 if place is None else place.position)
        for _, header, view, _ in scan:
            # A wrong timestamp in a damaged header could keep a segment for ever.
            if header.max_timestamp > timestamp and is_crc_valid(view, 0, header.size):
                timestamp = header.max_timestamp
                indexes.note_timestamp(timestamp, header.last_offset)
        if scan.damage is not None:
            self.rebuild_indexes()  # It also reads the batches behind the damage.

    def largest_timestamp_ms(self) -> int:
        """The time that retention counts from: the largest timestamp, or the file's own time."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    # Shape and life

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Removes the batch of `offset` and all after it, to be synced; returns how many bytes."""
        place = find_batch(self, offset)
        self.indexes.truncate_to(offset)
        removed = 0
        if place is not None:
            removed = self.size - place.position
            self.truncate_file(place.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._rolling_based_timestamp = None
        if self.indexes.max_timestamp is None or self.indexes.max_timestamp >= 0:
            self._load_max_timestamp()
        return removed

    def cut(self, size: int) -> None:
        """Truncates the log file durably: removed records must not reappear after a crash."""
        self.truncate_file(size)
        self._disk.fsync(self.fd)

    def truncate_file(self, size: int) -> None:
        """Truncates the log file."""
        self._disk.ftruncate(self.fd, size)
        os.lseek(self.fd, size, os.SEEK_SET)
        self.size = size
        self.damage.forget_from(size)
        self.chain.forget_from(size)
        self._last_places.clear()

    def on_become_inactive(self) -> None:
        """Completes the indexes: adds a last time entry, removes preallocated space."""
        if not self.indexes.append_last_timestamp():
            self.rebuild_indexes()
        self.indexes.trim()
        on_disk = os.fstat(self.fd)
        has_spare_room = on_disk.st_blocks * 512 > self.size + _RESERVE_FROM
        if on_disk.st_size > self.size or has_spare_room:
            self.truncate_file(self.size)

    def flush(self) -> None:
        """Makes log and indexes durable."""
        self._disk.fsync(self.fd)
        self.indexes.flush()

    def files(self) -> list[str]:
        """Paths of the files that exist."""
        return [self.path, *self.indexes.files()]

    def change_stage(self, stage: str) -> None:
        """Renames all files to another suffix; the log file last, because loading goes by it."""
        self.indexes.change_stage(self._directory, stage)
        path = segment_path(self._directory, self.base_offset, LOG_SUFFIX, stage)
        self._disk.rename(self.path, path)
        self.path = path

    def update_directory(self, directory: str) -> None:
        """Uses the new path of a renamed partition directory."""
        self._directory = directory
        self.path = os.path.join(directory, os.path.basename(self.path))
        self.indexes.update_directory(directory)

    def close(self) -> None:
        """Closes all files; truncates a preallocated one to its content."""
        if self.fd < 0:
            return
        self.on_become_inactive()
        self.indexes.close()
        self._close_descriptor()

    def close_handles(self) -> None:
        """Closes descriptors and mappings and leaves the files unchanged: the disk failed."""
        self.indexes.close_handles()
        self._close_descriptor()

    def delete_if_exists(self) -> None:
        """Closes and removes all files."""
        self.indexes.delete_if_exists()
        self._close_descriptor()
        try:
            self._disk.unlink(self.path)
        except FileNotFoundError:
            logger.info("%s was gone already", self.path)

    def _close_descriptor(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1
