"""Whether batches follow one another in the bytes that a read is about to hand out.

A read hands out bytes it has not looked at, and a client that meets a place where no batch follows
can go no further. So the headers of what this process has neither written nor walked over are
stepped through once, before the first read of them; without checksums, which are the reader's
business. Where the chain is broken, `damage` finds out how far, and the read ends in front of it.

What was stepped through is remembered as a few ranges of positions, one for each reader that goes
through the file::

    [ checked )            [ checked )              | written or walked by this process
    0                                               trusted_from                     size
"""

from typing import TYPE_CHECKING, Final

from odradek.records.batch import HEADER_SIZE
from odradek.records.scan import step_over_headers

if TYPE_CHECKING:
    from odradek.storage.segments.segment import LogSegment

__all__ = ["ChainCheck"]

# Bytes that one read checks at most; it hands out no more. As much as a partition's share of a
# fetch by default: at some GB/s it keeps the loop for a fraction of a millisecond.
_CHECKED_AT_ONCE: Final = 1 << 20
_STEP_BYTES: Final = 16 << 10  # Of one look at the file; a larger batch is jumped over.
_MOST_RANGES: Final = 8  # Of one file; the shortest is forgotten.


class _Range:
    """Positions whose headers were stepped through."""

    __slots__ = ("end", "last_offset", "last_step", "start")

    def __init__(self, start: int, next_offset: int) -> None:
        self.start = start
        self.end = start
        # Where the last step began, and the lowest offset there. The last batch of a step is known
        # to be right only by what follows it, so the next one begins here again.
        self.last_step = start
        self.last_offset = next_offset


class ChainCheck:
    """What is known of the chain of batches in one file.

    Attributes:
        trusted_from: Position from which on this process has written the file, or walked over it.
    """

    __slots__ = ("_ranges", "trusted_from")

    def __init__(self, trusted_from: int) -> None:
        self.trusted_from = trusted_from
        self._ranges: list[_Range] = []

    def trust(self, position: int) -> None:
        """Takes everything from a position on for walked over."""
        self.trusted_from = min(self.trusted_from, position)
        if position == 0:
            self._ranges.clear()

    def reach(self, segment: "LogSegment", position: int, next_offset: int, end: int) -> int:
        """How far a read from the batch at `position` may go, up to `end`.

        Damage on the way is reported to the segment. The answer is `position` if the batch itself
        turned out to be damaged.

        Args:
            segment: Whose file it is.
            position: Where a batch stands.
            next_offset: Its base offset.
            end: Where the read wants to end.
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
            # A walk with checksums judges, from where the batch in front of it is known to stand.
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
        """Forgets what was known of a file behind the position at which it was cut."""
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
