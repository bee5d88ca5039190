"""Records that wait to become a batch: a list that takes records until it is closed.

`add` either puts the record in, for good, or says that it did not: a record is never added to a
list that somebody has begun to encode. It is what every record of a producer passes through, so it
is compiled (`_gathering.pyx`) where that was built. Threads may call the compiled form at will
(`IS_ATOMIC`); around the pure one they need a lock.
"""

from typing import Final

from odradek.records.codec_encode import NewRecord
from odradek.records.record import Headers

__all__ = ["IS_ATOMIC", "RECORD_OVERHEAD", "Gathering", "GatheringPure"]

# What a record costs besides its bytes, at most: length, attributes, deltas, lengths, counts.
RECORD_OVERHEAD: Final = 21


class GatheringPure:
    """Records up to a limit of bytes.

    Args:
        start_size: What the bytes begin with: a header.
        limit: The most that `size` may become.
    """

    __slots__ = ("is_closed", "limit", "records", "size")

    def __init__(self, start_size: int, limit: int) -> None:
        self.records: list[NewRecord] = []
        self.size = start_size  # Upper bound of what the records are when encoded.
        self.limit = limit
        self.is_closed = False

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int = 0,
    ) -> int:
        """Put a record in and tell its place; -1 if it does not fit, or the list is closed.

        Args:
            size: Upper bound of the record's bytes. 0: to be found out, which is done for keys and
                values that are `bytes` or None, without headers; for others the answer is -1.
        """
        if not size:
            if headers:
                return -1
            size = RECORD_OVERHEAD
            for field in (key, value):
                if field is not None:
                    if type(field) is not bytes:
                        return -1
                    size += len(field)
        if self.is_closed or self.size + size > self.limit:
            return -1
        index = len(self.records)
        self.records.append((timestamp, key, value, headers))
        self.size += size
        return index

    def close(self) -> int:
        """Let no more in; how many there are."""
        self.is_closed = True
        return len(self.records)

    def clear(self) -> None:
        """Forget the records."""
        self.records = []


try:
    from odradek.records._gathering import Gathering
except ImportError:
    Gathering = GatheringPure  # type: ignore[misc, assignment]  # the twin
    IS_ATOMIC = False
else:
    IS_ATOMIC = True
