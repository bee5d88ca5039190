"""The producer snapshots in the directory of a partition, also those that a thread still writes."""

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.files import Disk
from odradek.storage.producers import snapshot
from odradek.storage.producers.background_snapshot import BackgroundSnapshot
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.recent_batches import delete_recent, list_recent
from odradek.storage.producers.views import ProducerView

__all__ = ["SnapshotFiles", "are_many"]

# A snapshot of more producers is written by a thread: encoding this many takes half a millisecond.
MAX_WRITTEN_AT_ONCE: Final = 500


def are_many(producer_count: int) -> bool:
    """Whether so many producers take too long to write in one turn of the loop."""
    return producer_count > MAX_WRITTEN_AT_ONCE


class SnapshotFiles:
    """The snapshots of one partition, by offset.

    Only the thread that owns the log calls, except for `sync` and the deletion of renamed files.

    Args:
        disk: Where the files live.
        directory: Of the partition; it need not exist yet.
    """

    __slots__ = ("_directory", "_disk", "_unwritten")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._unwritten: list[BackgroundSnapshot] = []

    def follow_directory(self, directory: str) -> None:
        """Uses the new path of the partition's directory."""
        self._directory = directory
        for unwritten in self._unwritten:
            unwritten.follow_directory(directory)

    def offsets(self) -> list[int]:
        """Offsets of the snapshots on disk, ascending."""
        return snapshot.list_snapshots(self._directory)

    @property
    def latest_offset(self) -> int | None:
        return max(self.offsets(), default=None)

    def load(self, offset: int) -> list[ProducerEntry]:
        """The producers in a snapshot.

        Raises:
            CorruptSnapshotError: It is damaged.
            OSError: It cannot be read.
        """
        return snapshot.load_snapshot(self._disk, self._directory, offset)

    def is_vouched_for(self, offset: int) -> bool:
        """Whether there is a valid snapshot, and the file beside it confirms it.

        Raises:
            OSError: They cannot be read.
        """
        return snapshot.is_vouched_for(self._disk, self._directory, offset)

    # Writing

    def write(self, offset: int, entries: Sequence[ProducerEntry], *, sync: bool) -> str:
        """Writes a snapshot, durable on return if `sync`; returns its path.

        Raises:
            OSError: The disk refused.
        """
        return snapshot.write_snapshot(self._disk, self._directory, offset, entries, sync=sync)

    def begin(self, offset: int, view: ProducerView) -> None:
        """Begins a snapshot, which a thread has to write: see `unwritten`."""
        self._unwritten.append(BackgroundSnapshot(self._disk, self._directory, offset, view))

    def unwritten(self, upto: int) -> list[BackgroundSnapshot]:
        """The snapshots up to an offset that were begun; a thread has to write them."""
        self._unwritten = [one for one in self._unwritten if not one.is_over]
        return [one for one in self._unwritten if one.offset <= upto]

    def finish(self) -> None:
        """Writes the snapshots that were begun, or waits for the threads that write them.

        Raises:
            OSError: The disk refused.
        """
        for unwritten in self._unwritten:
            unwritten.write()
        self._unwritten.clear()

    def sync(self, offset: int) -> bool:
        """Makes a snapshot durable. Returns False if there is none (any more).

        Raises:
            OSError: The disk refused.
        """
        return snapshot.sync_snapshot(self._disk, self._directory, offset)

    # Removing

    def withdraw(self, offset: int | None = None) -> None:
        """Keeps the snapshot of an offset, or all that were begun, from appearing."""
        for unwritten in self._unwritten:
            if offset in (None, unwritten.offset):
                unwritten.withdraw()

    def keep_between(self, first: int, last: int) -> None:
        """Removes the snapshots outside of these offsets, durably.

        Raises:
            OSError: The disk refused.
        """
        for unwritten in self._unwritten:
            if not first <= unwritten.offset <= last:
                unwritten.withdraw()
        outside = [offset for offset in self.offsets() if not first <= offset <= last]
        for offset in outside:
            self.delete(offset)
        if outside:
            # A snapshot that reappeared after a crash would count as one of new records.
            self._disk.fsync_dir(self._directory)

    def delete(self, offset: int, *, renamed: bool = False) -> bool:
        """Removes a snapshot; returns whether there was one.

        Args:
            offset: Of the snapshot.
            renamed: Remove the file that `rename_deleted` made, and keep a snapshot of the same
                offset written since.

        Raises:
            OSError: The disk refused.
        """
        if not renamed:
            self.withdraw(offset)
        return snapshot.delete_snapshot(self._disk, self._directory, offset, renamed=renamed)

    def rename_deleted(self, offset: int) -> str | None:
        """Renames a snapshot along with its segment; returns its new path.

        Raises:
            OSError: The disk refused.
        """
        self.withdraw(offset)
        return snapshot.rename_snapshot_deleted(self._disk, self._directory, offset)

    def remove_strays(self, segment_base_offsets: Iterable[int], recovery_point: int = -1) -> None:
        """Removes snapshots that belong to no segment.

        Two stay: the newest one if it lies above all segments, since an orderly stop made it; and
        the newest one up to the recovery point, from which the next recovery will continue.

        Raises:
            OSError: The disk refused.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets() if offset not in bases]
        kept = {max((offset for offset in strays if offset <= recovery_point), default=-1)}
        if strays and strays[-1] > max(bases, default=-1):
            kept.add(strays[-1])
        for offset in strays:
            if offset not in kept:
                self.delete(offset)
        for offset in set(list_recent(self._directory)) - set(self.offsets()):
            delete_recent(self._disk, self._directory, offset)
