"""Which offset to fetch next from which partition: the core of a fetcher. Pure.

A fetcher keeps one state per partition, by these rules:

1. A partition that is fetched is not added again: an older offset would be read twice.
2. An answer counts only if the partition is still fetched, and still at the offset that the request
   asked for: a seek or truncation since then is newer than the answer.
3. The offset moves before the data is passed on.
4. A partition that failed is delayed, or removed and added again once its leader is known; the
   other partitions are not affected.

Example: a request asks for offset 10, the consumer seeks to 20, the answer to the request arrives:
it is dropped, and the next request asks for 20.
"""

from collections.abc import Callable, Iterable, Mapping

from odradek.model import TopicPartition

__all__ = ["FetchStates", "fetcher_id"]


class FetchStates:
    """See the module's docstring. Partitions are in the order in which they are to be fetched."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        # Monotonic milliseconds until which a partition is not fetched.
        self._delayed_until_ms: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._offsets

    def offset(self, tp: TopicPartition) -> int | None:
        """The next offset to fetch of a partition; None if the partition is not fetched."""
        return self._offsets.get(tp)

    def add(
        self,
        offsets: Mapping[TopicPartition, int],
        reset: Callable[[TopicPartition], int] | None = None,
    ) -> None:
        """Begins to fetch partitions that are not fetched yet.

        Args:
            offsets: Where to begin; for a negative offset `reset` is called.
            reset: Returns the offset at which to begin.
        """
        for tp, offset in offsets.items():
            if tp in self._offsets:
                continue
            if offset < 0:
                assert reset is not None, f"{tp} has no offset, and there is no reset"
                offset = reset(tp)
            self._offsets[tp] = offset

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching partitions; answers to requests in flight will not count."""
        for tp in partitions:
            self._offsets.pop(tp, None)
            self._delayed_until_ms.pop(tp, None)

    def delay(self, partitions: Iterable[TopicPartition], until_ms: int) -> None:
        """Does not fetch partitions until a time; ignores those that are not fetched at all."""
        for tp in partitions:
            if tp in self._offsets:
                self._delayed_until_ms[tp] = until_ms

    def active(self, now_ms: int) -> dict[TopicPartition, int]:
        """The partitions that may be fetched now, with their offsets."""
        delayed = self._delayed_until_ms
        if not delayed:
            return dict(self._offsets)
        for tp in [tp for tp, until_ms in delayed.items() if until_ms <= now_ms]:
            del delayed[tp]
        return {tp: offset for tp, offset in self._offsets.items() if tp not in delayed}

    def next_active_ms(self) -> int | None:
        """When the first delayed partition may be fetched; None if no partition is delayed."""
        return min(self._delayed_until_ms.values(), default=None)

    def is_expected(self, tp: TopicPartition, asked_offset: int) -> bool:
        """Whether the answer to a request for `asked_offset` still counts."""
        return self._offsets.get(tp) == asked_offset

    def advance(self, tp: TopicPartition, asked_offset: int, next_offset: int) -> bool:
        """Moves a partition on after an answer, and to the end of the order of partitions.

        Returns whether the answer counts.
        """
        if self._offsets.get(tp) != asked_offset:
            return False
        if next_offset != asked_offset:
            del self._offsets[tp]
            self._offsets[tp] = next_offset
        return True


def fetcher_id(tp: TopicPartition, fetcher_count: int) -> int:
    """The number of the fetcher that serves a partition; always the same for a partition."""
    hashed = 0
    units = tp.topic.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    mixed = (31 * hashed + tp.partition) & 0xFFFF_FFFF
    if mixed >= 1 << 31:
        mixed = (1 << 32) - mixed
    return (0 if mixed == 1 << 31 else mixed) % fetcher_count
