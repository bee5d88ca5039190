"""Where the last batches of a segment stand, so that whoever waits for them need not search.

A consumer that is woken by an append asks for the very batch that was appended, and fifty consumers
ask for it fifty times. The index has an entry for every few kilobytes only: from there a look-up
reads header after header. What was just written is known, so it is remembered: 16 bytes a batch,
`KEPT` to twice as many of them.

Only base offsets are found. Between two of them a log may have gaps, and who asks for an offset in
the middle of a batch takes the usual way.
"""

from array import array
from bisect import bisect_left
from typing import Final, final

__all__ = ["KEPT", "LastPlaces"]

KEPT: Final = 256


@final
class LastPlaces:
    """Base offsets and positions of the batches at the end of a segment, oldest first.

    Invariant: they stand one behind the other, and the last of them ends where the segment does.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, base_offset: int, position: int) -> None:
        """A batch was written behind the others."""
        offsets = self._offsets
        offsets.append(base_offset)
        self._positions.append(position)
        if len(offsets) >= 2 * KEPT:
            del offsets[:KEPT]
            del self._positions[:KEPT]

    def find(self, base_offset: int, end: int) -> tuple[int, int] | None:
        """Position and size of the batch that begins with an offset, if it is remembered.

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
        """The file has become shorter, or was written to in another way."""
        if self._offsets:
            self._offsets = array("q")
            self._positions = array("q")
