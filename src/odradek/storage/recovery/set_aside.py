"""Bytes that leave a log, but not the disk: ``….log.aside``.

Loading sometimes has to go on without data that was synced, because a checkpoint or an offset that
no checksum covers says so. If it was the checkpoint or the offset that was damaged, the data is all
there is. So it gets a suffix that neither Odradek nor Kafka reads, and a line in the log that says
how to restore it. The files are removed with their partition, and not before.
"""

import os
from collections.abc import Iterable

from odradek.errors import CorruptRecordError
from odradek.files import Disk
from odradek.storage.paths import ASIDE_SUFFIX, LOG_SUFFIX, segment_path
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["find_original", "set_segments_aside", "set_tail_aside", "unused_suffix"]

_COPY_BYTES = 1 << 20


def unused_suffix(directory: str) -> str:
    """A suffix that no file of a partition directory has, such as ``.aside`` or ``.aside.2``."""
    names = os.listdir(directory)
    suffix, number = ASIDE_SUFFIX, 1
    while any(name.endswith(suffix) for name in names):
        number += 1
        suffix = f"{ASIDE_SUFFIX}.{number}"
    return suffix


def set_segments_aside(disk: Disk, directory: str, segments: Iterable[LogSegment]) -> str:
    """Renames the files of segments, durably and from the last one on; returns their new suffix.

    Raises:
        OSError: The disk refused.
    """
    suffix = unused_suffix(directory)
    for segment in sorted(segments, key=lambda s: s.base_offset, reverse=True):
        segment.change_stage(suffix)
        segment.close_handles()
    disk.fsync_dir(directory)
    return suffix


def find_original(segment: LogSegment, segments: LogSegments) -> LogSegment | None:
    """The segment that has all of `segment` in the right place; None if it is no copy.

    It is one if the first batch stands there, too, and the last one ends no later than there.

    Raises:
        OSError: The disk refused.
    """
    try:
        header = segment.header_at(0)
    except CorruptRecordError:
        return None
    if header is None:
        return None
    for other in (segments.floor(header.base_offset), segments.floor(segment.base_offset - 1)):
        if other is not None and other is not segment:
            place = other.translate_offset(header.base_offset)
            if place is not None and place.header == header and _end_of(segment) <= _end_of(other):
                return other
    return None


def _end_of(segment: LogSegment) -> int:
    """Behind the batches that follow one another from the start on, wherever they belong."""
    end = -1
    for _, header, _, _ in segment.scan():
        end = header.next_offset
    return end


def set_tail_aside(disk: Disk, directory: str, segment: LogSegment, position: int) -> str:
    """Moves the bytes from `position` on into a file of their own; returns its path.

    They are synced there before the segment is cut.

    Raises:
        OSError: The disk refused.
    """
    stage = f".from{position}{unused_suffix(directory)}"
    path = segment_path(directory, segment.base_offset, LOG_SUFFIX, stage)
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        while position < segment.size:
            data = segment.read_at(position, _COPY_BYTES)
            written = disk.write(fd, data)
            if written != len(data):
                raise OSError(f"short write to {path}: {written} of {len(data)} bytes")
            position += written
        disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.fsync_dir(directory)
    return path
