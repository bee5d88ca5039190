"""The start offset of each leader epoch, which replicas compare to find where they diverged.

Entries are ordered, epochs and start offsets both strictly increasing. Epoch e covers the offsets
from its start up to the start of the next entry, the latest one up to the log end offset.

    entries (0, 0) (2, 10) (5, 30), log end offset 40

    end_offset_for(2) -> (2, 30)    epoch 2 ended where epoch 5 began
    end_offset_for(3) -> (2, 30)    never seen here: the largest epoch below it
    end_offset_for(5) -> (5, 40)    the current epoch
    end_offset_for(6) -> (-1, -1)   unknown: ask again, or fall back to the high watermark

**Durability.** A new epoch is on disk before the first record of that epoch can be, or a crash
would leave records whose epoch is unknown; `assign` and `clear` therefore write at once. A
truncation only marks the cache dirty: entries that outlive it in the file point outside the log,
and the loader of the log removes them by the same two truncations.
"""

import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import NamedTuple

from odradek.files import Disk, read_whole, write_atomically
from odradek.storage.directories.checkpoints import encode_epoch_checkpoint, parse_epoch_checkpoint

__all__ = ["UNDEFINED_END_OFFSET", "EpochEndOffset", "EpochEntry", "LeaderEpochCache"]


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset after its last record."""

    epoch: int
    end_offset: int


# The answer for an epoch that this log does not know.
UNDEFINED_END_OFFSET = EpochEndOffset(-1, -1)

_epoch = attrgetter("epoch")
_start_offset = attrgetter("start_offset")


class LeaderEpochCache:
    """The epochs of one log, kept in its ``leader-epoch-checkpoint``.

    Changes belong to the owner of the log. `flush` may run on another thread.
    """

    __slots__ = (
        "_dirty",
        "_disk",
        "_entries",
        "_latest_epoch",
        "_latest_start_offset",
        "_overdue",
        "_writing",
        "path",
    )

    def __init__(self, path: str, *, disk: Disk) -> None:
        # Replaced when the directory of the log is renamed.
        self.path = path
        self._disk = disk
        # Replaced, never edited, so that a flush on another thread sees one state of it.
        self._entries: tuple[EpochEntry, ...] = ()
        # The last entry once more: `assign` looks at it for each appended batch.
        self._latest_epoch: int | None = None
        self._latest_start_offset = -1
        # Whether the file differs from the entries.
        self._dirty = False
        # Whether an assigned epoch should be in the file by now, but could not be written.
        self._overdue = False
        # One writer at a time: they share a temporary file, and the newest entries win.
        self._writing = threading.Lock()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return self._entries

    @property
    def latest_epoch(self) -> int | None:
        return self._latest_epoch

    @property
    def is_dirty(self) -> bool:
        """Whether the file differs from the entries."""
        return self._dirty

    def load(self) -> None:
        """Reads the entries from the file; a missing or empty file has none.

        Raises:
            CorruptCheckpointError: The file is damaged; there are no entries now, and the epochs
                have to be assigned again from the batches of the log.
            OSError: It cannot be read.
        """
        self._replace((), dirty=False)
        try:
            data = read_whole(self._disk, self.path)
        except FileNotFoundError:
            return
        pairs = parse_epoch_checkpoint(data, self.path)
        self._replace(tuple(EpochEntry(*pair) for pair in pairs), dirty=False)

    def assign(self, epoch: int, start_offset: int, *, durable: bool = True) -> bool:
        """Records that `epoch` begins at `start_offset`; returns whether that changed anything.

        Entries that contradict it, of later epochs or at later offsets, are dropped.

        Args:
            durable: Write the file before returning. False while many epochs are assigned in a
                row, with a `flush` at the end.

        Raises:
            ValueError: A negative epoch or offset.
            OSError: The file could not be written.
        """
        if epoch == self._latest_epoch and start_offset >= self._latest_start_offset:
            if self._overdue and durable:
                self.flush()
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"{self.path}: epoch {epoch} cannot start at offset {start_offset}")
        entries = self._entries
        # Both columns increase, so dropping from the end while either contradicts keeps a prefix.
        kept = min(
            bisect_left(entries, epoch, key=_epoch),
            bisect_left(entries, start_offset, key=_start_offset),
        )
        self._replace((*entries[:kept], EpochEntry(epoch, start_offset)))
        if durable:
            self._overdue = True
            self.flush()
        return True

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Restores earlier entries, since the current ones could not be written."""
        self._replace(entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where `epoch` ended in this log.

        Returns:
            The largest known epoch <= `epoch` with the offset after its last record; `epoch` itself
            with the first known start, if all known epochs are later; `UNDEFINED_END_OFFSET` if
            `epoch` is negative or later than all known ones.
        """
        if epoch < 0:
            return UNDEFINED_END_OFFSET
        if epoch == self._latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        entries = self._entries
        higher = bisect_right(entries, epoch, key=_epoch)
        if higher == len(entries):
            return UNDEFINED_END_OFFSET
        found = entries[higher - 1].epoch if higher else epoch
        return EpochEndOffset(found, entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None below the first entry."""
        higher = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[higher - 1].epoch if higher else None

    def truncate_from_end(self, offset: int) -> None:
        """Drops the epochs that start at or after `offset`, the new log end."""
        kept = bisect_left(self._entries, offset, key=_start_offset)
        if kept < len(self._entries):
            self._replace(self._entries[:kept])

    def truncate_from_start(self, offset: int) -> None:
        """Drops the epochs that ended before `offset`; the one that wrote it starts there now."""
        dropped = bisect_right(self._entries, offset, key=_start_offset)
        if not dropped:
            return
        first = EpochEntry(self._entries[dropped - 1].epoch, offset)
        if first != self._entries[0]:
            self._replace((first, *self._entries[dropped:]))

    def clear(self) -> None:
        """Drops all entries and writes the file.

        Raises:
            OSError: The file could not be written.
        """
        self._replace(())
        self.flush()

    def flush(self) -> None:
        """Writes the file if it differs from the entries; durable on return.

        Raises:
            OSError: The file could not be written.
        """
        with self._writing:
            if not self._dirty:
                return
            # Before the entries are read: a change in between makes the cache dirty again.
            self._dirty = False
            try:
                write_atomically(self._disk, self.path, encode_epoch_checkpoint(self._entries))
            except OSError:
                self._dirty = True
                raise
            self._overdue = False

    def _replace(self, entries: tuple[EpochEntry, ...], *, dirty: bool = True) -> None:
        self._entries = entries
        self._latest_epoch, self._latest_start_offset = entries[-1] if entries else (None, -1)
        self._dirty = dirty
