"""Which partition a record goes to, as the Java client chooses it. No I/O.

A key decides by its hash, over all partitions whether or not they have a leader: the same key must
land in the same place from every producer. Without a key the partitions take turns.
"""

from itertools import count
from struct import Struct
from typing import Final

__all__ = ["RoundRobin", "murmur2", "partition_of_key"]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_WORD: Final = Struct("<I")


def murmur2(data: bytes) -> int:
    """The 32 bits of Kafka's murmur2, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        word = word * _MULTIPLIER & _MASK
        word ^= word >> 24
        word = word * _MULTIPLIER & _MASK
        mixed = mixed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = mixed * _MULTIPLIER & _MASK
    mixed ^= mixed >> 13
    mixed = mixed * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of a key; an empty key is one, too."""
    return (murmur2(key) & 0x7FFF_FFFF) % partition_count


class RoundRobin:
    """Partitions in turn, for records without a key."""

    __slots__ = ("_turns",)

    def __init__(self, start: int = 0) -> None:
        self._turns = count(start)

    def next_partition(self, partition_count: int) -> int:
        """Whose turn it is."""
        return next(self._turns) % partition_count
