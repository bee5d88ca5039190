"""Finding the batch of an offset in a segment: from an index entry on, header by header.

An index is a hint: it carries no checksum, so a look-up checks what stands at the position it got,
and a lie costs a rebuild, never a record. Where damage that must be kept breaks the way, the next
entry behind it is tried.

    look for 7          index: (5 -> 5000)          5 <= 7, so start at 5000
    headers             5000: last offset 5         too early, step over it
                        6000: last offset 8         the batch that contains 7
"""

import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import CorruptIndexError, CorruptRecordError
from odradek.records.batch import CURRENT_MAGIC, HEADER_SIZE, BatchHeader, peek_header

if TYPE_CHECKING:
    from odradek.storage.segment import LogSegment

__all__ = ["BatchPlace", "find_batch", "floor_position"]

logger = logging.getLogger(__name__)

_STEP_BYTES = 16 << 10  # One read of a look-up: an index interval of small batches, with room.


class BatchPlace(NamedTuple):
    """A batch of a segment: where it starts and what its header says."""

    position: int
    header: BatchHeader


def find_batch(segment: "LogSegment", offset: int, start_position: int = 0) -> BatchPlace | None:
    """The first batch whose last offset is at or above `offset`."""
    position, chunk = _read_floor(segment, offset, _STEP_BYTES)
    if position < start_position:
        position = start_position
        chunk = segment.read_at(position, _STEP_BYTES) if position < segment.size else b""
    while chunk:
        place = _step(chunk, position, offset)
        if isinstance(place, BatchPlace):
            return place
        if place is None:
            break
        position = place
        chunk = segment.read_at(position, _STEP_BYTES) if position < segment.size else b""
    return _place_around_damage(segment, offset, start_position)


def _step(chunk: bytes, chunk_start: int, offset: int) -> BatchPlace | int | None:
    """The batch within the chunk, or the position to read on from."""
    position = 0
    while True:
        try:
            header = peek_header(chunk, position)
        except CorruptRecordError:
            return None  # Damage below the recovery point: the chain is lost.
        if header is None:
            return chunk_start + position if position else None
        if header.last_offset >= offset:
            return BatchPlace(chunk_start + position, header)
        position += header.size
        if position >= len(chunk):
            return chunk_start + position


def _place_around_damage(
    segment: "LogSegment", offset: int, start_position: int
) -> BatchPlace | None:
    """What the next index entry leads to, where the way from the one before is broken."""
    if not segment.offset_index.is_loaded:
        return None
    entry = segment.offset_index.get().ceiling(offset)
    if entry is None or entry.position < start_position:
        return None
    try:
        chunk = _read_entry(segment, *entry, HEADER_SIZE)
    except CorruptIndexError:
        return None
    header = peek_header(chunk)
    if header is None or header.last_offset < offset:
        return None
    return BatchPlace(entry.position, header)


def floor_position(segment: "LogSegment", offset: int) -> int:
    """Where to start looking for `offset`: an index entry that was checked, or the start."""
    return _read_floor(segment, offset, HEADER_SIZE)[0]


def _read_floor(segment: "LogSegment", offset: int, size: int) -> tuple[int, bytes]:
    """`floor_position`, and up to `size` bytes from there on: one read to check and to use."""
    try:
        return _read_checked_floor(segment, offset, size)
    except CorruptIndexError as error:
        logger.warning("rebuilding the indexes of %s: %s", segment.path, error)
        segment.rebuild_indexes()
        return _read_checked_floor(segment, offset, size)


def _read_checked_floor(segment: "LogSegment", offset: int, size: int) -> tuple[int, bytes]:
    is_newly_mapped = not segment.offset_index.is_loaded
    if is_newly_mapped and segment.size <= segment.indexes.interval_bytes:
        return 0, segment.read_at(0, size)  # So small a file has no entries.
    index = segment.offset_index.get()
    if is_newly_mapped:
        index.sanity_check()
        if index.entries and index.entry(index.entries - 1).position == 0:
            # No entry is ever made for the first batch: zeros that a crash left.
            raise CorruptIndexError(f"index {index.path} ends in a slot that is not filled")
    if index.entries:
        indexed_offset, position = index.lookup(offset)
        if position:
            return position, _read_entry(segment, indexed_offset, position, size)
    return 0, segment.read_at(0, size)


def _read_entry(segment: "LogSegment", indexed_offset: int, position: int, size: int) -> bytes:
    """What an entry leads to: a batch stands there and ends at or before the entry's offset.

    Args:
        segment: The segment of the index.
        indexed_offset: What the entry says.
        position: Where it says that is.
        size: Bytes to read, at least those of a header.

    Raises:
        CorruptIndexError: The entry could skip records.
    """
    chunk = b""
    problem = None
    if not 0 <= position < segment.size:
        problem = f"the file has {segment.size} bytes"
    else:
        chunk = segment.read_at(position, size)
        try:
            header = peek_header(chunk)
        except CorruptRecordError as error:
            problem = f"no batch stands there: {error}"
        else:
            if header is None:
                problem = "no whole batch header stands there"
            elif header.magic == CURRENT_MAGIC and header.base_offset < segment.base_offset:
                problem = f"the batch there starts at {header.base_offset}, below the base"
            elif header.last_offset > indexed_offset:
                problem = f"the batch there ends at {header.last_offset}"
    if problem is not None:
        raise CorruptIndexError(
            f"index entry {indexed_offset} -> {position} of {segment.path}: {problem}"
        )
    return chunk
