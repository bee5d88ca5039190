"""The segments of one log, ordered by base offset."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator

from odradek.storage.segments.segment import LogSegment

__all__ = ["LogSegments"]


class LogSegments:
    """A sorted map from base offset to segment. An open log has at least one."""

    __slots__ = ("_bases", "_by_base", "_on_damage", "active")

    def __init__(self, on_damage: Callable[[], None] | None = None) -> None:
        self._on_damage = on_damage  # Called for each place in a segment that is damaged.
        self._bases: list[int] = []
        self._by_base: dict[int, LogSegment] = {}
        # The segment with the largest base, the only one that is appended to. None when empty.
        self.active: LogSegment | None = None

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[LogSegment]:
        """All segments as of now, oldest first."""
        return iter([self._by_base[base] for base in self._bases])

    def __contains__(self, segment: LogSegment) -> bool:
        return self._by_base.get(segment.base_offset) is segment

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Adds a segment under its base; returns the one that it replaces."""
        previous = self._by_base.get(segment.base_offset)
        if previous is None:
            insort(self._bases, segment.base_offset)
        self._by_base[segment.base_offset] = segment
        segment.damage.on_found = self._on_damage
        self._note_limits(bisect_left(self._bases, segment.base_offset))
        self.active = self._by_base[self._bases[-1]]
        return previous

    def remove(self, segment: LogSegment) -> None:
        """Removes a segment from the map; the caller handles its files."""
        assert segment in self
        del self._by_base[segment.base_offset]
        slot = bisect_left(self._bases, segment.base_offset)
        del self._bases[slot]
        self._note_limits(slot - 1)
        self.active = self._by_base[self._bases[-1]] if self._bases else None

    def _note_limits(self, slot: int) -> None:
        """Sets the `offset_limit` of a segment and of the one before it."""
        for number in (slot - 1, slot):
            if number >= 0:
                behind = self._bases[number + 1 : number + 2]
                self._by_base[self._bases[number]].offset_limit = behind[0] if behind else None

    def clear(self) -> None:
        """Removes all segments from the map."""
        self._bases.clear()
        self._by_base.clear()
        self.active = None

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment with exactly this base."""
        return self._by_base.get(base_offset)

    @property
    def first(self) -> LogSegment | None:
        return self._by_base[self._bases[0]] if self._bases else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the largest base at or below `offset`."""
        active = self.active
        if active is not None and active.base_offset <= offset:
            return active
        slot = bisect_right(self._bases, offset)
        return self._by_base[self._bases[slot - 1]] if slot else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the smallest base strictly above `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._by_base[self._bases[slot]] if slot < len(self._bases) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """The segment that would contain `offset` (or the first) and all after it."""
        slot = max(0, bisect_right(self._bases, offset) - 1)
        return [self._by_base[base] for base in self._bases[slot:]]

    def between(self, start: int, end: int) -> list[LogSegment]:
        """Segments that may contain offsets in [start, end).

        Raises:
            ValueError: `end` lies before the segment of `start`.
        """
        slot = max(0, bisect_right(self._bases, start) - 1)
        if self._bases and end < self._bases[slot] and slot:
            raise ValueError(f"no range: {end} is below the segment of {start}")
        stop = bisect_left(self._bases, end)
        return [self._by_base[base] for base in self._bases[slot:stop]]

    def size_in_bytes(self) -> int:
        """Bytes of all log files."""
        return sum(segment.size for segment in self._by_base.values())
