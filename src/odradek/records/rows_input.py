"""The input of `rows`: buffers of columns, and the errors for rows that cannot be sent."""

from typing import NamedTuple

from odradek.errors import ApiError, ErrorCode
from odradek.records.batch import Buffer

__all__ = [
    "BinaryInput",
    "HeadersInput",
    "NumberInput",
    "malformed_row",
    "nameless_header",
    "negative_start",
    "no_such_partition",
    "short_buffer",
]


class BinaryInput(NamedTuple):
    """Byte strings: entry i is `data[offsets[i]:offsets[i + 1]]`."""

    start: int  # The entry that belongs to row 0.
    validity: Buffer | None  # A bit per entry, 0 = null; None: nothing is null.
    offsets: Buffer  # int32
    data: Buffer


class NumberInput(NamedTuple):
    """Numbers of four bytes (partitions) or of eight (timestamps)."""

    start: int
    validity: Buffer | None
    data: Buffer


class HeadersInput(NamedTuple):
    """A list of headers per row: the entries `offsets[i]` to `offsets[i + 1]` of two columns."""

    start: int
    validity: Buffer | None
    offsets: Buffer  # int32
    entry_count: int  # Of the two columns.
    key: BinaryInput
    value: BinaryInput


def short_buffer(column: str, needed: int, found: int) -> ValueError:
    """The error for a column whose buffer is too short."""
    return ValueError(f"column {column}: a buffer of {found} bytes, expected at least {needed}")


def negative_start(column: str) -> ValueError:
    """The error for a column that begins before its buffers."""
    return ValueError(f"column {column}: it starts at a negative entry")


def malformed_row(row: int) -> ValueError:
    """The error for a row whose offsets lie outside of its buffers."""
    return ValueError(f"row {row}: its offsets are not in order, or lie outside of the column")


def nameless_header(row: int) -> ValueError:
    """The error for a header without a key."""
    return ValueError(f"row {row}: a header has no key; every header needs one")


def no_such_partition(row: int, partition: int, partition_count: int) -> ApiError:
    """The error for a row with a partition that does not exist."""
    return ApiError(
        ErrorCode.INVALID_PARTITIONS,
        f"row {row} is for partition {partition}, but the topic has {partition_count} partitions, "
        "numbered from 0",
    )
