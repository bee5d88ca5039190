"""A simulated disk that loses data which was not synced, and fails where a test plants a fault.

`SimDisk` works on real files below a root directory, so mappings, `sendfile` and directory
listings work as usual. Beside them it keeps a shadow of the durable state:

=============  =========================================  ====================================
State          changes with                               becomes durable with
=============  =========================================  ====================================
bytes, length  write, writev, ftruncate, O_TRUNC, stores  fsync, fsync_path, flush_map of that
of a file      into a mapping, changes past the disk      file, under any name
names in a     open with O_CREAT, rename, unlink, mkdir,  fsync_dir of that directory; a rename
directory      rmdir, changes past the disk               between two: of either
=============  =========================================  ====================================

All that the root holds when the disk is made is durable. A file whose name is not durable is gone
after a crash, however often its bytes were synced; a durable name with unsynced bytes is an
empty file. `crash` turns the shadow into the real tree, and what it leaves is durable again:

* ``drop``: durable bytes and names, nothing else. The worst that rules 1 and 2 of `odradek.files`
  allow if nothing was written back early.
* ``torn``: any part of the rest may have reached the disk; `odradek.testing.durability` has the
  model. The same `Random` gives the same tree.
* ``keep``: everything reached the disk.

`kill` ends the process only: its descriptors are closed, the page cache stays, and what was not
durable is still not durable. Old descriptors and mappings must not be used after either of them.

A typical test of all crash points::

    for n in itertools.count():
        disk = prepared_disk()
        disk.crash_at(n)
        try:
            act(disk)
        except SimulatedCrash:
            disk.crash(mode="drop")
            check(disk)
        else:
            break  # `act` has fewer than n mutating operations: all points were seen.
"""

import errno
import os
import threading
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from odradek.files import Disk
from odradek.testing.durability import Directory, DiskNode, File, Image
from odradek.testing.faults import Faults
from odradek.testing.shadow import Shadow

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, SupportsLenAndGetItem

__all__ = ["SimDisk"]


class _Descriptor(NamedTuple):
    node: DiskNode
    # Device and inode: distinguish a descriptor of ours from one that later has the same number.
    identity: tuple[int, int]


