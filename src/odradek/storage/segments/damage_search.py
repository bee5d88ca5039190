"""The search for the first sound batch in bytes without a chain of batches.

The upper half of a base offset hardly changes within a segment and the magic follows 16 bytes after
it: a pattern finds the candidates at the speed of the memory; their headers, and then the checksum,
identify the real ones.

**The cost is linear**, whatever the bytes are. A value may hold any number of headers that each
claim to reach to the end of the file, and reading every claim would be quadratic. So each byte goes
into a checksum once: with C(x) the checksum of all bytes from the start of the search to x, that of
the bytes between a and b is ``C(b) ^ shift(C(a), b - a)``, where `shift` moves a checksum over
zeros. A candidate costs two of these values, and waits until the search reaches its end::

    bytes     ....[a1 ........[a2 ....... b2] ... b1]    two claims
    search    C(a1) kept      C(a2) kept                 at b2: a2 is sound, unless a1 is a batch
                                                         with a2 in a value: known at b1
"""

import re
from collections.abc import Callable
from functools import cache
from heapq import heappop, heappush
from typing import Final

from crc32c import crc32c

from odradek.records.batch import ATTRIBUTES_POSITION, HEADER, HEADER_SIZE, LOG_OVERHEAD

__all__ = ["find_sound_batch", "shift_crc"]

# The first read is small, for damage mostly is; each further one is twice as large.
_FIRST_READ: Final = 16 << 10
_LARGEST_READ: Final = 1 << 20

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, bits reversed.


def find_sound_batch(
    read: Callable[[int, int], memoryview],
    start: int,
    end: int,
    *,
    first_offset: int,
    last_offset: int,
) -> int | None:
    """Position of the first sound batch of magic 2 in [start, end), wherever it may begin.

    Args:
        read: Returns the bytes from a position on, of a length, unless the file ends before.
        start: Where to begin.
        end: Where the batch must end at the latest.
        first_offset: Its lowest first offset.
        last_offset: Its highest last offset.
    """
    candidate = _pattern(first_offset, last_offset)
    found: int | None = None
    # (end, start, checksum up to the bytes its own covers, its own) of the undecided candidates.
    pending: list[tuple[int, int, int, int]] = []
    checksum, at = 0, start  # Of [start, at).
    chunk_start, size = start, _FIRST_READ
    while chunk_start + HEADER_SIZE <= end and (found is None or pending):
        chunk = read(chunk_start, min(size + HEADER_SIZE, end - chunk_start))
        if not chunk:
            break  # The file is shorter than `end`.
        chunk_end = chunk_start + size
        cuts: list[tuple[int, int, int, int]] = []
        if found is None:
            for match in candidate.finditer(chunk):
                position = match.start()
                if position >= size or len(chunk) - position < HEADER_SIZE:
                    break
                base, length, _, _, crc, _, delta, *_ = HEADER.unpack_from(chunk, position)
                claimed = chunk_start + position + length + LOG_OVERHEAD
                if (
                    first_offset <= base <= base + delta <= last_offset
                    and length + LOG_OVERHEAD >= HEADER_SIZE
                    and claimed <= end
                ):
                    begin = chunk_start + position
                    cuts.append((begin + ATTRIBUTES_POSITION, begin, claimed, crc))
        for cut, begin, claimed, crc in [
            *cuts,
            (min(chunk_end, chunk_start + len(chunk)), -1, 0, 0),
        ]:
            while pending and pending[0][0] <= cut:
                ended, began, before, expected = heappop(pending)
                checksum = crc32c(chunk[at - chunk_start : ended - chunk_start], checksum)
                at = ended
                covered = ended - began - ATTRIBUTES_POSITION
                if checksum ^ shift_crc(before, covered) == expected and (
                    found is None or began < found
                ):
                    found = began
                    pending = sorted(waiting for waiting in pending if waiting[1] < began)
            if cut > at:
                checksum = crc32c(chunk[at - chunk_start : cut - chunk_start], checksum)
                at = cut
            if begin >= 0 and (found is None or begin < found):
                heappush(pending, (claimed, begin, checksum, crc))
        chunk_start, size = chunk_end, min(2 * size, _LARGEST_READ)
    return found


def _pattern(first_offset: int, last_offset: int) -> re.Pattern[bytes]:
    halves = {(offset >> 32).to_bytes(4, "big") for offset in (first_offset, last_offset)}
    upper = b"|".join(re.escape(half) for half in sorted(halves))
    return re.compile(rb"(?=(?:" + upper + rb").{12}\x02)", re.DOTALL)


def shift_crc(crc: int, byte_count: int) -> int:
    """The contribution of a checksum to that of its bytes and `byte_count` further ones."""
    level = 0
    while byte_count:
        if byte_count & 1:
            first, second, third, fourth = _tables_of(level)
            crc = (
                first[crc & 0xFF]
                ^ second[crc >> 8 & 0xFF]
                ^ third[crc >> 16 & 0xFF]
                ^ fourth[crc >> 24]
            )
        byte_count >>= 1
        level += 1
    return crc


@cache
def _tables_of(level: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """The tables, one per byte of a checksum, that move it over 2 ** level zero bytes."""
    if level == 0:
        bits = [_over_one_byte(1 << bit) for bit in range(32)]
    else:
        half = 1 << (level - 1)
        bits = [shift_crc(shift_crc(1 << bit, half), half) for bit in range(32)]
    return _table_of(bits[:8]), _table_of(bits[8:16]), _table_of(bits[16:24]), _table_of(bits[24:])


def _over_one_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


def _table_of(bits: list[int]) -> list[int]:
    """The table of results for all values of a byte: sums of the results of its bits."""
    table = [0]
    for moved in bits:
        table += [value ^ moved for value in table]
    return table
