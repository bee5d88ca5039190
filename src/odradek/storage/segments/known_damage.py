"""The known damage in one segment file: each place is logged once, and skipped by readers.

Every walk over a segment (recovery, a rebuild of its indexes, a look-up) reports here, so that an
operator sees each place once, however often it is found, and a reader can skip it.
"""

import logging
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from odradek.storage.segments.damage import Extent

__all__ = ["KnownDamage"]

logger = logging.getLogger(__name__)

_MOST_LINES = 100  # Of one file: a disk that goes bad must not fill another one with log lines.


class KnownDamage:
    """The extents of damage that were found in one file since it was opened.

    Attributes:
        on_found: Called for each place that was not known; for a metric.
    """

    __slots__ = ("_served", "_unserved", "on_found")

    def __init__(self) -> None:
        # Both sorted by position. Readers get the bytes of the former and skip the latter.
        self._served: list[Extent] = []
        self._unserved: list[Extent] = []
        self.on_found: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        """Whether there is an extent that a reader has to skip."""
        return bool(self._unserved)

    def note(self, path: str, extent: Extent) -> None:
        """Adds an extent; logs and counts it unless it overlaps with a known one."""
        is_known = self._drop_touched(self._served, extent)
        is_known = self._drop_touched(self._unserved, extent) or is_known
        insort(self._served if extent.is_served else self._unserved, extent)
        if is_known:
            return
        if len(self) <= _MOST_LINES:
            logger.error(
                "%s: damaged data is kept as it is: %s; %d bytes at position %d, behind offset %d;"
                " batches go on at position %d",
                path, extent.reason, extent.end - extent.start, extent.start,
                extent.next_offset - 1, extent.end,
            )  # fmt: skip
        if len(self) == _MOST_LINES:
            logger.error("%s: further damage in this file is counted, not listed", path)
        if self.on_found is not None:
            self.on_found()

    def _drop_touched(self, extents: list[Extent], extent: Extent) -> bool:
        """Drops the extents that overlap with one that replaces them."""
        first = bisect_right(extents, extent.start, key=_end)
        last = bisect_left(extents, extent.end, key=_start)
        del extents[first:last]
        return first < last

    def unserved_at(self, position: int) -> Extent | None:
        """The extent around a position that a reader has to skip, if there is one."""
        slot = bisect_right(self._unserved, position, key=_start) - 1
        if slot >= 0 and position < self._unserved[slot].end:
            return self._unserved[slot]
        return None

    def unserved_before(self, position: int) -> Extent | None:
        """The last extent in front of a position that a reader has to skip."""
        slot = bisect_left(self._unserved, position, key=_start) - 1
        return self._unserved[slot] if slot >= 0 else None

    def next_unserved(self, position: int) -> int | None:
        """The start of the first extent at or behind a position that a reader has to skip."""
        slot = bisect_left(self._unserved, position, key=_start)
        return self._unserved[slot].start if slot < len(self._unserved) else None

    def forget_from(self, position: int) -> None:
        """Drops the damage behind a position at which the file was truncated."""
        for extents in (self._served, self._unserved):
            extents[:] = [
                one._replace(end=min(one.end, position)) for one in extents if one.start < position
            ]

    def __len__(self) -> int:
        return len(self._served) + len(self._unserved)


def _start(extent: Extent) -> int:
    return extent.start


def _end(extent: Extent) -> int:
    return extent.end
