"""The look-up of an offset's batch in a segment: from an index entry on, header by header.

An index is a hint: it has no checksum, so a look-up checks that a batch is at the position of an
entry, and a wrong entry costs a rebuild, never a record. The look-up reads headers without their
checksums, too: where one is impossible, or has a higher offset than the next one, a walk with
checksums (`damage`) finds the end of the damage, and the look-up continues there.

    look for 7          index: (5 -> 5000)          5 <= 7, so start at 5000
    headers             5000: last offset 5         too early, step over it
                        6000: last offset 8         the batch that contains 7
"""

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import CorruptIndexError, CorruptRecordError
from odradek.records.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    BatchHeader,
    is_crc_valid,
    peek_header,
)
from odradek.storage.segments.damage import Extent

if TYPE_CHECKING:
    from odradek.storage.segments.segment import LogSegment

__all__ = ["BatchPlace", "find_batch", "floor_position"]

logger = logging.getLogger(__name__)

_STEP_BYTES = 16 << 10  # One read of a look-up: an index interval of small batches, with room.


class BatchPlace(NamedTuple):
    """A batch of a segment: its position and its header."""

    position: int
    header: BatchHeader


def find_batch(segment: "LogSegment", offset: int, start_position: int = 0) -> BatchPlace | None:
    """The first batch whose last offset is at or above `offset`, unless it is damaged."""
    position, chunk = _read_floor(segment, offset, _STEP_BYTES)
    if position < start_position:
        position = start_position
        chunk = segment.read_at(position, _STEP_BYTES) if position < segment.size else b""
    floor = position
    lowest = 0 if floor else segment.base_offset
    while chunk:
        place = _step(chunk, position, offset, lowest)
        if isinstance(place, BatchPlace):
            doubtful = place.position
            if place.header.base_offset <= offset and not segment.damage:
                return place
            if not _is_doubtful(segment, place) and not segment.damage.unserved_at(doubtful):
                return place
        elif place.is_broken:
            doubtful = place.position
        elif place.position > segment.size:
            doubtful = place.last_batch  # Its length exceeds the file.
        else:
            doubtful = -1
            position, lowest = place.position, place.next_offset
        if doubtful >= 0:
            extent = _damage_at(segment, floor, doubtful)
            if extent is None:
                # The length of a damaged batch on the way may have led here.
                extent = segment.damage.unserved_before(doubtful)
            if extent is None or extent.end <= floor:
                return place if isinstance(place, BatchPlace) else None
            position = floor = extent.end
            lowest = extent.next_offset
        chunk = segment.read_at(position, _STEP_BYTES) if position < segment.size else b""
    return None


class _Stop(NamedTuple):
    """Where a step through a chunk ended without an answer."""

    position: int
    is_broken: bool  # Whether no batch that belongs there is there; otherwise the chunk ends.
    last_batch: int  # Position of the batch whose length leads there.
    next_offset: int  # Behind that batch.


def _step(chunk: bytes, chunk_start: int, offset: int, lowest: int) -> BatchPlace | _Stop:
    """The batch within the chunk, or where to continue reading; all begin at `lowest` or above.

    A batch that begins below the end of the one before it is damaged: taken for one that is too
    early, it would be missed without a log line.
    """
    position = last = 0
    while True:
        try:
            header = peek_header(chunk, position)
        except CorruptRecordError:
            return _Stop(chunk_start + position, True, chunk_start + last, lowest)
        if header is None:  # Unless at the start of the chunk, the next chunk has all of it.
            return _Stop(chunk_start + position, position == 0, chunk_start + last, lowest)
        if header.base_offset < lowest and header.magic == CURRENT_MAGIC:
            return _Stop(chunk_start + position, True, chunk_start + last, lowest)
        if header.last_offset >= offset:
            return BatchPlace(chunk_start + position, header)
        last = position
        lowest = header.next_offset
        position += header.size
        if position >= len(chunk):
            return _Stop(chunk_start + position, False, chunk_start + last, lowest)


def _is_doubtful(segment: "LogSegment", place: BatchPlace) -> bool:
    """Whether the next batch contradicts this one, because it starts at a lower offset."""
    position, header = place
    if segment.offset_limit is not None and header.last_offset >= segment.offset_limit:
        return True
    try:
        following = segment.header_at(position + header.size)
    except CorruptRecordError:
        return False  # Then that one is damaged; this one has nothing to do with it.
    return (
        following is not None
        and CURRENT_MAGIC == following.magic == header.magic
        and (following.base_offset <= header.base_offset)
    )


def _damage_at(segment: "LogSegment", start: int, position: int) -> Extent | None:
    """The damage around a position that a reader has to skip, if there is any.

    Args:
        segment: The segment.
        start: A position in front of it, from which headers lead to it.
        position: The position of the suspected damage.
    """
    extent = segment.damage.unserved_at(position)
    if extent is None:
        next_offset = None
        with contextlib.suppress(CorruptRecordError):
            header = segment.header_at(start)
            if start and header is not None and header.magic == CURRENT_MAGIC:
                next_offset = header.base_offset
        for batch in segment.walk(start, next_offset=next_offset):
            if batch.position > position:
                break
        extent = segment.damage.unserved_at(position)
    return extent


def floor_position(segment: "LogSegment", offset: int) -> int:
    """Where to start looking for `offset`: an index entry that was checked, or the start."""
    return _read_floor(segment, offset, HEADER_SIZE)[0]


def _read_floor(segment: "LogSegment", offset: int, size: int) -> tuple[int, bytes]:
    """`floor_position`, and up to `size` bytes from there: one read to check and to use."""
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
            # No entry is ever made for the first batch: these are zeros that a crash left.
            raise CorruptIndexError(f"index {index.path} ends in a slot that is not filled")
    if index.entries:
        indexed_offset, position = index.lookup(offset)
        if position:
            return position, _read_entry(segment, indexed_offset, position, size)
    return 0, segment.read_at(0, size)


def _read_entry(segment: "LogSegment", indexed_offset: int, position: int, size: int) -> bytes:
    """The bytes that an entry points to: a batch that ends at or before the entry's offset.

    Args:
        segment: The segment of the index.
        indexed_offset: The offset of the entry.
        position: The position of the entry.
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
            elif position + header.size > segment.size:
                problem = f"the batch there says {header.size} bytes, out of the file"
            elif header.magic != CURRENT_MAGIC and not _is_sound(segment, position, header):
                problem = "the batch there is of an old format, and not sound"
            elif header.last_offset > indexed_offset:
                problem = f"the batch there ends at {header.last_offset}"
    if problem is not None:
        raise CorruptIndexError(
            f"index entry {indexed_offset} -> {position} of {segment.path}: {problem}"
        )
    return chunk


def _is_sound(segment: "LogSegment", position: int, header: BatchHeader) -> bool:
    """Whether a batch matches its checksum; other bytes pass for a header of an old format."""
    return is_crc_valid(segment.read_at(position, header.size), 0, header.size)
