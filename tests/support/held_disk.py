"""Disks that keep a broker waiting until a test lets go, or tell which thread had to wait."""

import threading

from odradek.files import Disk
from tests.support.logs import UnsyncedDisk

# A test that fails to let go ends all the same.
_LONGEST_S = 60


class HeldDisk(Disk):
    """Nothing becomes durable while it is held."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.is_free.set()

    def fsync(self, fd: int) -> None:
        self.is_free.wait(_LONGEST_S)
        super().fsync(fd)


class HeldFiles(Disk):
    """Files with `part` in their path are opened when it lets go."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.is_asked = threading.Event()
        self.is_free = threading.Event()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if self._part in path:
            self.is_asked.set()
            self.is_free.wait(_LONGEST_S)
        return super().open(path, flags, mode)


class HeldNames(UnsyncedDisk):
    """Names with `part` in them are made, renamed, synced and removed when it lets go."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.is_asked = threading.Event()
        self.is_free = threading.Event()
        self.is_free.set()

    def hold(self) -> None:
        self.is_asked.clear()
        self.is_free.clear()

    def _wait(self, path: str) -> None:
        if self._part in path and not self.is_free.is_set():
            self.is_asked.set()
            self.is_free.wait(_LONGEST_S)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._wait(path)
        return super().open(path, flags, mode)

    def mkdir(self, path: str) -> None:
        self._wait(path)
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._wait(source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._wait(path)
        super().unlink(path)


class WitnessedDisk(UnsyncedDisk):
    """Notes what may take long and was done on one thread, the event loop's."""

    def __init__(self) -> None:
        self._thread = -1
        self.seen: list[str] = []

    def watch(self) -> None:
        """From now on, on the calling thread."""
        self._thread = threading.get_ident()

    def stop_watching(self) -> None:
        self._thread = -1

    def _note(self, operation: str, path: str = "") -> None:
        if threading.get_ident() == self._thread:
            self.seen.append(f"{operation} {path}".rstrip())

    def fsync(self, fd: int) -> None:
        self._note("fsync")
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._note("fsync_dir", path)
        super().fsync_dir(path)

    def rename(self, source: str, target: str) -> None:
        self._note("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._note("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._note("mkdir", path)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._note("rmdir", path)
        super().rmdir(path)
