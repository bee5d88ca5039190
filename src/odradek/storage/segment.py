"""One segment: a file of record batches, its indexes, and what is known of its timestamps.

The file's offsets lie in [base_offset, next segment's base). Only the last segment of a log, the
*active* one, is appended to. An index entry pairs the **last** offset of a batch with the **start**
position of that batch, at most one for every `index_interval_bytes`::

    batches of 1000 bytes, interval 4096     [0][1][2][3][4][5][6] …
    before batch 5 the counter is 5000 > 4096, so (5 -> 5000) goes in, and the counter restarts

An index is a hint: it carries no checksum, so a look-up checks what stands at the position it got
(`_floor_position`), and a lie costs a rebuild, never a record.

Indexes are mapped when they are first read or written. Reads never wait for writes: they use
`pread` on a descriptor that outlives renames and ends with the removal of the file.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.errors import (
    CorruptIndexError,
    CorruptRecordError,
    InvalidOffsetError,
    LogDataError,
    OffsetOverflowError,
)
from odradek.files import Disk
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, NO_TIMESTAMP, BatchHeader, peek_header
from odradek.storage.config import INT32_MAX, LogConfig
from odradek.storage.lazy_index import LazyIndex
from odradek.storage.offset_index import OffsetIndex
from odradek.storage.offsets import LogOffsetMetadata
from odradek.storage.paths import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from odradek.storage.scan import Damage, Salvage, Scan, ScannedBatch
from odradek.storage.time_index import TimeIndex
from odradek.storage.transaction_index import TransactionIndex

__all__ = ["BatchPlace", "FileSlice", "LogSegment", "SegmentRead", "TailScan"]

logger = logging.getLogger(__name__)

_STEP_BYTES = 16 << 10  # One read of a look-up: an index interval of small batches, with room.


class FileSlice:
    """Bytes [position, position + length) of an open segment file, to be sent or read.

    Its length is that of the bytes, so that it can stand for them in a response.
    """

    __slots__ = ("disk", "fd", "length", "position")

    def __init__(self, disk: Disk, fd: int, position: int, length: int) -> None:
        self.disk = disk
        self.fd = fd
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice(fd={self.fd}, position={self.position}, length={self.length})"

    def read(self) -> bytes:
        """The bytes; fewer if the file was truncated meanwhile."""
        data: bytes = self.disk.pread(self.fd, self.length, self.position)
        while len(data) < self.length:
            more = self.disk.pread(self.fd, self.length - len(data), self.position + len(data))
            if not more:
                break
            data += more
        return data


class BatchPlace(NamedTuple):
    """A batch of a segment: where it starts and what its header says."""

    position: int
    header: BatchHeader


class SegmentRead(NamedTuple):
    """What a read of one segment found."""

    offset_metadata: LogOffsetMetadata
    records: FileSlice
    first_entry_incomplete: bool


class TailScan(NamedTuple):
    """Where the last batch of a segment ends."""

    next_offset: int
    damage: Damage | None  # The end could not be reached: load as after an unclean stop.


class LogSegment:
    """A segment's files.

    Args:
        directory: The partition directory.
        base_offset: Number in the file names. Invariant: <= every offset stored here.
        config: Index sizes and interval.
        disk: Where the files live.
        now_ms: Creation time, for the roll age of a segment without timestamps.
        roll_jitter_ms: What this segment takes off its roll age.
        stage: Suffix behind the file names, e.g. ``.cleaned``.
        create: Whether the log file is new; otherwise it must exist.

    Raises:
        FileNotFoundError: No log file, and not `create`.
    """

    __slots__ = (
        "_bytes_since_last_index_entry",
        "_directory",
        "_disk",
        "_index_interval_bytes",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "_rolling_based_timestamp",
        "_segment_index_bytes",
        "_stage",
        "_writable_offset_index",
        "_writable_time_index",
        "base_offset",
        "created_ms",
        "fd",
        "offset_index",
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
        self._stage = stage
        self._disk = disk
        self._index_interval_bytes = config.index_interval_bytes
        self._segment_index_bytes = config.segment_index_bytes
        # Bytes appended since the last index entry; starts at 0, also after reopening.
        self._bytes_since_last_index_entry = 0
        # Timestamp that the time-based roll counts from; None until known.
        self._rolling_based_timestamp: int | None = None
        # Largest timestamp and the last offset of its batch; None until loaded from the index.
        self._max_timestamp: int | None = NO_TIMESTAMP if create else None
        self._offset_of_max_timestamp = base_offset
        # The indexes once they are sized for appends; None until the first entry.
        self._writable_offset_index: OffsetIndex | None = None
        self._writable_time_index: TimeIndex | None = None
        self.path = segment_path(directory, base_offset, LOG_SUFFIX, stage)
        self._bind_indexes()
        self.fd = disk.open(self.path, os.O_RDWR | (os.O_CREAT if create else 0))
        # End of the valid bytes. Invariant: the descriptor's write position.
        self.size = os.lseek(self.fd, 0, os.SEEK_END)
        if create:
            try:
                for index in (self.offset_index, self.time_index):
                    disk.close(disk.open(index.path, os.O_WRONLY | os.O_CREAT))
                if config.preallocate:
                    disk.ftruncate(self.fd, config.segment_bytes)
            except OSError:
                self._close_descriptor()
                raise

    def _bind_indexes(self) -> None:
        directory, base_offset, stage = self._directory, self.base_offset, self._stage
        disk, index_bytes = self._disk, self._segment_index_bytes
        self.offset_index = LazyIndex(
            segment_path(directory, base_offset, INDEX_SUFFIX, stage),
            lambda path: OffsetIndex(path, base_offset, max_index_size=index_bytes, disk=disk),
            disk=disk,
        )
        self.time_index = LazyIndex(
            segment_path(directory, base_offset, TIME_INDEX_SUFFIX, stage),
            lambda path: TimeIndex(path, base_offset, max_index_size=index_bytes, disk=disk),
            disk=disk,
        )
        self.transaction_index = TransactionIndex(
            segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX, stage),
            base_offset,
            disk=disk,
        )

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
        """Writes whole batches behind what is there; goes to the page cache, not to the disk.

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
            raise self._overflow(largest_offset)
        position = self._write(records, largest_timestamp)
        for last_offset, max_timestamp, size in batches:
            self._note_batch(last_offset, max_timestamp, size, position)
            position += size

    def append_batch(
        self, batch: bytes | bytearray | memoryview, last_offset: int, max_timestamp: int
    ) -> None:
        """`append` of a single batch, which the caller knows to fit the segment."""
        position = self._write(batch, max_timestamp)
        self._note_batch(last_offset, max_timestamp, len(batch), position)

    def _write(self, records: bytes | bytearray | memoryview, largest_timestamp: int) -> int:
        """Writes at the end; returns where that was."""
        if self._max_timestamp is None:
            self._load_max_timestamp()  # Before the write: it may have to open a file.
        position = self.size
        length = len(records)
        written = self._disk.write(self.fd, records)
        if written != length:
            raise OSError(errno.ENOSPC, f"short write: {written} of {length} bytes", self.path)
        if position == 0:
            self._rolling_based_timestamp = largest_timestamp
        self.size = position + length
        return position

    def _note_batch(self, last_offset: int, max_timestamp: int, size: int, position: int) -> None:
        """Takes account of a batch that was written at `position`: timestamps, then indexes."""
        largest = self._max_timestamp
        assert largest is not None
        if max_timestamp > largest:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if self._bytes_since_last_index_entry > self._index_interval_bytes:
            self._add_index_entries(last_offset, position)
            self._bytes_since_last_index_entry = size
        else:
            self._bytes_since_last_index_entry += size

    def _add_index_entries(self, last_offset: int, position: int) -> None:
        offset_index = self._writable_offset_index
        time_index = self._writable_time_index
        try:
            if offset_index is None or time_index is None:
                offset_index, time_index = self.prepare_indexes_for_append()
            if offset_index.is_full or time_index.is_full:
                return  # The next append rolls; this one is written already.
            offset_index.append(last_offset, position)
            time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # The batch is written: it has to count, and an index may lack an entry.
            logger.warning("%s: no index entry for offset %d: %s", self.path, last_offset, error)
        except LogDataError as error:
            # The batch is in the log and right: an index that contradicts it is what is damaged.
            logger.warning("rebuilding the indexes of %s: %s", self.path, error)
            self.rebuild_indexes()

    def prepare_indexes_for_append(self) -> tuple[OffsetIndex, TimeIndex]:
        """Opens both indexes at their full, preallocated size."""
        offset_index, time_index = self.offset_index.get(), self.time_index.get()
        for index in (offset_index, time_index):
            # What is in use stays, also if the topic's limit was lowered since.
            index.resize(max(self._segment_index_bytes, index.entries * index.entry_size))
        self._writable_offset_index, self._writable_time_index = offset_index, time_index
        return offset_index, time_index

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
            or (
                self.size > 0
                and self._waited_ms(max_timestamp, now_ms) > max_segment_ms - self.roll_jitter_ms
            )
        ):
            return True
        offset_index = self._writable_offset_index
        if offset_index is None:  # Not written to yet, so not full.
            return False
        time_index = self._writable_time_index
        return offset_index.is_full or (time_index is not None and time_index.is_full)

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        since = self._rolling_based_timestamp
        if since is None:
            try:
                first = self.header_at(0)
            except CorruptRecordError:
                first = None  # Damage that is kept; the segment's own age has to do.
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
    ) -> SegmentRead | None:
        """Bytes from the batch that contains `start_offset` on; None if there is none so late.

        Earlier offsets of that batch come along; clients drop them.

        Raises:
            ValueError: `max_size` is negative.
        """
        if max_size < 0:
            raise ValueError(f"max_size {max_size} is negative")
        place = self.translate_offset(start_offset)
        if place is None:
            return None
        position, first_size = place.position, place.header.size
        adjusted = max(max_size, first_size) if min_one_message else max_size
        limit = self.size if max_position is None else max_position
        length = max(0, min(limit - position, adjusted))
        return SegmentRead(
            LogOffsetMetadata(start_offset, self.base_offset, position),
            FileSlice(self._disk, self.fd, position, length),
            0 < adjusted < first_size,
        )

    def translate_offset(self, offset: int, start_position: int = 0) -> BatchPlace | None:
        """The first batch whose last offset is at or above `offset`."""
        position = max(self._floor_position(offset), start_position)
        while position < self.size:
            wanted = min(_STEP_BYTES, self.size - position)
            chunk = self._disk.pread(self.fd, wanted, position)
            place = self._step(chunk, position, offset)
            if isinstance(place, BatchPlace):
                return place
            if place is None:
                break
            position = place
        return self._place_around_damage(offset, start_position)

    def _place_around_damage(self, offset: int, start_position: int) -> BatchPlace | None:
        """What the next index entry leads to, where the way from the one before is broken."""
        if not self.offset_index.is_loaded:
            return None
        entry = self.offset_index.get().ceiling(offset)
        if entry is None or entry.position < start_position:
            return None
        try:
            self._check_entry(*entry)
            header = self.header_at(entry.position)
        except (CorruptIndexError, CorruptRecordError):
            return None
        if header is None or header.last_offset < offset:
            return None
        return BatchPlace(entry.position, header)

    def _step(self, chunk: bytes, chunk_start: int, offset: int) -> BatchPlace | int | None:
        """The batch within the chunk, or the position to read on from."""
        position = 0
        while True:
            try:
                header = peek_header(chunk, position)
            except CorruptRecordError:
                return None  # Damage below the recovery point: the chain is lost.
            if header is None:
                return chunk_start + position if position else None
            if header.last_offset >= offset:
                return BatchPlace(chunk_start + position, header)
            position += header.size
            if position >= len(chunk):
                return chunk_start + position

    def _floor_position(self, offset: int) -> int:
        """Where to start looking for `offset`: an index entry that was checked, or the start."""
        try:
            return self._checked_floor(offset)
        except CorruptIndexError as error:
            logger.warning("rebuilding the indexes of %s: %s", self.path, error)
            self.rebuild_indexes()
            return self._checked_floor(offset)

    def _checked_floor(self, offset: int) -> int:
        if self.size <= self._index_interval_bytes and not self.offset_index.is_loaded:
            return 0  # So small a file has no entries.
        newly_mapped = not self.offset_index.is_loaded
        index = self.offset_index.get()
        if newly_mapped:
            index.sanity_check()
            if index.entries and index.entry(index.entries - 1).position == 0:
                # No entry is ever made for the first batch: zeros that a crash left.
                raise CorruptIndexError(f"index {index.path} ends in a slot that is not filled")
        if index.entries == 0:
            return 0
        indexed_offset, position = index.lookup(offset)
        if position == 0:
            return 0
        self._check_entry(indexed_offset, position)
        return position

    def _check_entry(self, indexed_offset: int, position: int) -> None:
        """A batch stands at the entry's position and ends at or before its offset.

        Raises:
            CorruptIndexError: The entry could skip records.
        """
        problem = None
        if not 0 <= position < self.size:
            problem = f"the file has {self.size} bytes"
        else:
            try:
                header = self.header_at(position)
            except CorruptRecordError as error:
                problem = f"no batch stands there: {error}"
            else:
                if header is None:
                    problem = "no whole batch header stands there"
                elif header.magic == CURRENT_MAGIC and header.base_offset < self.base_offset:
                    problem = f"the batch there starts at {header.base_offset}, below the base"
                elif header.last_offset > indexed_offset:
                    problem = f"the batch there ends at {header.last_offset}"
        if problem is not None:
            raise CorruptIndexError(
                f"index entry {indexed_offset} -> {position} of {self.path}: {problem}"
            )

    def header_at(self, position: int) -> BatchHeader | None:
        """The batch header at a byte position; None where the file ends before or inside it.

        Raises:
            CorruptRecordError: Something else stands there.
        """
        data = self._disk.pread(self.fd, min(HEADER_SIZE, max(0, self.size - position)), position)
        return peek_header(data)

    def scan(self, start: int = 0, *, check_crc: bool = False) -> Scan:
        """Steps through the batches from a position on."""
        return Scan(self._disk, self.fd, start, self.size, check_crc=check_crc)

    def salvage(self, on_damage: Callable[[Salvage, Damage], bool]) -> Salvage:
        """Steps through all batches that can be reached, whatever lies between."""
        return Salvage(
            self._disk,
            self.fd,
            self.size,
            on_damage,
            first_offset=self.base_offset,
            last_offset=self.base_offset + INT32_MAX,
        )

    def problem_with(self, batch: ScannedBatch, next_offset: int) -> str | None:
        """What is wrong with a batch that stands behind `next_offset`; None if nothing is.

        Offsets only grow, and gaps are legal. The checksum does not cover the base offset, so a
        batch that jumps ahead is compared with the one behind it: if that one continues where
        this one should have, it is this one that lies.
        """
        position, header, _, is_crc_valid = batch
        if not is_crc_valid:
            return f"the batch does not match its checksum {header.crc:#010x}"
        if header.magic < CURRENT_MAGIC or header.base_offset == next_offset:
            return None if header.last_offset_delta >= 0 else "the batch ends before its start"
        if header.base_offset < next_offset:
            return f"the batch starts at offset {header.base_offset}, expected {next_offset} up"
        if header.last_offset_delta < 0:
            return "the batch ends before its start"
        try:
            following = self.header_at(position + header.size)
        except CorruptRecordError:
            return None
        if (
            following is not None
            and following.magic == CURRENT_MAGIC
            and next_offset <= following.base_offset < header.base_offset
        ):
            return (
                f"the batch starts at offset {header.base_offset},"
                f" the one behind it at {following.base_offset}"
            )
        return None

    def read_next_offset(self) -> TailScan:
        """The offset behind the last batch, found from the last index entry; CRCs are checked."""
        start = self._floor_position(self.base_offset + INT32_MAX)
        scan = self.scan(start, check_crc=True)
        next_offset = self.base_offset
        for batch in scan:
            if start and batch.position == start and batch.header.magic >= CURRENT_MAGIC:
                # The index vouches for it, and where the one before it ended is not known.
                next_offset = max(next_offset, batch.header.base_offset)
            if (problem := self.problem_with(batch, next_offset)) is not None:
                return TailScan(next_offset, Damage(batch.position, problem))
            next_offset = batch.header.next_offset
        if scan.damage is None and self.offset_index.is_loaded:
            index = self.offset_index.get()
            if index.entries and index.last_offset >= next_offset:
                logger.warning(
                    "rebuilding the indexes of %s: the last entry %d is beyond the end %d",
                    self.path, index.last_offset, next_offset,
                )  # fmt: skip
                self.rebuild_indexes()
        return TailScan(next_offset, scan.damage)

    # Timestamps

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp seen; -1 if none."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch that has the largest timestamp."""
        if self._max_timestamp is None:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def _load_max_timestamp(self) -> None:
        newly_mapped = not self.time_index.is_loaded
        index = self.time_index.get()
        if newly_mapped:
            try:
                index.sanity_check()
            except CorruptIndexError as error:
                logger.warning("rebuilding the indexes of %s: %s", self.path, error)
                self.rebuild_indexes()
                return
        self._max_timestamp, self._offset_of_max_timestamp = index.last_entry

    def verify_max_timestamp(self) -> None:
        """Makes sure of the largest timestamp before it decides over the segment's life.

        It may come from the time index, which has no checksum: the batch it names must have it.
        """
        timestamp, offset = self.max_timestamp, self.offset_of_max_timestamp
        place = self.translate_offset(offset) if timestamp >= 0 else None
        if timestamp >= 0 and (place is None or place.header.max_timestamp != timestamp):
            logger.warning(
                "rebuilding the indexes of %s: no batch at offset %d has the timestamp %d",
                self.path, offset, timestamp,
            )  # fmt: skip
            self.rebuild_indexes()

    def largest_timestamp_ms(self) -> int:
        """What time retention counts from: the largest timestamp, or the file's own time."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    # Shape and life

    def rebuild_indexes(self) -> None:
        """Writes offset and time index anew from the good batches; never touches the log file."""
        self.reset_indexes()
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = next_offset = self.base_offset
        last_entry_position = good_end = 0

        def report(salvage: Salvage, damage: Damage) -> bool:
            logger.error("%s: %s, at position %d", self.path, damage.reason, damage.position)
            salvage.next_offset, salvage.good_end = next_offset, good_end
            return True

        salvage = self.salvage(report)
        for batch in salvage:
            position, header, _, _ = batch
            last_offset = header.last_offset
            problem = self.problem_with(batch, next_offset)
            if problem is None and not 0 <= last_offset - self.base_offset <= INT32_MAX:
                problem = f"offset {last_offset} is too far from the base"
            if problem is not None:
                logger.error("%s: %s, at position %d", self.path, problem, position)
                continue
            next_offset = max(next_offset, last_offset + 1)
            good_end = position + header.size
            if header.max_timestamp > self._max_timestamp:
                self.note_timestamp(header.max_timestamp, last_offset)
            if position - last_entry_position > self._index_interval_bytes or salvage.is_resumed:
                with contextlib.suppress(InvalidOffsetError):  # Old formats may go backwards.
                    self.add_scanned_entries(last_offset, position)
                last_entry_position = position
        if self._writable_offset_index is None:
            self.finish_scanned_entries()
        else:
            self._append_last_timestamp()

    def add_scanned_entries(self, last_offset: int, position: int) -> None:
        """Adds what a scan found to both indexes, as long as they have room.

        Raises:
            InvalidOffsetError: The offset is not above the last one.
        """
        offset_index, time_index = self.offset_index.get(), self.time_index.get()
        if not offset_index.is_full and not time_index.is_full:
            offset_index.append(last_offset, position)
            time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)

    def finish_scanned_entries(self) -> None:
        """Ends both indexes as an orderly close would."""
        self._append_last_timestamp()
        self.offset_index.get().trim_to_valid_size()
        self.time_index.get().trim_to_valid_size()

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Takes a new largest timestamp, found by a scan."""
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def reset_indexes(self) -> None:
        """Empties offset and time index, at their full size, ready to be rebuilt."""
        self.offset_index.get().reset()
        self.time_index.get().reset()

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Removes the batch that contains `offset` and everything behind; returns the bytes."""
        place = self.translate_offset(offset)
        offset_index, time_index = self.prepare_indexes_for_append()
        offset_index.truncate_to(offset)
        time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        removed = 0
        if place is not None:
            removed = self.size - place.position
            self.cut(place.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._rolling_based_timestamp = None
        self._bytes_since_last_index_entry = 0
        if self._max_timestamp is None or self._max_timestamp >= 0:
            self._reload_max_timestamp(time_index)
        return removed

    def _reload_max_timestamp(self, time_index: TimeIndex) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = time_index.last_entry
        start = self._floor_position(self._offset_of_max_timestamp)
        for _, header, _, _ in self.scan(start):
            if header.max_timestamp > self._max_timestamp:
                self.note_timestamp(header.max_timestamp, header.last_offset)

    def cut(self, size: int) -> None:
        """Cuts the log file, durably: a crash must not bring back what readers saw go."""
        self.truncate_file(size)
        self._disk.fsync(self.fd)

    def truncate_file(self, size: int) -> None:
        """Cuts the log file."""
        self._disk.ftruncate(self.fd, size)
        os.lseek(self.fd, size, os.SEEK_SET)
        self.size = size

    def on_become_inactive(self) -> None:
        """Closes the indexes' books: a last time entry, no preallocated room."""
        self._append_last_timestamp()
        for index in (self.offset_index, self.time_index):
            if index.is_loaded:
                index.get().trim_to_valid_size()
        self._writable_offset_index = self._writable_time_index = None
        if os.fstat(self.fd).st_size > self.size:
            self.truncate_file(self.size)

    def _append_last_timestamp(self) -> None:
        if self._max_timestamp is None or self._max_timestamp < 0:
            return
        time_index = self.time_index.get()
        if time_index.max_entries <= time_index.entries:
            time_index.resize((time_index.entries + 1) * time_index.entry_size)
        try:
            time_index.maybe_append(
                self._max_timestamp, self._offset_of_max_timestamp, skip_full_check=True
            )
        except LogDataError as error:
            logger.warning("rebuilding the indexes of %s: %s", self.path, error)
            self.rebuild_indexes()

    def flush(self) -> None:
        """Makes log and indexes durable."""
        self._disk.fsync(self.fd)
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def files(self) -> list[str]:
        """Paths of the files that exist."""
        paths = [self.path, self.offset_index.path, self.time_index.path]
        if self.transaction_index.file_exists():
            paths.append(self.transaction_index.path)
        return paths

    def change_stage(self, stage: str) -> None:
        """Renames all files to another suffix; the log file last, because loading follows it."""
        directory, base = self._directory, self.base_offset
        self.offset_index.rename_to(segment_path(directory, base, INDEX_SUFFIX, stage))
        self.time_index.rename_to(segment_path(directory, base, TIME_INDEX_SUFFIX, stage))
        # Also without a file: one that comes later has to get the right name.
        self.transaction_index.rename_to(
            segment_path(directory, base, TRANSACTION_INDEX_SUFFIX, stage)
        )
        path = segment_path(directory, base, LOG_SUFFIX, stage)
        self._disk.rename(self.path, path)
        self.path, self._stage = path, stage

    def update_directory(self, directory: str) -> None:
        """Follows the files after the partition directory was renamed."""
        self._directory = directory
        self.path = os.path.join(directory, os.path.basename(self.path))
        self.offset_index.update_directory(directory)
        self.time_index.update_directory(directory)
        self.transaction_index.update_directory(directory)

    def close(self) -> None:
        """Closes everything in order; a preallocated file is cut to its content."""
        if self.fd < 0:
            return
        self.on_become_inactive()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        self._close_descriptor()

    def close_handles(self) -> None:
        """Gives up descriptors and mappings and leaves the files as they are: the disk failed."""
        self.offset_index.close_without_trim()
        self.time_index.close_without_trim()
        self.transaction_index.close()
        self._close_descriptor()

    def delete_if_exists(self) -> None:
        """Closes and removes all files."""
        self.offset_index.delete_if_exists()
        self.time_index.delete_if_exists()
        self.transaction_index.delete_if_exists()
        self._close_descriptor()
        try:
            self._disk.unlink(self.path)
        except FileNotFoundError:
            logger.info("%s was gone already", self.path)

    def _close_descriptor(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1

    def _overflow(self, offset: int) -> OffsetOverflowError:
        return OffsetOverflowError(
            f"offset {offset} does not fit in segment {self.path}:"
            f" expected {self.base_offset}..{self.base_offset + INT32_MAX}"
        )
