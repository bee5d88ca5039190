"""Stepping through a segment: is a batch in its place, where does the file end, indexes made anew.

`scan` reads batches and knows their checksums; what they mean for the segment they stand in is
judged here. Nothing here changes the log file: cutting it is up to `recovery`.
"""

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import CorruptRecordError, InvalidOffsetError
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.storage.config import INT32_MAX
from odradek.storage.offset_lookup import floor_position
from odradek.storage.scan import Damage, Salvage, ScannedBatch

if TYPE_CHECKING:
    from odradek.storage.segment import LogSegment

__all__ = ["TailScan", "problem_with", "read_next_offset", "rebuild_indexes"]

logger = logging.getLogger(__name__)


class TailScan(NamedTuple):
    """Where the last batch of a segment ends."""

    next_offset: int
    damage: Damage | None  # The end could not be reached: load as after an unclean stop.


def problem_with(segment: "LogSegment", batch: ScannedBatch, next_offset: int) -> str | None:
    """What is wrong with a batch that stands behind `next_offset`; None if nothing is.

    Offsets only grow, and gaps are legal. The checksum does not cover the base offset, so a
    batch that jumps ahead is compared with the one behind it: if that one continues where
    this one should have, it is this one that lies.
    """
    position, header, _, is_crc_valid = batch
    if not is_crc_valid:
        return f"the batch does not match its checksum {header.crc:#010x}"
    if header.magic < CURRENT_MAGIC or header.base_offset == next_offset:
        return None if header.last_offset_delta >= 0 else "the batch ends before its start"
    if header.base_offset < next_offset:
        return f"the batch starts at offset {header.base_offset}, expected {next_offset} up"
    if header.last_offset_delta < 0:
        return "the batch ends before its start"
    try:
        following = segment.header_at(position + header.size)
    except CorruptRecordError:
        return None
    if (
        following is not None
        and following.magic == CURRENT_MAGIC
        and next_offset <= following.base_offset < header.base_offset
    ):
        return (
            f"the batch starts at offset {header.base_offset},"
            f" the one behind it at {following.base_offset}"
        )
    return None


def read_next_offset(segment: "LogSegment") -> TailScan:
    """The offset behind the last batch, found from the last index entry; CRCs are checked."""
    start = floor_position(segment, segment.base_offset + INT32_MAX)
    scan = segment.scan(start, check_crc=True)
    next_offset = segment.base_offset
    for batch in scan:
        if start and batch.position == start and batch.header.magic >= CURRENT_MAGIC:
            # The index vouches for it, and where the one before it ended is not known.
            next_offset = max(next_offset, batch.header.base_offset)
        if (problem := problem_with(segment, batch, next_offset)) is not None:
            return TailScan(next_offset, Damage(batch.position, problem))
        next_offset = batch.header.next_offset
    if scan.damage is None and segment.offset_index.is_loaded:
        index = segment.offset_index.get()
        if index.entries and index.last_offset >= next_offset:
            logger.warning(
                "rebuilding the indexes of %s: the last entry %d is beyond the end %d",
                segment.path, index.last_offset, next_offset,
            )  # fmt: skip
            rebuild_indexes(segment)
    return TailScan(next_offset, scan.damage)


def rebuild_indexes(segment: "LogSegment") -> None:
    """Writes offset and time index anew from the good batches."""
    indexes, base_offset = segment.indexes, segment.base_offset
    indexes.reset()
    max_timestamp = NO_TIMESTAMP
    next_offset = base_offset
    last_entry_position = good_end = 0

    def report(salvage: Salvage, damage: Damage) -> bool:
        logger.error("%s: %s, at position %d", segment.path, damage.reason, damage.position)
        salvage.next_offset, salvage.good_end = next_offset, good_end
        return True

    salvage = segment.salvage(report)
    for batch in salvage:
        position, header, _, _ = batch
        last_offset = header.last_offset
        problem = problem_with(segment, batch, next_offset)
        if problem is None and not 0 <= last_offset - base_offset <= INT32_MAX:
            problem = f"offset {last_offset} is too far from the base"
        if problem is not None:
            logger.error("%s: %s, at position %d", segment.path, problem, position)
            continue
        next_offset = max(next_offset, last_offset + 1)
        good_end = position + header.size
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
            indexes.note_timestamp(max_timestamp, last_offset)
        if position - last_entry_position > indexes.interval_bytes or salvage.is_resumed:
            with contextlib.suppress(InvalidOffsetError):  # Old formats may go backwards.
                indexes.add_scanned(last_offset, position)
            last_entry_position = position
    indexes.finish_scanned()
