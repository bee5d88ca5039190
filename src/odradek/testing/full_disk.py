"""The machine's disk, which a test can declare full."""

import errno
import os
from collections.abc import Sequence

from odradek.files import Disk

__all__ = ["FillableDisk"]


class FillableDisk(Disk):
    """Real files; while `is_full` is set, no write has room."""

    __slots__ = ("has_refused", "is_full")

    def __init__(self) -> None:
        self.is_full = False
        # Whether a write has failed: what uses the disk may have ended because of it.
        self.has_refused = False

    def write(self, fd: int, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """As `os.write`, which this is otherwise."""
        self._check()
        return os.write(fd, data)

    def writev(self, fd: int, buffers: Sequence[bytes | bytearray | memoryview], /) -> int:  # type: ignore[override]
        """As `os.writev`, which this is otherwise."""
        self._check()
        return os.writev(fd, buffers)

    def reserve(self, fd: int, position: int, length: int) -> bool:
        return not self.is_full and super().reserve(fd, position, length)

    def _check(self) -> None:
        if self.is_full:
            self.has_refused = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
