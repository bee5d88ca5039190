"""Putting new segments in the place of old ones, so that a crash leaves the old or the new set.

The order of renames is what makes it safe (`loader` reads it backwards):

1. the new segments are complete and synced as `.cleaned`;
2. they become `.swap`, from the highest base down: as long as one `.cleaned` is left, every
   `.swap` at or above it is incomplete company and is dropped at the next start;
3. the old ones become `.deleted`;
4. the new ones lose their suffix.

A crash after 2 is finished at the next start; before that it is undone.
"""

import logging
import os

from odradek.files import Disk
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.storage.config import INT32_MAX, LogConfig
from odradek.storage.paths import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from odradek.storage.roll_witnesses import RollWitnesses
from odradek.storage.scan import CHUNK_BYTES
from odradek.storage.segment import FileSlice, LogSegment
from odradek.storage.segments import LogSegments

__all__ = ["split_segment", "swap_segments"]

logger = logging.getLogger(__name__)


def swap_segments(
    segments: LogSegments,
    new: list[LogSegment],
    old: list[LogSegment],
    *,
    witnesses: RollWitnesses,
    disk: Disk,
    directory: str,
) -> list[LogSegment]:
    """Replaces `old` by `new` on disk and in the map.

    Args:
        segments: The log's map.
        new: Complete and flushed, as `.cleaned`.
        old: What they stand for; those that left the map meanwhile are ignored.
        witnesses: Those of the log; some say of the old segments what need not hold of the new.
        disk: Where the files live.
        directory: The partition directory.

    Returns:
        The old segments, renamed to `.deleted`, whose files are the caller's to remove.
    """
    new = sorted(new, key=lambda segment: segment.base_offset)
    replaced = [segment for segment in old if segment in segments]
    for segment in reversed(new):
        segment.change_stage(SWAP_SUFFIX)
    disk.fsync_dir(directory)
    for segment in replaced:
        segments.remove(segment)
    for segment in new:
        segments.add(segment)
    _forget_witnesses(witnesses, segments, new, replaced)
    for segment in replaced:
        segment.change_stage(DELETED_SUFFIX)
    disk.fsync_dir(directory)
    for segment in new:
        segment.change_stage("")
    disk.fsync_dir(directory)
    return replaced


def _forget_witnesses(
    witnesses: RollWitnesses,
    segments: LogSegments,
    new: list[LogSegment],
    replaced: list[LogSegment],
) -> None:
    """The new segments are synced, and may rightly end before the old ones did."""
    following = segments.higher(new[-1].base_offset) if new else None
    if following is not None:
        witnesses.remove(following.base_offset)
    for segment in replaced:
        if segments.get(segment.base_offset) is None:
            witnesses.remove(segment.base_offset)


def split_segment(
    segment: LogSegment, *, directory: str, config: LogConfig, disk: Disk, now_ms: int
) -> list[LogSegment]:
    """Copies a segment whose offsets overflow into several `.cleaned` ones that do not.

    Raises:
        OSError: The disk refused; the copies are removed.
    """
    logger.info("splitting %s: its offsets exceed base + %d", segment.path, INT32_MAX)
    made: list[LogSegment] = []
    try:
        current: LogSegment | None = None
        scan = segment.scan()
        for _, header, view, _ in scan:
            first = header.base_offset if header.magic >= CURRENT_MAGIC else header.last_offset
            if current is not None and header.last_offset < current.base_offset:
                _append_unread(current, view)
                continue
            if current is None or header.last_offset - current.base_offset > INT32_MAX:
                current = LogSegment(
                    directory,
                    first,
                    config=config,
                    disk=disk,
                    now_ms=now_ms,
                    stage=CLEANED_SUFFIX,
                    create=True,
                )
                made.append(current)
            current.append(
                view,
                [(header.last_offset, header.max_timestamp, header.size)],
                largest_offset=header.last_offset,
                largest_timestamp=header.max_timestamp,
            )
        if current is not None:
            for position in range(scan.valid_end, segment.size, CHUNK_BYTES):
                length = min(CHUNK_BYTES, segment.size - position)
                _append_unread(current, FileSlice(disk, segment.fd, position, length).read())
        total = sum(part.size for part in made)
        if total != segment.size:
            raise OSError(f"split of {segment.path}: copied {total} of {segment.size} bytes")
        times = os.fstat(segment.fd)
        for part in made:
            part.on_become_inactive()
            part.flush()
            os.utime(part.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    except BaseException:
        for part in made:
            part.delete_if_exists()
        raise
    return made


def _append_unread(segment: LogSegment, data: bytes | memoryview) -> None:
    """Takes damaged bytes along; what becomes of them is up to recovery."""
    segment.append(data, (), largest_offset=segment.base_offset, largest_timestamp=NO_TIMESTAMP)
