"""Disks that keep a broker waiting until a test lets go."""

import threading

from odradek.files import Disk

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
