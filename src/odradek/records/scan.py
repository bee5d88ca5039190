"""Stepping over runs of everyday batches, as recovery does with nearly all of a log.

An everyday batch is whole, of magic 2, matches its checksum, begins where the one before it ended,
has no producer and brings no new leader epoch: of such a batch a recovery keeps nothing but the
largest timestamp and, now and then, an index entry. Looking at each costs several times its
checksum, so many are stepped over in one call, which has a compiled twin, `_scan.pyx`, used where
it was built; both give the same answer for any bytes. Whatever is not everyday ends the run and is
judged by the caller, batch by batch.
"""

from typing import Final, TypeAlias

from crc32c import crc32c

from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Buffer,
)

__all__ = ["IS_COMPILED", "IndexEntry", "Run", "step_over_run", "step_over_run_pure"]

# Last offset and position of the batch; largest timestamp up to it, and last offset of its batch.
IndexEntry: TypeAlias = tuple[int, int, int, int]

# Position behind the run, the next offset, largest timestamp and last offset of its batch, position
# of the last entry, and the entries of the run.
Run: TypeAlias = tuple[int, int, int, int, int, list[IndexEntry]]

_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD


def step_over_run_pure(
    data: Buffer,
    position: int,
    next_offset: int,
    last_allowed_offset: int,
    latest_epoch: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    entry_position: int,
    interval_bytes: int,
) -> Run:
    """Steps over the everyday batches from `position` on; over none if the first is another one.

    Args:
        next_offset: Where the first batch has to begin.
        last_allowed_offset: Where a batch has to end at the latest; below the largest int64.
        latest_epoch: The highest leader epoch that is not news.
        max_timestamp: Largest timestamp so far.
        offset_of_max_timestamp: Last offset of the batch that has it.
        entry_position: Where the batch of the last index entry stands, negative if before `data`.
        interval_bytes: What has to lie between two entries at least.

    Raises:
        ValueError: `position` does not lie within `data`.
    """
    end = len(data)
    if not 0 <= position <= end:
        raise ValueError(f"position {position} is not within {end} bytes")
    view = memoryview(data)
    entries: list[IndexEntry] = []
    unpack = HEADER.unpack_from
    while position + HEADER_SIZE <= end:
        (
            base_offset, length, leader_epoch, magic, crc, _, last_offset_delta, _, timestamp,
            producer_id, _, _, _,
        ) = unpack(view, position)  # fmt: skip
        batch_end = position + length + LOG_OVERHEAD
        if (
            magic != CURRENT_MAGIC
            or length < _MIN_LENGTH
            or batch_end > end
            or base_offset != next_offset
            or not 0 <= last_offset_delta <= last_allowed_offset - base_offset
            or producer_id >= 0
            or leader_epoch > latest_epoch
            or crc32c(view[position + ATTRIBUTES_POSITION : batch_end]) != crc
        ):
            break
        last_offset = base_offset + last_offset_delta
        if timestamp > max_timestamp:
            max_timestamp, offset_of_max_timestamp = timestamp, last_offset
        if position - entry_position > interval_bytes:
            entries.append((last_offset, position, max_timestamp, offset_of_max_timestamp))
            entry_position = position
        next_offset = last_offset + 1
        position = batch_end
    return position, next_offset, max_timestamp, offset_of_max_timestamp, entry_position, entries


try:
    from odradek.records._scan import step_over_run
except ImportError:
    step_over_run = step_over_run_pure
    IS_COMPILED = False
else:
    IS_COMPILED = True
