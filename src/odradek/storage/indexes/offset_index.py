"""Offset index of a segment: offset -> position of the batch that ends with it.

It lets a read start near its target instead of at the start of the file. Entries are sparse, one
per `index.interval.bytes` or so, and pair the *last* offset of a batch with the position of its
*first* byte: a reader that starts there passes no record above the entry's offset.

Slot, big-endian:

    bytes  field
    0-3    offset - base offset, int32, 0 ... 2147483647
    4-7    position in the .log file, int32

Invariant: offsets strictly increase.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek.errors import CorruptIndexError, InvalidOffsetError, OffsetOverflowError
from odradek.storage.indexes.index import INT32_MAX, WARM_BYTES, Index, SlotColumn

__all__ = ["OffsetIndex", "OffsetPosition"]

_SLOT = Struct(">ii")
_SIZE = _SLOT.size
_pack_into = _SLOT.pack_into
_unpack_from = _SLOT.unpack_from


class OffsetPosition(NamedTuple):
    """An entry of the offset index."""

    offset: int
    position: int


class OffsetIndex(Index):
    """The `.index` file."""

    __slots__ = ("last_offset",)

    entry_size = _SIZE
    warm_entries = WARM_BYTES // _SIZE
    key = SlotColumn.of(">i", stride=_SIZE, is_relative=True)
    value = SlotColumn.of(">i", stride=_SIZE, shift=4)

    # Offset of the last entry, the base offset if there is none.
    last_offset: int

    def append(self, offset: int, position: int) -> None:
        """Adds an entry after the others.

        Raises:
            ValueError: The index is full.
            InvalidOffsetError: `offset` is not above the last one.
            OffsetOverflowError: `offset` is too far from the base, or `position` too large.
        """
        slot = self.entries
        if slot >= self.max_entries:
            raise ValueError(f"offset index {self.path} is full: {slot} entries")
        if slot and offset <= self.last_offset:
            raise InvalidOffsetError(
                f"offset index {self.path}: offset {offset} for slot {slot} is not above"
                f" the last offset {self.last_offset}"
            )
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise self._overflow(offset)
        if not 0 <= position <= INT32_MAX:
            raise OffsetOverflowError(
                f"offset index {self.path}: position {position} of offset {offset} is not"
                f" within 0..{INT32_MAX}"
            )
        mapping = self._map
        if mapping is None:
            raise self._no_mapping()
        start = slot * _SIZE
        if start + _SIZE > self._reserved:
            self._reserve(start + _SIZE)
        _pack_into(mapping, start, relative, position)
        self.last_offset = offset
        self.entries = slot + 1

    def relative_offset(self, offset: int) -> int:
        """Returns `offset` as it is stored.

        Raises:
            OffsetOverflowError: It is below the base, or more than int32 above it.
        """
        relative = offset - self.base_offset
        if 0 <= relative <= INT32_MAX:
            return relative
        raise self._overflow(offset)

    def can_append_offset(self, offset: int) -> bool:
        """Whether `offset` can be stored relative to the base."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def entry(self, slot: int) -> OffsetPosition:
        """Returns the entry of a used slot.

        Raises:
            ValueError: There is no such slot.
        """
        with self._lock:
            self._check_slot(slot)
            return self._entry(slot)

    def __iter__(self) -> Iterator[OffsetPosition]:
        for slot in range(self.entries):
            yield self.entry(slot)

    def lookup(self, target: int) -> OffsetPosition:
        """Returns the last entry at or below `target`, or (base offset, 0): scan from the start."""
        with self._lock:
            slot = self._floor_slot(target - self.base_offset)
            return self._entry(slot) if slot >= 0 else OffsetPosition(self.base_offset, 0)

    def ceiling(self, target: int) -> OffsetPosition | None:
        """Returns the first entry at or above `target`, if any."""
        with self._lock:
            slot, _ = self.slot_range(target)
            if slot >= 0:
                found = self._entry(slot)
                if found.offset == target:
                    return found
            return self._entry(slot + 1) if slot + 1 < self.entries else None

    def fetch_upper_bound_offset(self, position: int, size: int) -> int | None:
        """Returns an offset behind the `size` bytes from `position`, if one is known."""
        entry = self.fetch_upper_bound(position, size)
        return entry.offset if entry is not None else None

    def fetch_upper_bound(self, position: int, size: int) -> OffsetPosition | None:
        """Returns the first entry behind the `size` bytes from `position`, if there is one."""
        with self._lock:
            _, upper = self.slot_range(position + size, by_value=True)
            return self._entry(upper) if upper >= 0 else None

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`."""
        with self._lock:
            slot, _ = self.slot_range(offset)
            if slot < 0 or self._entry(slot).offset != offset:
                slot += 1
            self.truncate_to_entries(slot)

    def sanity_check(self) -> None:
        super().sanity_check()
        if self.entries and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"offset index {self.path}: last offset {self.last_offset} is below the base"
                f" offset {self.base_offset}"
            )

    def _entry(self, slot: int) -> OffsetPosition:
        mapping = self._map
        if mapping is None:
            raise self._no_mapping()
        relative, position = _unpack_from(mapping, slot * _SIZE)
        return OffsetPosition(self.base_offset + relative, position)

    def _load_last(self) -> None:
        last = self.entries - 1
        self.last_offset = self._entry(last).offset if last >= 0 else self.base_offset
