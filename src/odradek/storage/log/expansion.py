"""Compressed batches that are too large, expanded, to be checked on the event loop.

A few kilobytes can stand for hundreds of megabytes. An append expands what a client sent up to
`INLINE_EXPANSION_BYTES`, and all appends of one request together do (`InlineBudget`): many batches
that fit keep the loop as long as one that does not. A batch that has to be written anew, for
another codec or because its offsets are not consecutive, has to fit into `INLINE_REBUILD_BYTES`.

What does not fit is not judged there: the append raises
`ExpansionDeferredError` before anything was stored, and its caller

1. copies the records into an `ExpandedRecords`, since the request's buffer is not a thread's;
2. calls `expand` of the error with it, on a thread: batches are expanded and walked, one at a time,
   written anew if need be, and what came of it is noted with the records;
3. appends the `ExpandedRecords`. Everything else is judged then, as if nothing had been before.
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

# Of a batch: largest timestamp, and whether offsets are consecutive; or what is wrong with it.
Walked = tuple[int, bool] | OdradekError


class ExpandedRecords(bytearray):
    """Records whose compressed batches have been looked at."""

    __slots__ = ("rebuilds", "walks")

    def __init__(self, records: Buffer) -> None:
        super().__init__(records)
        self.walks: dict[int, Walked] = {}  # By the position of the batch.
        self.rebuilds: dict[int, bytearray] = {}  # Batches written anew, likewise.


class InlineBudget:
    """What may still be expanded on the loop for the request that is appended.

    A request for one partition has one batch, and need not be counted: between `begin` and `end`,
    the batches of a request share what each of them has for itself otherwise.
    """

    __slots__ = ("_is_shared", "left_bytes")

    def __init__(self) -> None:
        self._is_shared = False
        self.left_bytes = INLINE_EXPANSION_BYTES

    def begin(self) -> None:
        """The batches of a request follow."""
        self._is_shared = True
        self.left_bytes = INLINE_EXPANSION_BYTES

    def end(self) -> None:
        """The request is appended."""
        self._is_shared = False
        self.left_bytes = INLINE_EXPANSION_BYTES

    def take(self, count: int) -> None:
        """A batch had so many bytes."""
        if self._is_shared:
            self.left_bytes -= count


class ExpansionDeferredError(InvalidRecordError):
    """A batch cannot be expanded within what the loop has time for; nothing was stored.

    It may be wrong as well. A caller that has no thread takes it for that.

    Args:
        expand: Fills in the walks of records, on a thread.
    """

    def __init__(self, message: str, expand: Callable[[ExpandedRecords], None]) -> None:
        super().__init__(message)
        self.expand = expand


def walks_of(records: Buffer) -> dict[int, Walked] | None:
    """What is known of records that have been expanded; None of any others."""
    owner = records.obj if isinstance(records, memoryview) else records
    return owner.walks if isinstance(owner, ExpandedRecords) else None


def rebuilds_of(records: Buffer) -> dict[int, bytearray]:
    """The batches of records that have been expanded which were written anew."""
    owner = records.obj if isinstance(records, memoryview) else records
    return owner.rebuilds if isinstance(owner, ExpandedRecords) else {}
