"""Which partition a record goes to, as the Java client chooses it. No I/O.

A key decides by its hash, over all partitions whether or not they have a leader: the same key must
land in the same place from every producer. Without a key the partitions take turns.
"""

from itertools import count

from odradek.records.rows import murmur2

__all__ = ["RoundRobin", "murmur2", "partition_of_key"]


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key, which may be empty."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


class RoundRobin:
    """Partitions in turn, for records without a key."""

    __slots__ = ("_turns",)

    def __init__(self, start: int = 0) -> None:
        self._turns = count(start)

    def next_partition(self, partition_count: int) -> int:
        """The partition whose turn it is."""
        return next(self._turns) % partition_count
