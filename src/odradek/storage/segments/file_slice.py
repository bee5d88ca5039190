"""A piece of a segment file that is read, or sent, later."""

from typing import Final

from odradek.files import Disk

__all__ = ["FileSlice"]

# Up to here a copy in memory costs less than a system call for each answer.
_KEPT_BYTES: Final = 16 << 10


class FileSlice:
    """Bytes [position, position + length) of an open segment file, to be sent or read.

    Its length is that of the bytes, so that it can replace them in a response. It is recent if this
    process wrote them a few appends ago: then they are in memory.
    """

    __slots__ = ("data", "disk", "fd", "is_recent", "length", "position")

    def __init__(
        self, disk: Disk, fd: int, position: int, length: int, is_recent: bool = False
    ) -> None:
        self.disk = disk
        self.fd = fd
        self.position = position
        self.length = length
        self.is_recent = is_recent
        self.data: bytes | None = None  # The bytes, once `keep_bytes` has read them.

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice(fd={self.fd}, position={self.position}, length={self.length})"

    def keep_bytes(self) -> None:
        """Reads the bytes once for several answers, if they are few and surely in memory."""
        if self.data is None and self.is_recent and self.length <= _KEPT_BYTES:
            data = self.read()
            if len(data) == self.length:
                self.data = data

    def read(self) -> bytes:
        """The bytes; fewer if the file was truncated meanwhile."""
        data: bytes = self.disk.pread(self.fd, self.length, self.position)
        while len(data) < self.length:
            more = self.disk.pread(self.fd, self.length - len(data), self.position + len(data))
            if not more:
                break
            data += more
        return data
