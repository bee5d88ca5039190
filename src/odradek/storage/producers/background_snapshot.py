"""A snapshot that a thread writes while its log goes on, of a partition with many producers.

Encoding 30,000 producers takes 20 ms of CPU. So a roll takes a view of them (`views`), and the
flush that follows it writes the snapshot on its thread, before it syncs the records:

1. both files are encoded, written under names that end with `.new.deleted`, and synced;
2. they are renamed, the one beside the snapshot first. They appear whole and durable, or not at
   all; a start removes what a crash left, and so does Apache Kafka's.

The recovery point passes the offset of the snapshot only after that. Until then the log has the
snapshots that it had before; more batches are replayed from an older one, and give the same state.

The owner of the log may withdraw it at any time, because the records below it are truncated or its
segment is removed: `withdraw` and the renaming exclude each other, and the owner waits for a rename
at most, not for the writing. If the directory of the log is renamed, the files follow.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Sequence

from odradek.files import Disk
from odradek.storage.paths import DELETED_SUFFIX, RECENT_SUFFIX, SNAPSHOT_SUFFIX, segment_path
from odradek.storage.producers.recent_batches import encode_recent
from odradek.storage.producers.snapshot import crc_of, encode_snapshot, write_file
from odradek.storage.producers.views import ProducerView

__all__ = ["BackgroundSnapshot"]

logger = logging.getLogger(__name__)

# Such a file is removed by the next start, whichever program it is of.
_UNFINISHED = ".new" + DELETED_SUFFIX


class BackgroundSnapshot:
    """The snapshot of `offset`, until it is written or withdrawn.

    Args:
        disk: Where the files live.
        directory: Of the partition.
        offset: Of the snapshot.
        view: The producers as of that offset.

    Attributes:
        is_over: Whether it was written or withdrawn, or failed.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_is_named",
        "_is_withdrawn",
        "_place_lock",
        "_view",
        "_write_lock",
        "is_over",
        "offset",
    )

    def __init__(self, disk: Disk, directory: str, offset: int, view: ProducerView) -> None:
        self.offset = offset
        self.is_over = False
        self._disk = disk
        self._directory = directory
        self._view = view
        self._is_withdrawn = False
        self._is_named = False
        # Held while a file is created or renamed.
        self._place_lock = threading.Lock()
        # Held by the thread that writes: another one that needs the snapshot waits.
        self._write_lock = threading.Lock()

    def write(self) -> None:
        """Writes it, unless that was done; on return it is durable, or withdrawn.

        Raises:
            OSError: The disk refused.
        """
        with self._write_lock:
            if self.is_over:
                return
            try:
                self._write()
            except FileNotFoundError:
                # A hint: the next start replays more batches.
                logger.warning("%s is gone: it gets no producer snapshot", self._directory)
            finally:
                self._view.is_read = False
                self.is_over = True

    def withdraw(self) -> None:
        """Keeps its files from appearing from now on; they may have appeared before."""
        with self._place_lock:
            self._is_withdrawn = True

    def follow_directory(self, directory: str) -> None:
        """Uses the new path of the partition's directory."""
        with self._place_lock:
            self._directory = directory

    def _write(self) -> None:
        entries = list(self._view.entries.values())
        snapshot = encode_snapshot(entries)
        recent = encode_recent(entries, self.offset, crc_of(snapshot))
        self._view.is_read = False
        files = (
            {SNAPSHOT_SUFFIX: snapshot}
            if recent is None
            else {RECENT_SUFFIX: recent, SNAPSHOT_SUFFIX: snapshot}
        )
        try:
            for kind, data in files.items():
                fd = self._create(kind)
                if fd is None:
                    return
                write_file(self._disk, fd, self._path(kind), data, sync=True)
            self._name(list(files))
        finally:
            if not self._is_named:
                for kind in files:
                    with contextlib.suppress(OSError):  # The next start removes it.
                        self._disk.unlink(self._path(kind, _UNFINISHED))

    def _create(self, kind: str) -> int | None:
        """Creates a file and returns its descriptor; None if the snapshot is withdrawn."""
        with self._place_lock:
            if self._is_withdrawn:
                return None
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            return self._disk.open(self._path(kind, _UNFINISHED), flags)

    def _name(self, kinds: Sequence[str]) -> None:
        """Gives the files their names, unless the snapshot is withdrawn."""
        with self._place_lock:
            if not self._is_withdrawn:
                for kind in kinds:
                    self._disk.rename(self._path(kind, _UNFINISHED), self._path(kind))
                self._is_named = True

    def _path(self, kind: str, stage: str = "") -> str:
        return segment_path(self._directory, self.offset, kind, stage)