class SimDisk(Disk):
    """Real files below `root`, and a record of what is durable; see the module's docstring.

    Paths in `operations`, in messages and in `path_contains` are relative to the root; that of a
    rename is ``source -> target``. Safe to use from several threads.

    Attributes:
        root: The directory all paths lie under.
        operations: (operation, path) of each mutating operation that was tried, in order: open
            (when it creates or truncates), write, writev, ftruncate, fsync, fsync_dir, rename,
            unlink, mkdir, rmdir. Syncs are among them since they change what a crash leaves;
            fsync_path and flush_map appear as the fsync they end in. May be cleared at will.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(root)
        self.operations: list[tuple[str, str]] = []
        self._faults = Faults()
        self._descriptors: dict[int, _Descriptor] = {}
        self._lock = threading.RLock()
        self._shadow = Shadow(self.root)

    # What a test does to the machine

    def crash(
        self, random: Random | None = None, *, mode: Literal["drop", "torn", "keep"] = "drop"
    ) -> None:
        """Stops the machine and starts it again with the data that survives on the disk.

        Planted errors and a full disk stay; a crash point is used up.

        Raises:
            ValueError: `mode` is "torn" and there is no `random` to draw from.
        """
        if mode == "torn" and random is None:
            raise ValueError("a torn crash draws from a Random; pass one with a fixed seed")
        with self._lock:
            self._close_descriptors()
            self._faults.restart()
            if mode == "keep":
                self._shadow.keep()
            else:
                self._shadow.crash(random if mode == "torn" else None)

    def kill(self) -> None:
        """Ends the process: descriptors close; the page cache stays, with its unsynced pages."""
        with self._lock:
            self._close_descriptors()
            self._faults.restart()

    def settle(self) -> None:
        """Makes all existing files durable, for a test that prepares files past the disk."""
        with self._lock:
            self._shadow.settle()

    def durable_bytes(self, path: str) -> bytes | None:
        """Returns the bytes ``crash(mode="drop")`` would leave at `path`; None if no file."""
        with self._lock:
            node = self._shadow.find_durable(path)
            return node.durable.to_bytes() if isinstance(node, File) else None

    def durable_names(self, path: str) -> list[str]:
        """Returns the names that ``crash(mode="drop")`` would leave in a directory, sorted."""
        with self._lock:
            node = self._shadow.find_durable(path)
            return sorted(node.durable) if isinstance(node, Directory) else []

    @property
    def is_crashed(self) -> bool:
        """Whether a crash point was reached, and the machine not started again."""
        return self._faults.is_crashed

    # Planting faults

    def fail(
        self,
        operation: str,
        *,
        path_contains: str | None = None,
        error: OSError | int = errno.EIO,
        after: int = 0,
        times: int | None = 1,
    ) -> None:
        """Makes matching operations fail without effect.

        A failed fsync also drops the file's unsynced pages for good, see
        `odradek.testing.durability`; a failed fsync_dir leaves its names as they were.

        Args:
            operation: A name as in `operations`, or "pread"; "open" means every open.
            path_contains: Hits only paths with this in them.
            error: The error, or its number.
            after: Lets this many matching operations pass first.
            times: Then hits this many; None is for ever.
        """
        if operation not in _FALLIBLE:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(_FALLIBLE)}")
        number = error if isinstance(error, int) else _error_number(error)
        with self._lock:
            self._faults.plant_error(
                operation, self._fragment(path_contains), number, after=after, times=times
            )

    def short_write(
        self,
        written_bytes: int,
        *,
        path_contains: str | None = None,
        after: int = 0,
        times: int | None = 1,
    ) -> None:
        """Makes matching write and writev write `written_bytes` at most."""
        with self._lock:
            self._faults.plant_short_write(
                written_bytes, self._fragment(path_contains), after=after, times=times
            )

    def full_after(self, room_bytes: int | None) -> None:
        """Lets writes fill `room_bytes` more, the last one short, then fail with ENOSPC.

        Overwriting and removing give no room back. None makes the disk large again.
        """
        with self._lock:
            self._faults.limit_room(room_bytes)

    def crash_at(self, n: int, *, operation: str | None = None) -> None:
        """Raises `SimulatedCrash` before the n-th mutating operation from now, 0 being the next.

        From then on each operation but `close` raises it, until `crash` or `kill`.

        Args:
            operation: Counts only these, named as in `operations`.
        """
        with self._lock:
            self._faults.crash_at(n, operation)

    def heal(self) -> None:
        """Takes all planted faults away."""
        with self._lock:
            self._faults.clear()

    # The disk

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        with self._lock:
            node = self._shadow.find(path)
            is_created = node is None and bool(flags & os.O_CREAT)
            is_truncated = bool(flags & os.O_TRUNC)
            self._begin("open", self._shadow.relative(path), mutates=is_created or is_truncated)
            fd = super().open(path, flags, mode)
            if node is None:
                node = File()
                self._shadow.note_created(path, node)
            if is_truncated and isinstance(node, File):
                node.truncate(0)
            self._descriptors[fd] = _Descriptor(node, _identity(fd))
            return fd

    def write(self, fd: int, data: "ReadableBuffer", /) -> int:
        with self._lock:
            path = self._begin_on(fd, "write").path
            view = memoryview(data).cast("B")
            return os.write(fd, view[: self._faults.take_room(path, len(view))])

    def writev(self, fd: int, buffers: "SupportsLenAndGetItem[ReadableBuffer]", /) -> int:
        with self._lock:
            path = self._begin_on(fd, "writev").path
            data = b"".join(bytes(buffers[i]) for i in range(len(buffers)))
            return os.write(fd, data[: self._faults.take_room(path, len(data))])

    def pread(self, fd: int, length: int, offset: int, /) -> bytes:
        with self._lock:
            self._begin_on(fd, "pread", mutates=False)
            return os.pread(fd, length, offset)

    def close(self, fd: int, /) -> None:
        with self._lock:
            self._node_of(fd)
            del self._descriptors[fd]
            os.close(fd)

    def ftruncate(self, fd: int, length: int) -> None:
        with self._lock:
            node = self._begin_on(fd, "ftruncate")
            super().ftruncate(fd, length)
            if isinstance(node, File):
                node.truncate(length)

    def fsync(self, fd: int) -> None:
        with self._lock:
            node = self._node_of(fd)
            assert isinstance(node, File), f"{node.path!r} is a directory: use fsync_dir"
            # Opened anew, since the descriptor may be write-only and the name may be gone.
            content = Image.read(f"/proc/self/fd/{fd}")
            try:
                self._begin_on(fd, "fsync")
            except OSError:
                node.fail_sync(content)
                raise
            node.sync(content)

    def fsync_dir(self, path: str) -> None:
        with self._lock:
            self._begin("fsync_dir", self._shadow.relative(path))
            directory = self._shadow.find(path)
            if not isinstance(directory, Directory):
                number = errno.ENOENT if directory is None else errno.ENOTDIR
                raise OSError(number, os.strerror(number), path)
            self._shadow.sync_names(directory)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._begin(
                "rename", f"{self._shadow.relative(source)} -> {self._shadow.relative(target)}"
            )
            node, replaced = self._shadow.find(source), self._shadow.find(target)
            if node is not None and node is replaced:
                return
            self._shadow.remember_content(replaced)
            super().rename(source, target)
            assert node is not None, "the rename succeeded, so its source was there"
            self._shadow.note_renamed(source, target, node)

    def unlink(self, path: str) -> None:
        with self._lock:
            self._begin("unlink", self._shadow.relative(path))
            self._shadow.remember_content(self._shadow.find(path))
            super().unlink(path)
            self._shadow.note_removed(path)

    def mkdir(self, path: str) -> None:
        with self._lock:
            self._begin("mkdir", self._shadow.relative(path))
            super().mkdir(path)
            self._shadow.note_created(path, Directory())

    def rmdir(self, path: str) -> None:
        with self._lock:
            self._begin("rmdir", self._shadow.relative(path))
            super().rmdir(path)
            self._shadow.note_removed(path)

    # Bookkeeping

    def _begin(self, operation: str, path: str, *, mutates: bool = True) -> None:
        self._faults.check_alive(operation, path, mutates=mutates)
        if mutates:
            self.operations.append((operation, path))
        self._faults.check_error(operation, path)

    def _begin_on(self, fd: int, operation: str, *, mutates: bool = True) -> DiskNode:
        node = self._node_of(fd)
        self._begin(operation, node.path, mutates=mutates)
        return node

    def _node_of(self, fd: int) -> DiskNode:
        descriptor = self._descriptors.get(fd)
        if descriptor is None:
            raise OSError(errno.EBADF, f"descriptor {fd} is closed or was opened past this disk")
        return descriptor.node

    def _close_descriptors(self) -> None:
        for fd, descriptor in self._descriptors.items():
            try:
                if _identity(fd) == descriptor.identity:
                    os.close(fd)
            except OSError as error:
                if error.errno != errno.EBADF:  # Closed past this disk, so nothing is left to do.
                    raise
        self._descriptors.clear()

    def _fragment(self, path_contains: str | None) -> str:
        return (path_contains or "").removeprefix(self.root + "/")


_FALLIBLE = (
    "fsync",
    "fsync_dir",
    "ftruncate",
    "mkdir",
    "open",
    "pread",
    "rename",
    "rmdir",
    "unlink",
    "write",
    "writev",
)


def _error_number(error: OSError) -> int:
    """The number of an error; ``OSError(EIO)`` holds it as a plain argument."""
    return error.errno if error.errno is not None else int(error.args[0])


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
