"""The positions of a segment's last batches, so that consumers at the end need no look-up.

A consumer that is woken by an append asks for the very batch that was appended, and fifty consumers
ask for it fifty times. The index has an entry for every few kilobytes only: from there a look-up
reads header after header. So the positions of the batches written last are kept: 16 bytes a batch,
`KEPT` to twice as many of them.

Only base offsets are found. Between two of them a log may have gaps, and a read of an offset in the
middle of a batch uses the ordinary look-up.
"""

from array import array
from bisect import bisect_left
from typing import Final, final

__all__ = ["KEPT", "LastPlaces"]

KEPT: Final = 256


@final
class LastPlaces:
    """Base offsets and positions of the batches at the end of a segment, oldest first.

    Invariant: they are adjacent, and the last of them ends where the segment does.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, base_offset: int, position: int) -> None:
        """Adds a batch that was written after the others."""
        offsets = self._offsets
        offsets.append(base_offset)
        self._positions.append(position)
        if len(offsets) >= 2 * KEPT:
            del offsets[:KEPT]
            del self._positions[:KEPT]

    def find(self, base_offset: int, end: int) -> tuple[int, int] | None:
        """Position and size of the batch that begins with an offset, if it is kept.

        Args:
            base_offset: The offset.
            end: Where the segment ends.
        """
        offsets = self._offsets
        count = len(offsets)
        if not count or base_offset < offsets[0]:
            return None
        index = bisect_left(offsets, base_offset)
        if index == count or offsets[index] != base_offset:
            return None
        position = self._positions[index]
        following = end if index + 1 == count else self._positions[index + 1]
        return position, following - position

    def clear(self) -> None:
        """Drops all: the file was truncated, or written in another way."""
        if self._offsets:
            self._offsets = array("q")
            self._positions = array("q")
