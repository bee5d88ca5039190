"""Compressed batches that are too large, expanded, to be checked on the event loop.

A few kilobytes can expand to hundreds of megabytes. On the loop, all appends of one request
together expand at most `INLINE_EXPANSION_BYTES` (`InlineBudget`): many batches that fit occupy the
loop as long as one that does not. A batch that has to be rebuilt, for another codec or because its
offsets are not consecutive, must not be larger than `INLINE_REBUILD_BYTES`.

For a batch that exceeds these limits the append raises `ExpansionDeferredError` before anything is
stored, and its caller

1. copies the records into an `ExpandedRecords`, since the request's buffer is only valid on the
   loop;
2. calls `expand` of the error with it, on a thread: batches are expanded and walked, one at a time,
   rebuilt if need be, and the results are stored with the records;
3. appends the `ExpandedRecords`. All other checks are made then, as in a first append.
"""

from collections.abc import Callable
from typing import Final

from odradek.errors import InvalidRecordError, OdradekError
from odradek.records.batch import Buffer

__all__ = [
    "INLINE_EXPANSION_BYTES",
    "INLINE_REBUILD_BYTES",
    "ExpandedRecords",
    "ExpansionDeferredError",
    "InlineBudget",
    "Walked",
    "rebuilds_of",
    "walks_of",
]

# About a millisecond of the loop. Producers fill batches of 16 KB to 1 MB, then compress them.
INLINE_EXPANSION_BYTES: Final = 1 << 20

# Compressing takes ten times as long as expanding, and gzip more.
INLINE_REBUILD_BYTES: Final = 64 << 10

# Of a batch: largest timestamp, and whether offsets are consecutive; or the error that it has.
Walked = tuple[int, bool] | OdradekError


class ExpandedRecords(bytearray):
    """Records whose compressed batches have been expanded and walked."""

    __slots__ = ("rebuilds", "walks")

    def __init__(self, records: Buffer) -> None:
        super().__init__(records)
        self.walks: dict[int, Walked] = {}  # By the position of the batch.
        self.rebuilds: dict[int, bytearray] = {}  # Rebuilt batches, likewise.


class InlineBudget:
    """How many bytes may still be expanded on the loop for the request that is appended.

    Between `begin` and `end` the batches of a request share one budget. Outside of them each batch
    has the whole budget: a request for one partition has one batch.
    """

    __slots__ = ("_is_shared", "left_bytes")

    def __init__(self) -> None:
        self._is_shared = False
        self.left_bytes = INLINE_EXPANSION_BYTES

    def begin(self) -> None:
        """Begins a budget that the batches of a request share."""
        self._is_shared = True
        self.left_bytes = INLINE_EXPANSION_BYTES

    def end(self) -> None:
        """Ends the shared budget: all batches of the request are appended."""
        self._is_shared = False
        self.left_bytes = INLINE_EXPANSION_BYTES

    def take(self, count: int) -> None:
        """Takes the expanded bytes of a batch from a shared budget."""
        if self._is_shared:
            self.left_bytes -= count


class ExpansionDeferredError(InvalidRecordError):
    """A batch is too large, expanded, for the loop; nothing was stored.

    It may be invalid as well. A caller that has no thread treats it as an invalid batch.

    Args:
        expand: Fills in the walks of records, on a thread.
    """

    def __init__(self, message: str, expand: Callable[[ExpandedRecords], None]) -> None:
        super().__init__(message)
        self.expand = expand


def walks_of(records: Buffer) -> dict[int, Walked] | None:
    """The results of `expand` for records that have been expanded; None for any others."""
    owner = records.obj if isinstance(records, memoryview) else records
    return owner.walks if isinstance(owner, ExpandedRecords) else None


def rebuilds_of(records: Buffer) -> dict[int, bytearray]:
    """The rebuilt batches of records that have been expanded, by position."""
    owner = records.obj if isinstance(records, memoryview) else records
    return owner.rebuilds if isinstance(owner, ExpandedRecords) else {}
