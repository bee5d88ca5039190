"""A sparse index in a memory-mapped file: the layout and life of the file, and the search in it.

An index is an array of fixed-size slots, sorted by key, that says where to start looking in a
segment. The file is preallocated while its segment is active and trimmed when it no longer is::

    slot:    0 ........ entries-1 | entries ........ max_entries-1 |
             used, sorted         | zeros, or truncated entries    | remainder < entry_size
    bytes:   0                     entries * entry_size              length

Rules:

1. An existing file opens with every whole slot *used*: after a trim that is right, and after a
   crash it is wrong until recovery has reset and rebuilt the index.
2. There is no checksum. An index is a hint, and a caller checks the batch that an entry points to.
3. A mapping never reaches beyond the end of its file, because touching such a page kills the
   process (SIGBUS). The file is therefore truncated only here, after it was mapped shorter.
4. For the same reason no slot is stored in a page the disk may have no space for: pages are
   written once by a write call, which reports a full disk as an error, before they are used
   through the mapping.
5. A file without a whole slot has no mapping: zero bytes cannot be mapped.
6. A file that was removed by another process while it is open is written again from the mapping: a
   missing hint is no failure of the disk.

Threads: only the thread that owns the log changes an index, so there is one writer. Readers and
`flush` may be on other threads. An append stores its slot before it counts it, so a reader sees
whole entries only; the lock in here separates readers from changes of size or name. It is not held
while syncing: a reader never waits for the disk.
"""

import errno
import logging
import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from odradek.errors import CorruptIndexError, OffsetOverflowError
from odradek.files import Disk

__all__ = [
    "INT32_MAX",
    "WARM_BYTES",
    "Index",
    "SlotColumn",
    "find_floor_slot",
    "find_slot_range",
    "find_slot_range_plain",
    "first_hot_slot",
]

logger = logging.getLogger(__name__)

INT32_MAX = 2**31 - 1

# Size of the warm section at the end of an index. With pages of 4096 bytes or more it spans at
# most three of them, and every search there touches its start, middle and end, so all stay cached.
WARM_BYTES = 8192

_NO_DESCRIPTOR_LEFT = (errno.EMFILE, errno.ENFILE)


class SlotColumn(NamedTuple):
    """The place of one field in every slot."""

    unpack: Callable[[Any, int], tuple[Any, ...]]  # (buffer, byte position) -> (value,)
    stride: int  # Bytes from one slot to the next.
    shift: int  # Byte position of the field in its slot.
    is_relative: bool = False  # Stored minus the base offset of the index.

    @classmethod
    def of(
        cls, layout: str, *, stride: int, shift: int = 0, is_relative: bool = False
    ) -> "SlotColumn":
        """Builds the column of a field packed as `layout`."""
        return cls(Struct(layout).unpack_from, stride, shift, is_relative)


def first_hot_slot(entries: int, warm_entries: int) -> int:
    """Returns the slot where the warm section of an index begins."""
    return max(0, entries - 1 - warm_entries)


def find_slot_range(
    column: SlotColumn, data: Any, entries: int, target: int, *, warm_entries: int
) -> tuple[int, int]:
    """Finds the slots around `target`, visiting few cold pages.

    Appends and most look-ups concern the end of an index. A plain binary search changes its whole
    path whenever the file grows by a page, and then waits for pages not used for long. Here
    a target in the last `warm_entries` slots is searched in these alone: with 13 pages of 512
    slots and 1024 warm ones, a search for the end touches pages 10, 11 and 12 and no other.

    Returns:
        (lower, upper): `lower` is the largest slot <= target, -1 if none; `upper` is the next one,
        -1 if none, or `lower` itself on an exact match, except on slot 0, which is never compared
        for equality. So `upper` is not the smallest entry >= target.
    """
    if entries == 0:
        return -1, -1
    unpack, stride, shift, _ = column
    low = 0
    high = first_hot_slot(entries, warm_entries)
    if unpack(data, high * stride + shift)[0] < target:
        low, high = high, entries - 1
    elif unpack(data, shift)[0] > target:
        return -1, 0
    while low < high:
        middle = (low + high + 1) >> 1
        (found,) = unpack(data, middle * stride + shift)
        if found > target:
            high = middle - 1
        elif found < target:
            low = middle
        else:
            return middle, middle
    return low, (-1 if low == entries - 1 else low + 1)


