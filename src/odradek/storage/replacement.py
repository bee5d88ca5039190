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
from odradek.records.batch import CURRENT_MAGIC
from odradek.storage.config import INT32_MAX, LogConfig
from odradek.storage.paths import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from odradek.storage.segment import LogSegment
from odradek.storage.segments import LogSegments

__all__ = ["split_segment", "swap_segments"]

logger = logging.getLogger(__name__)


def swap_segments(
    segments: LogSegments,
    new: list[LogSegment],
    old: list[LogSegment],
    *,
    disk: Disk,
    directory: str,
    is_recovered: bool = False,
) -> list[LogSegment]:
    """Replaces `old` by `new` on disk and in the map.

    Args:
        segments: The log's map.
        new: Complete and flushed, as `.cleaned`; as `.swap` if `is_recovered`.
        old: What they stand for; those that left the map meanwhile are ignored.
        disk: Where the files live.
        directory: The partition directory.
        is_recovered: Whether a start finishes what a crash interrupted.

    Returns:
        The old segments, renamed to `.deleted`, whose files are the caller's to remove.
    """
    new = sorted(new, key=lambda segment: segment.base_offset)
    replaced = [segment for segment in old if segment in segments]
    if not is_recovered:
        for segment in reversed(new):
            segment.change_stage(SWAP_SUFFIX)
        disk.fsync_dir(directory)
    for segment in replaced:
        segments.remove(segment)
    for segment in new:
        segments.add(segment)
    for segment in replaced:
        segment.change_stage(DELETED_SUFFIX)
    disk.fsync_dir(directory)
    for segment in new:
        segment.change_stage("")
    disk.fsync_dir(directory)
    return replaced


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
        for _, header, view, _ in segment.scan():
            first = header.base_offset if header.magic >= CURRENT_MAGIC else header.last_offset
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
