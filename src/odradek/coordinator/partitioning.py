"""The partition of the offsets topic that stores a group, as Kafka's tools compute it. Pure."""

from array import array
from functools import lru_cache
from operator import mul
from typing import Final

__all__ = ["java_string_hash", "partition_for"]

_MASK: Final = 0xFFFF_FFFF
_BLOCK: Final = 256
# 31 to the power of 255, 254, … 0: the weights of the units of a block.
_WEIGHTS: Final = tuple(pow(31, _BLOCK - 1 - place, 1 << 32) for place in range(_BLOCK))
_BLOCK_FACTOR: Final = pow(31, _BLOCK, 1 << 32)
# The names of those that ask again and again: a megabyte at most.
_CACHED_NAMES: Final = 4_096
_MAX_CACHED_LENGTH: Final = 100


def java_string_hash(text: str) -> int:
    """`String.hashCode`: 31 * h + c over UTF-16 units, a signed 32-bit number.

    A block of units is summed at a time: the longest possible id, of 32767 bytes, would occupy the
    loop for milliseconds otherwise.
    """
    return _hash(text) if len(text) > _MAX_CACHED_LENGTH else _hash_of_short(text)


@lru_cache(_CACHED_NAMES)
def _hash_of_short(text: str) -> int:
    return _hash(text)


def _hash(text: str) -> int:
    units = array("H", text.encode("utf-16", "surrogatepass"))  # Native order, with a mark.
    value = 0
    place = 1
    while place < len(units):
        block = units[place : place + _BLOCK]
        size = len(block)
        factor = _BLOCK_FACTOR if size == _BLOCK else pow(31, size, 1 << 32)
        value = (value * factor + sum(map(mul, block, _WEIGHTS[_BLOCK - size :]))) & _MASK
        place += size
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of `group_id`.

    The absolute value of the hash, not the hash without its sign bit: those differ for negative
    numbers. -2^31, which has no positive counterpart among 32-bit numbers, counts as 0.
    """
    value = java_string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
