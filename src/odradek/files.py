"""The disk seam: every file operation whose durability or failure matters goes through a `Disk`.

The real `Disk` is the operating system and costs one attribute look-up more than calling ``os``.
The fake (`odradek.testing.SimDisk`) works on the same real files and remembers which bytes and
which names were synced, so that a test can discard the rest, or make an operation fail.

Rules for its callers:

1. A file's *bytes* are durable after `fsync` of a descriptor of it.
2. A file's *name* (created, renamed, removed) is durable after `fsync_dir` of its directory.
3. `write` may write less than asked and the caller compares the count; a short write is a failure.
4. A failed sync is never repeated: the kernel may have dropped the pages.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

__all__ = [
    "SECRET_MODE",
    "Disk",
    "make_directories",
    "memory_file",
    "read_whole",
    "remove_files",
    "write_atomically",
]

OPEN_MODE: Final = 0o644  # Of files that every user may read, unless the process's umask forbids.
SECRET_MODE: Final = 0o600  # Of files that can contain passwords.

# Checkpoints and snapshots mostly fit into one read of this size.
_READ_BYTES = 1 << 18

_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """The system's fallocate; Python offers only a form of it that lengthens the file."""
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


class Disk:
    """The operating system's files."""

    __slots__ = ()

    def open(self, path: str, flags: int, mode: int = OPEN_MODE) -> int:
        """Opens `path` and returns a descriptor; a file that is created gets `mode`."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def fchmod(self, fd: int, mode: int) -> None:
        """Changes which users may read and write a file."""
        os.fchmod(fd, mode)

    write = staticmethod(os.write)
    writev = staticmethod(os.writev)
    pread = staticmethod(os.pread)
    close = staticmethod(os.close)

    def ftruncate(self, fd: int, length: int) -> None:
        """Cuts or extends the file to `length` bytes."""
        os.ftruncate(fd, length)

    def reserve(self, fd: int, position: int, length: int) -> bool:
        """Reserves space for bytes that will be written there; the file's length stays.

        A large write into reserved space costs less. Only a hint: False if the file system does not
        support it or has no space; the write itself raises then. Truncating the file, even to its
        current length, releases the space.
        """
        try:
            return _fallocate()(fd, _KEEP_SIZE, position, length) == 0
        except OSError:
            return False

    def fsync(self, fd: int) -> None:
        """Makes the file's bytes and length durable."""
        os.fsync(fd)

    def flush_map(self, mapping: mmap.mmap, path: str) -> None:
        """Makes a mapped file's pages and length durable."""
        mapping.flush()
        self.fsync_path(path)

    def fsync_path(self, path: str) -> None:
        """Makes the bytes of the file at `path` durable."""
        fd = self.open(path, os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def fsync_dir(self, path: str) -> None:
        """Makes the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        """Renames atomically, replacing `target`."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Removes a name."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Creates a directory; its parent must exist."""
        os.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        os.rmdir(path)


def make_directories(disk: Disk, path: str) -> None:
    """Makes a directory and its missing parents, durably.

    Raises:
        OSError: A file has the name of one of the directories, or the disk refused.
    """
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_directories(disk, parent)
    try:
        disk.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):  # Otherwise another process has made it since.
            raise
    disk.fsync_dir(parent)


def read_whole(disk: Disk, path: str) -> bytes:
    """Reads a small file whole.

    Raises:
        OSError: The file cannot be read; `FileNotFoundError` if it does not exist.
    """
    fd = disk.open(path, os.O_RDONLY)
    try:
        chunks = []
        position = 0
        while chunk := disk.pread(fd, _READ_BYTES, position):
            chunks.append(chunk)
            position += len(chunk)
        return b"".join(chunks)
    finally:
        disk.close(fd)


def remove_files(disk: Disk, paths: Iterable[str]) -> None:
    """Removes files; a file that does not exist is no error.

    Raises:
        OSError: The disk refused; the files after that one were not removed.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            disk.unlink(path)


def write_atomically(disk: Disk, path: str, data: bytes, *, is_secret: bool = False) -> None:
    """Replaces `path` by `data` so that a crash leaves either the old or the new content.

    Args:
        is_secret: Whether only the broker's own user may read the file.

    Raises:
        OSError: The disk refused. If another process removed the temporary file, that is written
            once more instead.
    """
    temporary = path + ".tmp"
    _write_synced(disk, temporary, data, is_secret=is_secret)
    try:
        disk.rename(temporary, path)
    except FileNotFoundError:
        _write_synced(disk, temporary, data, is_secret=is_secret)
        disk.rename(temporary, path)
    disk.fsync_dir(os.path.dirname(path))


def _write_synced(disk: Disk, temporary: str, data: bytes, *, is_secret: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    fd = disk.open(temporary, flags, SECRET_MODE if is_secret else OPEN_MODE)
    try:
        if is_secret:
            disk.fchmod(fd, SECRET_MODE)  # The file of an earlier attempt kept its own mode.
        written = disk.write(fd, data)
        if written != len(data):
            raise OSError(f"short write to {temporary}: {written} of {len(data)} bytes")
        disk.fsync(fd)
    finally:
        disk.close(fd)


@contextmanager
def memory_file(text: str) -> Iterator[str]:
    """A path to the text within the block, in memory.

    OpenSSL reads keys from files only, and a secret must not reach the disk.
    """
    descriptor = os.memfd_create("odradek-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
