"""Checks that batches follow one another in the bytes that a read returns.

A read returns bytes that it has not parsed, and a client cannot read past a position at which no
batch follows. So the headers of batches that this process has neither written nor walked over are
stepped through once, before the first read of them; without checksums, which clients verify. Where
the chain is broken, `damage` finds the extent, and the read ends in front of it.

The checked bytes are remembered as a few ranges of positions, one for each reader of the file::

    [ checked )            [ checked )              | written or walked by this process
    0                                               trusted_from                     size
"""

from typing import TYPE_CHECKING, Final

from odradek.records.batch import HEADER_SIZE
from odradek.records.scan import step_over_headers

if TYPE_CHECKING:
    from odradek.storage.segments.segment import LogSegment

__all__ = ["ChainCheck"]

# Bytes that one read checks and returns at most. As many as the default of
# max.partition.fetch.bytes: at some GB/s it occupies the loop for a fraction of a millisecond.
_CHECKED_AT_ONCE: Final = 1 << 20
_STEP_BYTES: Final = 16 << 10  # Of one read of the file; a larger batch is skipped.
_MOST_RANGES: Final = 8  # Of one file; the shortest is dropped.


class _Range:
    """Positions whose headers were stepped through."""

    __slots__ = ("end", "last_offset", "last_step", "start")

    def __init__(self, start: int, next_offset: int) -> None:
        self.start = start
        self.end = start
        # Where the last step began, and the lowest offset there. The last batch of a step is
        # confirmed only by the batch after it, so the next step begins here again.
        self.last_step = start
        self.last_offset = next_offset


class ChainCheck:
    """The checked part of the chain of batches in one file.

    Attributes:
        trusted_from: Position from which on this process has written the file, or walked over it.
    """

    __slots__ = ("_ranges", "trusted_from")

    def __init__(self, trusted_from: int) -> None:
        self.trusted_from = trusted_from
        self._ranges: list[_Range] = []

    def trust(self, position: int) -> None:
        """Treats all bytes from a position on as walked over."""
        self.trusted_from = min(self.trusted_from, position)
        if position == 0:
            self._ranges.clear()

    def reach(self, segment: "LogSegment", position: int, next_offset: int, end: int) -> int:
        """The end of a read from the batch at `position`, at most `end`.

        Damage on the way is reported to the segment. Returns `position` if the batch itself is
        damaged.

        Args:
            segment: The segment of the file.
            position: The position of a batch.
            next_offset: Its base offset.
            end: The requested end of the read.
        """
        limit = min(end, self.trusted_from)
        checked = self._range_at(position, next_offset)
        if checked.end >= limit:
            return end
        stop = min(limit, max(position, checked.end) + _CHECKED_AT_ONCE)
        at, offset = checked.last_step, checked.last_offset
        while at < stop:
            chunk = segment.read_at(at, _STEP_BYTES)
            stepped, behind = step_over_headers(chunk, 0, offset)
            is_whole = at + stepped <= segment.size and (
                segment.offset_limit is None or behind <= segment.offset_limit
            )
            if stepped and is_whole and len(chunk) - stepped < HEADER_SIZE:
                checked.last_step, checked.last_offset = at, offset
                at, offset = at + stepped, behind
                checked.end = at
                continue
            # A walk with checksums decides; it begins at the last batch whose position is certain.
            doubtful = at + (stepped if is_whole else len(chunk))
            walk = segment.walk(checked.last_step, next_offset=checked.last_offset)
            broken = None
            for batch in walk:
                broken = segment.damage.next_unserved(checked.last_step)
                if broken is not None or batch.position > doubtful:
                    break
            else:
                broken = segment.damage.next_unserved(checked.last_step)
            if broken is not None:
                checked.end = min(checked.end, broken)
                return min(end, max(position, broken))
            if walk.good_end <= at:
                return end  # A tail that readers get as it is.
            checked.last_step, checked.last_offset = at, offset
            at, offset = walk.good_end, walk.next_offset
            checked.end = at
        return end if checked.end >= limit else max(position, checked.end)

    def forget_from(self, position: int) -> None:
        """Drops the ranges behind the position at which the file was truncated."""
        self.trusted_from = min(self.trusted_from, position)
        self._ranges = [one for one in self._ranges if one.end <= position]

    def _range_at(self, position: int, next_offset: int) -> _Range:
        for one in self._ranges:
            if one.start <= position <= one.end:
                return one
        if len(self._ranges) == _MOST_RANGES:
            self._ranges.remove(min(self._ranges, key=lambda one: one.end - one.start))
        self._ranges.append(_Range(position, next_offset))
        return self._ranges[-1]
