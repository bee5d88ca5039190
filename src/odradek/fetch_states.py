"""Which offset to fetch next from which partition: the core of every fetcher. Pure.

A fetcher, whatever it fetches for, keeps one state per partition and obeys:

1. A partition that is there is not added again: an older offset would make it read twice.
2. An answer counts only if the partition is still there and still at the offset that was asked for:
   whoever moved it meanwhile knew better.
3. The offset has moved before the data is handed on.
4. A partition in trouble is delayed, or taken out and added again once its leader is known; its
   neighbours go on.

Example: offset 10 is asked for, somebody seeks to 20, the answer arrives: dropped, 20 stays.
"""

from collections.abc import Callable, Iterable, Mapping

from odradek.model import TopicPartition

__all__ = ["FetchStates", "fetcher_id"]


class FetchStates:
    """See the module's docstring. Partitions are in the order in which they are to be asked."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        # Monotonic milliseconds until which a partition is not asked for.
        self._delayed_until_ms: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._offsets

    def offset(self, tp: TopicPartition) -> int | None:
        """Where a partition is read on; None if it is not fetched."""
        return self._offsets.get(tp)

    def add(
        self,
        offsets: Mapping[TopicPartition, int],
        reset: Callable[[TopicPartition], int] | None = None,
    ) -> None:
        """Begins to fetch partitions that are not fetched yet.

        Args:
            offsets: Where to begin; a negative one means that `reset` knows.
        """
        for tp, offset in offsets.items():
            if tp in self._offsets:
                continue
            if offset < 0:
                assert reset is not None, f"{tp} has no offset, and nobody knows one"
                offset = reset(tp)
            self._offsets[tp] = offset

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetches them no more; answers that are under way will not count."""
        for tp in partitions:
            self._offsets.pop(tp, None)
            self._delayed_until_ms.pop(tp, None)

    def delay(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Leaves partitions alone for a while; those that are not fetched stay so."""
        for tp in partitions:
            if tp in self._offsets:
                self._delayed_until_ms[tp] = until_ms

    def active(self, now_ms: int) -> dict[TopicPartition, int]:
        """What may be asked for now."""
        delayed = self._delayed_until_ms
        if not delayed:
            return dict(self._offsets)
        for tp in [tp for tp, until_ms in delayed.items() if until_ms <= now_ms]:
            del delayed[tp]
        return {tp: offset for tp, offset in self._offsets.items() if tp not in delayed}

    def next_active_ms(self) -> int | None:
        """When the first delayed partition may be asked for; None if none is delayed."""
        return min(self._delayed_until_ms.values(), default=None)

    def is_expected(self, tp: TopicPartition, asked_offset: int) -> bool:
        """Whether an answer to that question still counts."""
        return self._offsets.get(tp) == asked_offset

    def advance(self, tp: TopicPartition, asked_offset: int, next_offset: int) -> bool:
        """Moves on after an answer, and to the end of the order; False if it does not count."""
        if self._offsets.get(tp) != asked_offset:
            return False
        if next_offset != asked_offset:
            del self._offsets[tp]
            self._offsets[tp] = next_offset
        return True


def fetcher_id(tp: TopicPartition, fetcher_count: int) -> int:
    """Which of the fetchers of a broker serves a partition: always the same one."""
    hashed = 0
    units = tp.topic.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    mixed = (31 * hashed + tp.partition) & 0xFFFF_FFFF
    if mixed >= 1 << 31:
        mixed = (1 << 32) - mixed
    return (0 if mixed == 1 << 31 else mixed) % fetcher_count
