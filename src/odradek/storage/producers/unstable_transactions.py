"""The transactions that limit the last stable offset of one partition.

A transaction is *ongoing* from its first batch to its marker, then *unreplicated* until the high
watermark has passed the marker. A ``read_committed`` reader may see no record at or above the first
offset of either. Every operation takes constant time, amortised:

- Ongoing transactions begin in offset order, so an ordered dict of first offsets is always sorted:
  the earliest is in front, and any of them is removed in constant time.
- Unreplicated ones arrive in the order of their markers and leave in that order. Only the smallest
  first offset among them is needed, so one that began later than a newer arrival is dropped: it
  would leave no later than the newer one, whose first offset is lower.

      arrives (first, marker)   kept                 smallest first offset
      (10, 20)                  (10, 20)             10
      (15, 22)                  (10, 20) (15, 22)    10
      (12, 25)                  (10, 20) (12, 25)    10    (15, 22) is covered by (12, 25)
      high watermark 21         (12, 25)             12
      high watermark 26         none
"""

from collections import OrderedDict, deque
from typing import NamedTuple

__all__ = ["CompletedTransaction", "UnstableTransactions"]


class CompletedTransaction(NamedTuple):
    """A transaction that has its marker."""

    producer_id: int
    first_offset: int
    last_offset: int  # Of the marker.
    is_aborted: bool


class UnstableTransactions:
    """Ongoing and unreplicated transactions, and the earliest offset of them."""

    __slots__ = ("_ongoing", "_unreplicated", "first_offset")

    def __init__(self) -> None:
        # First offset -> producer id. Not the other way round: within one append a producer may
        # begin its next transaction before the completed one is taken out.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker offset). Invariant: both columns strictly increase.
        self._unreplicated: deque[tuple[int, int]] = deque()
        # The earliest first offset of both; None when there is no transaction. Kept, not computed,
        # since every read uses it.
        self.first_offset: int | None = None

    def __bool__(self) -> bool:
        return bool(self._ongoing or self._unreplicated)

    def _find_first_offset(self) -> None:
        first = next(iter(self._ongoing), None)
        if self._unreplicated:
            unreplicated = self._unreplicated[0][0]
            first = unreplicated if first is None else min(first, unreplicated)
        self.first_offset = first

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Adds a transaction whose first batch was appended."""
        is_latest = first_offset > next(reversed(self._ongoing), -1)
        self._ongoing[first_offset] = producer_id
        if not is_latest:  # A damaged log is replayed; all else relies on the order.
            self._ongoing = OrderedDict(sorted(self._ongoing.items()))
        self._find_first_offset()

    def last_stable_offset_for(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed`, still ongoing here, has ended, and no other."""
        after_marker = completed.last_offset + 1
        for first_offset in self._ongoing:
            if first_offset != completed.first_offset:
                # A transaction that began after the marker, in the same append, does not count.
                return min(first_offset, after_marker)
        return after_marker

    def complete(self, completed: CompletedTransaction) -> None:
        """Ends an ongoing transaction, whose marker was appended and, if it aborts, indexed."""
        self._ongoing.pop(completed.first_offset, None)
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[-1][0] >= completed.first_offset:
            unreplicated.pop()
        unreplicated.append((completed.first_offset, completed.last_offset))
        self._find_first_offset()

    def forget_replicated(self, high_watermark: int) -> None:
        """Drops the transactions whose markers, below `high_watermark`, are replicated."""
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            unreplicated.popleft()
            self._find_first_offset()

    def clear(self) -> None:
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_offset = None
