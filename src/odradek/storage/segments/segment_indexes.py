"""The indexes of one segment, updated with each batch, and its largest timestamp.

An index entry pairs the **last** offset of a batch with the **start** position of that batch, at
most one for every `interval_bytes`::

    batches of 1000 bytes, interval 4096     [0][1][2][3][4][5][6] …
    before batch 5 the counter is 5000 > 4096, so (5 -> 5000) is added, and the counter restarts

Offset and time index get their entries together, so that either is full when the other is. They
are mapped when they are first read or written; the first entry of a process sizes them for appends.

Nothing here reads the log file. Where an index contradicts the batches, a method returns False, and
the segment rebuilds both.
"""

import errno
import logging
import os

from odradek.errors import CorruptIndexError, LogDataError
from odradek.files import Disk
from odradek.records.batch import NO_TIMESTAMP
from odradek.storage.indexes.lazy_index import LazyIndex
from odradek.storage.indexes.offset_index import OffsetIndex
from odradek.storage.indexes.time_index import TimeIndex
from odradek.storage.indexes.transaction_index import TransactionIndex
from odradek.storage.log.config import LogConfig
from odradek.storage.paths import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)

__all__ = ["SegmentIndexes"]

logger = logging.getLogger(__name__)


class SegmentIndexes:
    """Offset, time and transaction index.

    Args:
        directory: The partition directory.
        base_offset: That of the segment.
        stage: Suffix of the file names.
        config: Size and interval.
        disk: Where the files live.
        is_new: Whether the segment has no batch yet.
    """

    __slots__ = (
        "_base_offset",
        "_bytes_since_last_entry",
        "_index_bytes",
        "interval_bytes",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "time_index",
        "transaction_index",
        "writable_offset_index",
        "writable_time_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        stage: str,
        *,
        config: LogConfig,
        disk: Disk,
        is_new: bool,
    ) -> None:
        self._base_offset = base_offset
        self._index_bytes = index_bytes = config.segment_index_bytes
        self.interval_bytes = config.index_interval_bytes
        # Bytes appended since the last entry; starts at 0, also after reopening.
        self._bytes_since_last_entry = 0
        # Largest timestamp and the last offset of its batch; None until loaded from the index.
        self.max_timestamp: int | None = NO_TIMESTAMP if is_new else None
        self.offset_of_max_timestamp = base_offset
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
        # The indexes once they are sized for appends; None until the first entry.
        self.writable_offset_index: OffsetIndex | None = None
        self.writable_time_index: TimeIndex | None = None

    def create_files(self, disk: Disk) -> None:
        """Makes empty files for offset and time index; the third is made with its first entry."""
        for index in (self.offset_index, self.time_index):
            disk.close(disk.open(index.path, os.O_WRONLY | os.O_CREAT))

    # As batches are appended

    def note_batch(self, last_offset: int, max_timestamp: int, size: int, position: int) -> bool:
        """Adds a batch that was written at `position`: timestamps, then entries.

        Returns False if an index contradicts the batch, which is in the log and valid.
        """
        largest = self.max_timestamp
        assert largest is not None
        if max_timestamp > largest:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._bytes_since_last_entry > self.interval_bytes:
            self._bytes_since_last_entry = size
            return self._add_entries(last_offset, position)
        self._bytes_since_last_entry += size
        return True

    def _add_entries(self, last_offset: int, position: int) -> bool:
        offset_index, time_index = self.writable_offset_index, self.writable_time_index
        try:
            if offset_index is None or time_index is None:
                offset_index, time_index = self.prepare_for_append()
            if offset_index.is_full or time_index.is_full:
                return True  # The next append rolls; this batch is written already.
            self._append_to_both(offset_index, time_index, last_offset, position)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # The batch is written and must count; an index may lack an entry.
            logger.warning(
                "%s: no entry for offset %d: %s", self.offset_index.path, last_offset, error
            )
        except LogDataError as error:
            return self._is_contradicted(error)
        return True

    def prepare_for_append(self) -> tuple[OffsetIndex, TimeIndex]:
        """Opens both indexes at their full, preallocated size."""
        offset_index, time_index = self.offset_index.get(), self.time_index.get()
        for index in (offset_index, time_index):
            # Used slots stay, also if the topic's limit was lowered since.
            index.resize(max(self._index_bytes, index.entries * index.entry_size))
        self.writable_offset_index, self.writable_time_index = offset_index, time_index
        return offset_index, time_index

    # As a scan finds batches

    def reset(self) -> None:
        """Empties offset and time index, at their full size, and resets the timestamps."""
        self.offset_index.get().reset()
        self.time_index.get().reset()
        self.note_timestamp(NO_TIMESTAMP, self._base_offset)

    def note_timestamp(self, timestamp: int, offset: int) -> None:
        """Sets a new largest timestamp."""
        self.max_timestamp, self.offset_of_max_timestamp = timestamp, offset

    def add_scanned(self, last_offset: int, position: int) -> None:
        """Adds a batch that a scan found to both indexes, as long as they have room.

        Raises:
            InvalidOffsetError: The offset is not above the last one.
        """
        offset_index, time_index = self.offset_index.get(), self.time_index.get()
        if not offset_index.is_full and not time_index.is_full:
            self._append_to_both(offset_index, time_index, last_offset, position)

    def _append_to_both(
        self, offset_index: OffsetIndex, time_index: TimeIndex, last_offset: int, position: int
    ) -> None:
        assert self.max_timestamp is not None
        offset_index.append(last_offset, position)
        time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)

    def finish_scanned(self) -> bool:
        """Completes both indexes as an orderly close does, unless they are sized for appends."""
        agrees = self.append_last_timestamp()
        if self.writable_offset_index is None:
            self.offset_index.get().trim_to_valid_size()
            self.time_index.get().trim_to_valid_size()
        return agrees

    # The largest timestamp

    def load_max_timestamp(self) -> bool:
        """Reads the largest timestamp from the time index. Returns False if that is damaged."""
        is_newly_mapped = not self.time_index.is_loaded
        index = self.time_index.get()
        if is_newly_mapped:
            try:
                index.sanity_check()
            except CorruptIndexError as error:
                return self._is_contradicted(error)
        self.max_timestamp, self.offset_of_max_timestamp = index.last_entry
        return True

    def append_last_timestamp(self) -> bool:
        """Adds the largest timestamp, also to a full index. Returns False on a contradiction."""
        if self.max_timestamp is None or self.max_timestamp < 0:
            return True
        time_index = self.time_index.get()
        if time_index.max_entries <= time_index.entries:
            time_index.resize((time_index.entries + 1) * time_index.entry_size)
        try:
            time_index.maybe_append(
                self.max_timestamp, self.offset_of_max_timestamp, skip_full_check=True
            )
        except LogDataError as error:
            return self._is_contradicted(error)
        return True

    def _is_contradicted(self, error: LogDataError) -> bool:
        logger.warning("rebuilding the indexes of segment %s: %s", self.offset_index.path, error)
        return False

    # Shape and life

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`, ready for appends."""
        offset_index, time_index = self.prepare_for_append()
        offset_index.truncate_to(offset)
        time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._bytes_since_last_entry = 0

    def trim(self) -> None:
        """Removes preallocated space: no further entries follow."""
        for index in (self.offset_index, self.time_index):
            if index.is_loaded:
                index.get().trim_to_valid_size()
        self.transaction_index.seal()
        self.writable_offset_index = self.writable_time_index = None

    def files(self) -> list[str]:
        """Paths of the files that exist."""
        paths = [self.offset_index.path, self.time_index.path]
        if self.transaction_index.file_exists():
            paths.append(self.transaction_index.path)
            if os.path.exists(proof_path := self.transaction_index.proof_path):
                paths.append(proof_path)
        return paths

    def flush(self) -> None:
        """Makes all entries durable."""
        self.offset_index.flush()
        self.time_index.flush()
        self.transaction_index.flush()

    def change_stage(self, directory: str, stage: str) -> None:
        """Renames the files to another suffix."""
        base = self._base_offset
        self.offset_index.rename_to(segment_path(directory, base, INDEX_SUFFIX, stage))
        self.time_index.rename_to(segment_path(directory, base, TIME_INDEX_SUFFIX, stage))
        # Also without a file: one that is made later must get the right name.
        self.transaction_index.rename_to(
            segment_path(directory, base, TRANSACTION_INDEX_SUFFIX, stage)
        )

    def update_directory(self, directory: str) -> None:
        """Uses the new path of a renamed partition directory."""
        self.offset_index.update_directory(directory)
        self.time_index.update_directory(directory)
        self.transaction_index.update_directory(directory)

    def close(self) -> None:
        """Trims and closes the files."""
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    def close_handles(self) -> None:
        """Closes descriptors and mappings and leaves the files unchanged."""
        self.offset_index.close_without_trim()
        self.time_index.close_without_trim()
        self.transaction_index.close()

    def delete_if_exists(self) -> None:
        """Closes and removes all files."""
        self.offset_index.delete_if_exists()
        self.time_index.delete_if_exists()
        self.transaction_index.delete_if_exists()