def find_floor_slot(
    column: SlotColumn, data: Any, entries: int, target: int, *, warm_entries: int
) -> int:
    """Finds `lower` of `find_slot_range` alone, in the same two sections and fewer steps.

    The keys of an index have about equal distances. Before the warm section the search therefore
    starts where the target would be if the distances were equal, and leaps away from there, eight
    times as far each time, until it has passed the target: seven slots are visited instead of
    twenty; if the guess is useless, about half as many again as by binary search alone.
    """
    if entries == 0:
        return -1
    unpack, stride, shift, _ = column
    low, high = 0, entries - 1
    hot = first_hot_slot(entries, warm_entries)
    (last,) = unpack(data, hot * stride + shift)
    if last <= target:
        low = hot
    else:
        (first,) = unpack(data, shift)
        if first > target:
            return -1
        high = hot - 1
        guess = max(0, min(high, hot * (target - first) // (last - first)))
        leap = 8
        if unpack(data, guess * stride + shift)[0] <= target:
            low = guess
            while (slot := guess + leap) <= high:
                if unpack(data, slot * stride + shift)[0] > target:
                    high = slot - 1
                    break
                low = slot
                leap *= 8
        else:
            high = guess - 1
            while (slot := guess - leap) > low:
                if unpack(data, slot * stride + shift)[0] <= target:
                    low = slot
                    break
                high = slot - 1
                leap *= 8
    while low < high:  # The slot at `low` is known not to be above the target.
        middle = (low + high + 1) >> 1
        if unpack(data, middle * stride + shift)[0] <= target:
            low = middle
        else:
            high = middle - 1
    return low


def find_slot_range_plain(
    column: SlotColumn, data: Any, entries: int, target: int
) -> tuple[int, int]:
    """Returns the same as `find_slot_range`, by plain binary search: the oracle of its tests."""

    def stored(slot: int) -> int:
        value: int = column.unpack(data, slot * column.stride + column.shift)[0]
        return value

    if entries == 0:
        return -1, -1
    if stored(0) > target:
        return -1, 0
    low, high = 0, entries - 1
    while low < high:
        middle = (low + high + 1) // 2
        found = stored(middle)
        if found == target:
            return middle, middle
        if found > target:
            high = middle - 1
        else:
            low = middle
    return low, (low + 1 if low < entries - 1 else -1)


class Index(ABC):
    """Base of the mapped indexes; a subclass defines the slot and the rules of an append.

    Args:
        path: The file; created if absent and `writable`.
        base_offset: Base offset of the owning segment.
        max_index_size: Bytes to preallocate, rounded down to whole slots.
        writable: False opens, maps and leaves the file strictly read-only.
        disk: Where the file lives.

    Raises:
        ValueError: A new file with `max_index_size` too small for one slot.
        FileNotFoundError: No such file, and not `writable`.
    """

    __slots__ = (
        "_closed",
        "_deleted",
        "_disk",
        "_lock",
        "_map",
        "_name_unsynced",
        "_reserved",
        "base_offset",
        "entries",
        "length",
        "max_entries",
        "max_index_size",
        "newly_created",
        "path",
        "writable",
    )

    entry_size: ClassVar[int]
    warm_entries: ClassVar[int]  # Slots of the warm section.
    key: ClassVar[SlotColumn]
    value: ClassVar[SlotColumn]

    def __init__(
        self,
        path: str,
        base_offset: int,
        *,
        max_index_size: int,
        writable: bool = True,
        disk: Disk,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_index_size = max_index_size
        self.writable = writable
        self.newly_created = False
        # Used slots. Invariant: the next one is written at entries * entry_size.
        self.entries = 0
        self.length = 0  # Of the file, in bytes.
        self.max_entries = 0  # Whole slots in the file.
        self._disk = disk
        self._lock = threading.RLock()
        # None while there is no whole slot, and after closing.
        self._map: mmap.mmap | None = None
        # End of the bytes that surely have space on disk.
        self._reserved = 0
        self._name_unsynced = False  # The file is ours and its directory was not synced since.
        self._closed = False
        self._deleted = False
        self._open()

    # Opening and closing

    def _open(self) -> None:
        fd = self._open_file()
        try:
            if self.newly_created:
                self._disk.ftruncate(fd, self._whole(self.max_index_size))
            self.length = os.fstat(fd).st_size
            self._map = self._map_file(fd, self.length)
        finally:
            self._disk.close(fd)
        self.max_entries = self.length // self.entry_size
        self._set_entries(0 if self.newly_created else self.max_entries)

    def _open_file(self) -> int:
        if not self.writable:
            return self._disk.open(self.path, os.O_RDONLY)
        try:
            return self._disk.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            if self.max_index_size < self.entry_size:
                raise ValueError(
                    f"index {self.path}: max_index_size {self.max_index_size} holds no entry"
                    f" of {self.entry_size} bytes"
                ) from None
        fd = self._disk.open(self.path, os.O_RDWR | os.O_CREAT)
        self.newly_created = self._name_unsynced = True
        return fd

    def _map_file(self, fd: int, length: int) -> mmap.mmap | None:
        whole = self._whole(length)
        access = mmap.ACCESS_WRITE if self.writable else mmap.ACCESS_READ
        return mmap.mmap(fd, whole, access=access) if whole else None

    def close(self) -> None:
        """Unmaps, and truncates a writable file to its used slots."""
        with self._lock:
            if self._closed:
                return
            self.close_without_trim()
            used = self.entries * self.entry_size
            if not self.writable or used == self.length:
                return
            try:
                fd = self._disk.open(self.path, os.O_RDWR)
            except FileNotFoundError:
                return  # Another process removed it; the next start rebuilds it.
            try:
                self._disk.ftruncate(fd, used)
            finally:
                self._disk.close(fd)
            self.length = used
            self.max_entries = self.entries

    def close_without_trim(self) -> None:
        """Unmaps and leaves the file unchanged: for a disk that failed."""
        with self._lock:
            self._closed = True
            mapping, self._map = self._map, None
            if mapping is not None:
                mapping.close()

    # Shape

    @property
    def is_full(self) -> bool:
        """Whether an append would be refused."""
        return self.entries >= self.max_entries

    def resize(self, size: int) -> bool:
        """Sets the file's length to the whole slots in `size` bytes; returns whether it changed.

        Raises:
            ValueError: `size` is too small for the used slots.
        """
        with self._lock:
            self._check_writable()
            size = self._whole(size)
            if size == self.length:
                return False
            used = self.entries * self.entry_size
            if size < used:
                raise ValueError(f"index {self.path}: {used} bytes are in use, cannot keep {size}")
            fd = self._open_own(os.O_RDWR)
            try:
                if size > self.length:
                    self._disk.ftruncate(fd, size)
                    self.length = size
                self._replace_map(self._map_file(fd, size))
                self.max_entries = size // self.entry_size
                self._reserved = min(self._reserved, size)
                if size < self.length:
                    self._disk.ftruncate(fd, size)
                    self.length = size
            finally:
                self._disk.close(fd)
            return True

    def trim_to_valid_size(self) -> None:
        """Truncates the file to its used slots, zero bytes if there are none."""
        with self._lock:
            self.resize(self.entries * self.entry_size)

    def reset(self) -> None:
        """Drops all entries and extends the file to its maximum."""
        with self._lock:
            self.truncate_to_entries(0)
            self.resize(self.max_index_size)

    def truncate_to_entries(self, entries: int) -> None:
        """Keeps the first `entries` entries.

        Raises:
            ValueError: There are not that many.
        """
        with self._lock:
            self._check_writable()
            if not 0 <= entries <= self.entries:
                raise ValueError(f"index {self.path}: cannot keep {entries} of {self.entries}")
            self._set_entries(entries)

    def _set_entries(self, entries: int) -> None:
        self.entries = entries
        # Later slots may lie in pages that were never written, as in a file left by a crash.
        self._reserved = entries * self.entry_size
        self._load_last()

    @abstractmethod
    def _load_last(self) -> None:
        """Reads the last entry into memory, or the values of an empty index."""

    def _replace_map(self, mapping: mmap.mmap | None) -> None:
        previous, self._map = self._map, mapping
        if previous is not None:
            previous.close()

    def _reserve(self, end: int) -> None:
        """Makes sure that the disk has space for stores through the mapping up to byte `end`.

        Raises:
            OSError: The disk is full, or broken.
        """
        start = max(self._reserved, self.entries * self.entry_size)
        page_end = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
        count = min(page_end, self.length) - start
        try:
            fd = self._open_own(os.O_WRONLY)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR_LEFT:
                return  # No failure of the disk: store without the guard, try again next time.
            raise
        try:
            os.lseek(fd, start, os.SEEK_SET)
            written = self._disk.write(fd, bytes(count))
        finally:
            self._disk.close(fd)
        if written != count:
            raise OSError(
                errno.ENOSPC, f"short write: {written} of {count} bytes at {start}", self.path
            )
        self._reserved = start + count

    def _open_own(self, flags: int) -> int:
        """Opens the file of this index; writes it again if it was removed."""
        try:
            return self._disk.open(self.path, flags)
        except FileNotFoundError:
            self._restore()
            return self._disk.open(self.path, flags)

    def _restore(self) -> None:
        """Writes the file again, from the mapping; needs the lock.

        Raises:
            OSError: The disk refused, or the directory was removed as well.
        """
        fd = self._disk.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            logger.warning("index %s was removed while it is in use; writing it again", self.path)
            used = self.entries * self.entry_size
            if self._map is not None and used:
                written = self._disk.write(fd, self._map[:used])
                if written != used:
                    raise OSError(
                        errno.ENOSPC, f"short write: {written} of {used} bytes", self.path
                    )
            self._disk.ftruncate(fd, self.length)
            self._replace_map(self._map_file(fd, self.length))
        finally:
            self._disk.close(fd)
        self._reserved = used
        self._name_unsynced = True

    # Names and durability

    def flush(self) -> None:
        """Makes entries and length durable, and the name of a file created here.

        May run while another thread renames, resizes or deletes; a deleted index is not synced.
        """
        while True:
            with self._lock:
                if self._deleted:
                    return
                self._check_open()
                mapping, path = self._map, self.path
                name_unsynced = self._name_unsynced
            try:
                if mapping is None:
                    self._disk.fsync_path(path)
                else:
                    self._disk.flush_map(mapping, path)
                if name_unsynced:
                    self._disk.fsync_dir(os.path.dirname(path))
                    self._name_unsynced = False
            except (FileNotFoundError, ValueError) as error:
                # ValueError: the mapping was closed. Neither is a failed sync.
                with self._lock:
                    if self._map is mapping and self.path == path and not self._deleted:
                        if isinstance(error, ValueError):
                            raise
                        self._restore()
            else:
                return

    def rename_to(self, path: str) -> None:
        """Renames the file atomically."""
        with self._lock:
            try:
                self._disk.rename(self.path, path)
            except FileNotFoundError:
                if os.path.exists(self.path):
                    raise  # The target's directory is missing.
                if not self._closed:
                    self._restore()
                    self._disk.rename(self.path, path)
            self.path = path

    def update_directory(self, directory: str) -> None:
        """Uses the new path of a renamed directory."""
        with self._lock:
            self.path = os.path.join(directory, os.path.basename(self.path))

    def delete_if_exists(self) -> bool:
        """Unmaps and removes the file; returns whether it existed."""
        with self._lock:
            self.close_without_trim()
            self._deleted = True
            try:
                self._disk.unlink(self.path)
            except FileNotFoundError:
                return False
            return True

    # Search and checks

    def slot_range(self, target: int, *, by_value: bool = False) -> tuple[int, int]:
        """Finds the slots around `target`, a key or a value: see `find_slot_range`."""
        column = self.value if by_value else self.key
        if column.is_relative:
            target -= self.base_offset
        with self._lock:
            if self._closed:
                raise self._no_mapping()
            return find_slot_range(
                column, self._map, self.entries, target, warm_entries=self.warm_entries
            )

    def _floor_slot(self, key: int) -> int:
        """Finds the last slot at or below a stored key, -1 if none; needs the lock."""
        if self._closed:
            raise self._no_mapping()
        return find_floor_slot(
            self.key, self._map, self.entries, key, warm_entries=self.warm_entries
        )

    def sanity_check(self) -> None:
        """Makes the checks that do not need the segment.

        Raises:
            CorruptIndexError: The index has to be rebuilt.
        """
        if self.length % self.entry_size:
            raise CorruptIndexError(
                f"index {self.path}: length {self.length} is no multiple of {self.entry_size}"
            )

    def _no_mapping(self) -> ValueError:
        """The error for a missing mapping, with its reason."""
        state = "closed" if self._closed else "empty"
        return ValueError(f"index {self.path} is {state}")

    def _overflow(self, offset: int) -> OffsetOverflowError:
        return OffsetOverflowError(
            f"index {self.path}: offset {offset} is not within {INT32_MAX} above the base offset"
            f" {self.base_offset}"
        )

    def _whole(self, size: int) -> int:
        return size - size % self.entry_size

    def _check_open(self) -> None:
        if self._closed:
            raise self._no_mapping()

    def _check_writable(self) -> None:
        self._check_open()
        if not self.writable:
            raise ValueError(f"index {self.path} is open read-only")

    def _check_slot(self, slot: int) -> None:
        self._check_open()
        if not 0 <= slot < self.entries:
            raise ValueError(f"index {self.path}: no slot {slot}, it has {self.entries}")
