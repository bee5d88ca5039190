"""A model of what a machine crash leaves: bytes as images of pages, names as a journal.

This module is the bookkeeping of `SimDisk`; descriptors and faults are not its concern.

Bytes. A `File` has one durable `Image`, taken at its last successful sync. At a crash each 4 KB
page that differs from it has one of three outcomes, drawn page by page and in no order:

* it did not reach the disk: the durable page stays, or zeros where there was none;
* it reached the disk whole;
* it was torn: its first sectors are new, the rest is old.

The length falls anywhere between the durable and the current one. Pages dropped by a failed sync
never reach the disk unless they are written again (Linux marks them clean, reads still show them).

Names. Every create, rename and removal is an entry of the `UnsyncedNames`. Entries of one directory
become durable in the order they were made, as on a journalling file system; directories are
independent of each other. A rename between two directories is one entry of both: it happens in
both or in neither, and after all earlier entries of both. Example, with two pending entries in
``a`` and two in ``b``, the third being common::

    1 create a/x     2 create b/y     3 rename a/x b/x     4 remove b/y

A sync of ``a`` makes 1, 2 and 3 durable. A crash may leave none, 1, 2, 1+2, 1+2+3 or all.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from random import Random
from typing import NamedTuple

from odradek.lazy_dataclass import dataclass

__all__ = ["PAGE_BYTES", "Directory", "DiskNode", "File", "Image", "NameChange", "UnsyncedNames"]

PAGE_BYTES = 4096
SECTOR_BYTES = 512
_ZERO_PAGE = bytes(PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Image:
    """The content of a file without its holes, so that a sparse 10 MB index costs a few pages."""

    length: int = 0
    # Page number to its 4096 bytes. Invariant: no page is all zeros, none starts at or behind
    # `length`, and the bytes of the last page behind `length` are zeros.
    pages: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def cut(cls, length: int, pages: Mapping[int, bytes]) -> "Image":
        """Builds an image of `length` bytes out of pages that may reach beyond it."""
        last_page, rest = divmod(length, PAGE_BYTES)
        kept = {}
        for number, page in pages.items():
            if number > last_page:
                continue
            content = page[:rest].ljust(PAGE_BYTES, b"\0") if number == last_page else page
            if content != _ZERO_PAGE:
                kept[number] = content
        return cls(length, kept)

    @classmethod
    def read(cls, path: str) -> "Image":
        """Reads the file at `path`; holes are skipped, not read."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            length = os.fstat(fd).st_size
            pages: dict[int, bytes] = {}
            for first_page, end in _data_extents(fd, length):
                content = os.pread(fd, end - first_page * PAGE_BYTES, first_page * PAGE_BYTES)
                for position in range(0, len(content), PAGE_BYTES):
                    page = content[position : position + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
                    pages[first_page + position // PAGE_BYTES] = page
            return cls.cut(length, pages)
        finally:
            os.close(fd)

    def write(self, path: str) -> None:
        """Creates the file at `path`, holes included."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, self.length)
            for number, page in self.pages.items():
                start = number * PAGE_BYTES
                os.pwrite(fd, page[: self.length - start], start)
        finally:
            os.close(fd)

    def page(self, number: int) -> bytes:
        return self.pages.get(number, _ZERO_PAGE)

    def differing_pages(self, other: "Image") -> list[int]:
        """Numbers of the pages that are not the same in both, ascending."""
        numbers = self.pages.keys() | other.pages.keys()
        return sorted(number for number in numbers if self.page(number) != other.page(number))

    def to_bytes(self) -> bytes:
        content = bytearray(self.length)
        for number, page in self.pages.items():
            start = number * PAGE_BYTES
            content[start : start + PAGE_BYTES] = page[: self.length - start]
        return bytes(content)


def _data_extents(fd: int, length: int) -> Iterator[tuple[int, int]]:
    """Yields (first page, end position) of each run of bytes that is not a hole."""
    position = 0
    while position < length:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # Nothing but a hole up to the end.
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        yield start // PAGE_BYTES, position


class DiskNode:
    """The file or directory of a name. Keeps its last name, for use in messages."""

    __slots__ = ("name", "parent")

    def __init__(self) -> None:
        self.parent: Directory | None = None
        self.name = ""

    @property
    def path(self) -> str:
        """Path from the root, which is the empty string."""
        if self.parent is None:
            return self.name
        above = self.parent.path
        return f"{above}/{self.name}" if above else self.name


class Directory(DiskNode):
    """Names as the running process sees them, and those that survive any crash."""

    __slots__ = ("durable", "live")

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, DiskNode] = {}
        self.durable: dict[str, DiskNode] = {}


class File(DiskNode):
    """Bytes as of the last sync; the current ones are in the real file."""

    __slots__ = ("durable", "lost", "removed")

    def __init__(self) -> None:
        super().__init__()
        self.durable = Image()
        # Pages a failed sync dropped, with their content at that time. A page that still has that
        # content was not written again, and no later sync makes it durable.
        self.lost: dict[int, bytes] = {}
        # Content when its last name was removed; a crash may bring the name back.
        self.removed: Image | None = None

    def sync(self, current: Image) -> None:
        pages = dict(current.pages)
        self.lost = {n: page for n, page in self.lost.items() if current.page(n) == page}
        for number in self.lost:
            pages[number] = self.durable.page(number)
        self.durable = Image.cut(current.length, pages)

    def fail_sync(self, current: Image) -> None:
        """Marks all pages that are not durable as lost: a later sync does not save them."""
        for number in current.differing_pages(self.durable):
            self.lost[number] = current.page(number)

    def truncate(self, length: int) -> None:
        """Forgets lost pages behind `length`: written again, they are new pages."""
        self.lost = {n: page for n, page in self.lost.items() if n * PAGE_BYTES < length}

    def torn(self, current: Image, random: Random) -> Image:
        """Draws a content that a crash may leave when `current` was in the page cache."""
        pages = dict(self.durable.pages)
        for number in current.differing_pages(self.durable):
            if self.lost.get(number) == current.page(number):
                continue
            kept = random.choice((0, PAGE_BYTES, random.randrange(0, PAGE_BYTES, SECTOR_BYTES)))
            pages[number] = current.page(number)[:kept] + self.durable.page(number)[kept:]
        lengths = sorted((self.durable.length, current.length))
        return Image.cut(random.choice((*lengths, random.randint(*lengths))), pages)


class NameChange(NamedTuple):
    """`name` in `directory` becomes the name of `node`; None: the name is removed."""

    directory: Directory
    name: str
    node: DiskNode | None


class UnsyncedNames:
    """The name operations that no directory sync has made durable yet, oldest first."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[tuple[NameChange, ...]] = []

    def record(self, *changes: NameChange) -> None:
        """Adds one operation; its changes are durable together or not at all."""
        self._pending.append(changes)
        for directory, name, node in changes:
            if node is None:
                directory.live.pop(name, None)
            else:
                directory.live[name] = node
                node.parent, node.name = directory, name

    def sync(self, directory: Directory) -> None:
        """Makes the operations of `directory` durable, and those they have to follow."""
        needed = {directory}
        chosen: list[tuple[NameChange, ...]] = []
        others: list[tuple[NameChange, ...]] = []
        for operation in reversed(self._pending):
            touched = {change.directory for change in operation}
            if touched.isdisjoint(needed):
                others.append(operation)
            else:
                needed |= touched
                chosen.append(operation)
        _apply(reversed(chosen))
        self._pending = others[::-1]

    def sync_all(self) -> None:
        _apply(self._pending)
        self._pending = []

    def tear(self, random: Random) -> None:
        """Makes a random prefix of each directory's operations durable, forgets the rest."""
        counts: dict[Directory, int] = {}
        for operation in self._pending:
            for directory in dict.fromkeys(change.directory for change in operation):
                counts[directory] = counts.get(directory, 0) + 1
        room = {directory: random.randint(0, count) for directory, count in counts.items()}
        for operation in self._pending:
            touched = {change.directory for change in operation}
            if all(room[directory] > 0 for directory in touched):
                _apply([operation])
                for directory in touched:
                    room[directory] -= 1
            else:
                room.update(dict.fromkeys(touched, 0))  # Nothing overtakes it.
        self._pending = []


def _apply(operations: Iterable[tuple[NameChange, ...]]) -> None:
    for operation in operations:
        for directory, name, node in operation:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node
