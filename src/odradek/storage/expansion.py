"""Compressed batches that are too large, expanded, to be checked on the event loop.

A few kilobytes can stand for hundreds of megabytes. An append expands what a client sent up to
`INLINE_EXPANSION_BYTES`. What does not fit is not judged there: the append raises
`ExpansionDeferredError` before anything was stored, and its caller

1. copies the records into an `ExpandedRecords`, since the request's buffer is not a thread's;
2. calls `expand` of the error with it, on a thread: batches are expanded and walked, one at a time,
   and what came of it is noted with the records;
3. appends the `ExpandedRecords`. Everything else is judged then, as if nothing had been before.
"""

from collections.abc import Callable
from typing import Final

from odradek.errors import InvalidRecordError, OdradekError
from odradek.records.batch import Buffer

__all__ = [
    "INLINE_EXPANSION_BYTES",
    "ExpandedRecords",
    "ExpansionDeferredError",
    "Walked",
    "walks_of",
]

# About a millisecond of the loop. Producers fill batches of 16 KB to 1 MB, then compress them.
INLINE_EXPANSION_BYTES: Final = 1 << 20

# Of a batch: largest timestamp, and whether offsets are consecutive; or what is wrong with it.
Walked = tuple[int, bool] | OdradekError


class ExpandedRecords(bytearray):
    """Records whose compressed batches have been looked at."""

    __slots__ = ("walks",)

    def __init__(self, records: Buffer) -> None:
        super().__init__(records)
        self.walks: dict[int, Walked] = {}  # By the position of the batch.


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
