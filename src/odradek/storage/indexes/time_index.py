"""Time index of a segment: timestamp -> offset.

An entry (T, O) says: T is the largest timestamp up to offset O, so a record younger than T lies
behind O. A search by time gets the offset from here and its position from the offset index.

Slot, big-endian:

    bytes  field
    0-7    timestamp, int64, ms since the epoch
    8-11   offset - base offset, int32, 0 ... 2147483647

Invariant: timestamps strictly increase, offsets do not decrease. An entry whose timestamp equals
the last one is ignored, so adding the same entry again on roll, close and recovery is harmless.
An older timestamp is refused: it would mislead consumers that search by time.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek.errors import CorruptIndexError, InvalidOffsetError, TimestampRegressionError
from odradek.storage.indexes.index import INT32_MAX, WARM_BYTES, Index, SlotColumn

__all__ = ["NO_TIMESTAMP", "TimeIndex", "TimestampOffset"]

NO_TIMESTAMP = -1

_INT64_MAX = 2**63 - 1
_SLOT = Struct(">qi")
_SIZE = _SLOT.size
_pack_into = _SLOT.pack_into
_unpack_from = _SLOT.unpack_from


class TimestampOffset(NamedTuple):
    """An entry of the time index."""

    timestamp: int
    offset: int


class TimeIndex(Index):
    """The `.timeindex` file."""

    __slots__ = ("_last",)

    entry_size = _SIZE
    warm_entries = WARM_BYTES // _SIZE
    key = SlotColumn.of(">q", stride=_SIZE)
    value = SlotColumn.of(">i", stride=_SIZE, shift=8, is_relative=True)

    # (timestamp, offset) of the last entry. One tuple, so that a reader never sees half of it.
    _last: tuple[int, int]

    @property
    def is_full(self) -> bool:
        """Whether only the slot is left that is kept for the last append before the next roll."""
        return self.entries >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or (NO_TIMESTAMP, base offset)."""
        return TimestampOffset(*self._last)

    def maybe_append(self, timestamp: int, offset: int, skip_full_check: bool = False) -> bool:
        """Adds an entry if its timestamp is above the last one; returns whether it did.

        Args:
            timestamp: Largest timestamp so far, in ms.
            offset: Offset of the batch that has it.
            skip_full_check: Whether the reserved last slot may be used: on roll, close, recovery.

        Raises:
            ValueError: The index is full.
            InvalidOffsetError: `offset` is below the last one.
            TimestampRegressionError: `timestamp` is below the last one.
            OffsetOverflowError: `offset` is too far from the base.
        """
        slot = self.entries
        if not skip_full_check and slot >= self.max_entries - 1:
            raise ValueError(f"time index {self.path} is full: {slot} entries")
        last_timestamp, last_offset = self._last
        if slot:
            if offset < last_offset:
                raise InvalidOffsetError(
                    f"time index {self.path}: offset {offset} for slot {slot} is below the"
                    f" last offset {last_offset}"
                )
            if timestamp < last_timestamp:
                raise TimestampRegressionError(
                    f"time index {self.path}: timestamp {timestamp} for slot {slot} is below"
                    f" the last timestamp {last_timestamp}"
                )
        if timestamp <= last_timestamp:
            return False
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise self._overflow(offset)
        if slot >= self.max_entries or timestamp > _INT64_MAX:
            raise ValueError(
                f"time index {self.path}: no room for timestamp {timestamp} in slot {slot}"
                f" of {self.max_entries}"
            )
        mapping = self._map
        if mapping is None:
            raise self._no_mapping()
        start = slot * _SIZE
        if start + _SIZE > self._reserved:
            self._reserve(start + _SIZE)
        _pack_into(mapping, start, timestamp, relative)
        self._last = (timestamp, offset)
        self.entries = slot + 1
        return True

    def entry(self, slot: int) -> TimestampOffset:
        """Returns the entry of a used slot.

        Raises:
            ValueError: There is no such slot.
        """
        with self._lock:
            self._check_slot(slot)
            return self._entry(slot)

    def __iter__(self) -> Iterator[TimestampOffset]:
        for slot in range(self.entries):
            yield self.entry(slot)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry at or below `timestamp`, or (NO_TIMESTAMP, base offset)."""
        with self._lock:
            slot = self._floor_slot(timestamp)
            if slot < 0:
                return TimestampOffset(NO_TIMESTAMP, self.base_offset)
            return self._entry(slot)

    def truncate_to(self, offset: int) -> None:
        """Drops the entries at and above `offset`."""
        with self._lock:
            keep = self.slot_range(offset, by_value=True)[0] + 1
            # Offsets may repeat, and the search stops at any of the equal ones.
            while keep and self._entry(keep - 1).offset >= offset:
                keep -= 1
            self.truncate_to_entries(keep)

    def sanity_check(self) -> None:
        super().sanity_check()
        with self._lock:
            if not self.entries:
                return
            first, last = self.entry(0), self.last_entry
        if last.timestamp < first.timestamp:
            raise CorruptIndexError(
                f"time index {self.path}: last timestamp {last.timestamp} is below the first"
                f" {first.timestamp}"
            )
        if last.offset < self.base_offset:
            raise CorruptIndexError(
                f"time index {self.path}: last offset {last.offset} is below the base offset"
                f" {self.base_offset}"
            )

    def _entry(self, slot: int) -> TimestampOffset:
        mapping = self._map
        if mapping is None:
            raise self._no_mapping()
        timestamp, relative = _unpack_from(mapping, slot * _SIZE)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def _load_last(self) -> None:
        last = self.entries - 1
        self._last = self._entry(last) if last >= 0 else (NO_TIMESTAMP, self.base_offset)
