"""Walks through a whole segment: finds the end of the file, rebuilds its indexes.

Nothing here changes the log file: `recovery` truncates it.
"""

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import CorruptRecordError, InvalidOffsetError
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.storage.log.config import INT32_MAX
from odradek.storage.segments.offset_lookup import floor_position
from odradek.storage.segments.scan import Damage

if TYPE_CHECKING:
    from odradek.storage.segments.segment import LogSegment

__all__ = ["TailScan", "read_next_offset", "rebuild_indexes"]

logger = logging.getLogger(__name__)


class TailScan(NamedTuple):
    """Where the last batch of a segment ends."""

    next_offset: int
    damage: Damage | None  # The end could not be reached: load as after an unclean stop.


def read_next_offset(segment: "LogSegment") -> TailScan:
    """The offset behind the last batch, found from the last index entry; CRCs are checked."""
    start = floor_position(segment, segment.base_offset + INT32_MAX)
    next_offset = segment.base_offset
    if start:
        # The index confirms this batch; the end of the batch before it is not known.
        with contextlib.suppress(CorruptRecordError):
            header = segment.header_at(start)
            if header is not None and header.magic >= CURRENT_MAGIC:
                next_offset = max(next_offset, header.base_offset)
    walk = segment.walk(start, next_offset=next_offset, cut_from=next_offset)
    for _ in walk:
        pass
    if walk.cut is not None:
        return TailScan(walk.next_offset, Damage(walk.cut.position, walk.cut.reason))
    segment.chain.trust(start)
    if segment.offset_index.is_loaded:
        index = segment.offset_index.get()
        if index.entries and index.last_offset >= walk.next_offset:
            logger.warning(
                "rebuilding the indexes of %s: the last entry %d is beyond the end %d",
                segment.path, index.last_offset, walk.next_offset,
            )  # fmt: skip
            rebuild_indexes(segment)
    return TailScan(walk.next_offset, None)


def rebuild_indexes(segment: "LogSegment") -> None:
    """Rebuilds offset and time index from the sound batches."""
    indexes, base_offset = segment.indexes, segment.base_offset
    indexes.reset()
    max_timestamp = NO_TIMESTAMP
    last_entry_position = 0
    walk = segment.walk()
    for position, header, _, _ in walk:
        last_offset = header.last_offset
        if not 0 <= last_offset - base_offset <= INT32_MAX:
            logger.error(
                "%s: offset %d at position %d is too far from the base for an index",
                segment.path, last_offset, position,
            )  # fmt: skip
            continue
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
            indexes.note_timestamp(max_timestamp, last_offset)
        if position - last_entry_position > indexes.interval_bytes or walk.is_resumed:
            with contextlib.suppress(InvalidOffsetError):  # Old formats may go backwards.
                indexes.add_scanned(last_offset, position)
            last_entry_position = position
    indexes.finish_scanned()
    segment.chain.trust(0)
