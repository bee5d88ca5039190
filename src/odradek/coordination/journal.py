"""The embedded engine's plain files in the data directory: journal, snapshot and lock.

A crash at any point leaves a tree that is a prefix of the transaction order, and that prefix has
every transaction for which `append` returned. `odradek.coordination.codec` has the byte layout.

Opening: the snapshot is loaded, journal records at or below its zxid are skipped, the rest is
applied, a torn end is left out. Damage before the end refuses to open. The journal is then written
anew, because a sync that failed may have dropped bytes that reads still show.

Compaction writes the snapshot beside the old one, syncs and renames it, then cuts the journal to
its head. A crash between the two leaves records the snapshot already has; they are skipped. If
after a crash old records reappear behind the cut, their durable zxids are below the snapshot's, so
they are not taken as proof of damage.

Nodes can hold passwords that administrators set: only the broker's own user may read the files.
"""

import fcntl
import os
import stat
import threading
from collections.abc import Sequence

from odradek.coordination.codec import (
    JOURNAL_HEAD,
    encode_record,
    encode_snapshot,
    parse_snapshot,
    replay,
)
from odradek.coordination.tree import NodeTree, Transaction
from odradek.errors import LogDirLockedError, StoreCorruptError
from odradek.files import SECRET_MODE, Disk, write_atomically

__all__ = ["JOURNAL_NAME", "SNAPSHOT_NAME", "Journal", "lock_directory"]

JOURNAL_NAME = "coordination.journal"
SNAPSHOT_NAME = "coordination.snapshot"
LOCK_NAME = "coordination.lock"


class Journal:
    """The open journal; `append` and `compact` block and belong on an executor.

    A failed write or sync leaves the file in an unknown state: the caller stops using it.
    """

    __slots__ = ("_directory", "_disk", "_durable_zxid", "_fd", "_lock", "record_count")

    def __init__(self, directory: str, disk: Disk, fd: int, zxid: int, record_count: int) -> None:
        self._directory = directory
        self._disk = disk
        self._fd = fd  # -1 when closed.
        self._durable_zxid = zxid
        # `close` must not close the descriptor during a write that an abandoned task still runs.
        self._lock = threading.Lock()
        self.record_count = record_count  # Records since the file was last cut.

    @classmethod
    def open(cls, directory: str, disk: Disk) -> tuple["Journal", NodeTree]:
        """Loads the tree and opens the journal for appending, cutting a torn end.

        Raises:
            StoreCorruptError: The files are damaged; the message names file and offset.
            OSError: The disk failed.
        """
        path = os.path.join(directory, JOURNAL_NAME)
        snapshot_path = os.path.join(directory, SNAPSHOT_NAME)
        has_snapshot = os.path.exists(snapshot_path)
        tree = NodeTree()
        if has_snapshot:
            tree = parse_snapshot(_read_file(disk, snapshot_path), snapshot_path)
        if has_snapshot and not os.path.exists(path):
            raise StoreCorruptError(
                f"{path} is missing beside {snapshot_path}: "
                f"the transactions after zxid {tree.zxid} are lost"
            )
        fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, SECRET_MODE)
        try:
            # Files of an earlier version may be readable by other users.
            _restrict(disk, fd)
            if has_snapshot:
                _restrict_file(disk, snapshot_path)
            data = _read_descriptor(disk, fd)
            if len(data) <= len(JOURNAL_HEAD) and data != JOURNAL_HEAD and not has_snapshot:
                # The first start: the file is new, or the process died while making it.
                disk.ftruncate(fd, 0)
                _write_all(disk, fd, JOURNAL_HEAD, path)
                disk.fsync(fd)
                disk.fsync_dir(directory)
                return cls(directory, disk, fd, 0, 0), tree
            end, record_count = replay(data, tree, path)
            # Bytes that an earlier process wrote may be visible and still not be durable; if its
            # sync failed, no sync of this file saves them: the kernel counts them as written.
            write_atomically(disk, path, data[:end], is_secret=True)
            replaced, fd = fd, disk.open(path, os.O_RDWR | os.O_APPEND)
            disk.close(replaced)
            return cls(directory, disk, fd, tree.zxid, record_count), tree
        except BaseException:
            disk.close(fd)
            raise

    def append(self, transactions: Sequence[Transaction]) -> None:
        """Makes transactions durable, in order, with one write and one sync.

        Raises:
            OSError: The disk failed; the content of the file is unknown.
        """
        data = b"".join(encode_record(t, self._durable_zxid) for t in transactions)
        with self._lock:
            _write_all(self._disk, self._fd, data, os.path.join(self._directory, JOURNAL_NAME))
            self._disk.fsync(self._fd)
        self._durable_zxid = transactions[-1].zxid
        self.record_count += len(transactions)

    def compact(self, tree: NodeTree) -> None:
        """Writes a snapshot of `tree` and cuts the journal to its head.

        Raises:
            OSError: The disk failed.
        """
        assert tree.zxid == self._durable_zxid
        with self._lock:
            snapshot_path = os.path.join(self._directory, SNAPSHOT_NAME)
            write_atomically(self._disk, snapshot_path, encode_snapshot(tree), is_secret=True)
            self._disk.ftruncate(self._fd, len(JOURNAL_HEAD))
            self._disk.fsync(self._fd)
        self.record_count = 0

    def close(self) -> None:
        """Closes the file; may be called twice."""
        with self._lock:
            if self._fd >= 0:
                self._disk.close(self._fd)
                self._fd = -1


def lock_directory(directory: str) -> int:
    """Locks the directory for this process; returns the descriptor of the lock.

    Raises:
        LogDirLockedError: Another process has the lock; the message names it.
    """
    path = os.path.join(directory, LOCK_NAME)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise LogDirLockedError(
            f"the coordination store in {directory} is in use by process {holder} ({path})"
        ) from None
    except BaseException:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
    return fd


def _restrict(disk: Disk, fd: int) -> None:
    if stat.S_IMODE(os.fstat(fd).st_mode) != SECRET_MODE:
        disk.fchmod(fd, SECRET_MODE)


def _restrict_file(disk: Disk, path: str) -> None:
    fd = disk.open(path, os.O_RDONLY)
    try:
        _restrict(disk, fd)
    finally:
        disk.close(fd)


def _write_all(disk: Disk, fd: int, data: bytes, path: str) -> None:
    written = disk.write(fd, data)
    if written != len(data):
        raise OSError(f"short write to {path}: {written} of {len(data)} bytes")


def _read_file(disk: Disk, path: str) -> bytes:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return _read_descriptor(disk, fd)
    finally:
        disk.close(fd)


def _read_descriptor(disk: Disk, fd: int) -> bytes:
    chunks: list[bytes] = []
    position = 0
    while chunk := disk.pread(fd, 1 << 24, position):
        chunks.append(chunk)
        position += len(chunk)
    return b"".join(chunks)
