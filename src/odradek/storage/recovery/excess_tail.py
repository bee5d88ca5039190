"""Repair of a log that ends above the offset that its clean stop has recorded.

No checksum covers the base offset of a batch, and no batch follows the last one of a log that would
contradict it: with one flipped bit a log that ended at 5 ends at 2^61 + 5, and assigns offsets from
there. A clean stop has left two witnesses, the recovery point and a snapshot. If its record of the
closed logs is there (`closed_logs`), the end is certain.

| found                                                     | wrong, and the repair                |
|-----------------------------------------------------------|--------------------------------------|
| a snapshot at the end as it is found                      | the recovery point: the end counts   |
| batches lead over the recovery point without a gap        | likewise; if the end is certain, the |
|                                                           | batches belong to another log, and   |
|                                                           | are set aside from there on          |
| a batch that jumps over the recovery point; without the   | its base offset, for which only one  |
| jump it would end exactly there, and no batch is after it | value is possible: it is repaired    |
| any other batch that jumps over it                        | its offset, which is unknown: it     |
|                                                           | is set aside with all behind it      |
"""

import logging
import os
from struct import Struct

from odradek.files import Disk
from odradek.records.batch import CURRENT_MAGIC
from odradek.storage.recovery.set_aside import set_tail_aside
from odradek.storage.segments.scan import ScannedBatch
from odradek.storage.segments.segment import LogSegment

__all__ = ["settle_excess"]

logger = logging.getLogger(__name__)

_OFFSET = Struct(">q")


def settle_excess(
    segment: LogSegment, directory: str, disk: Disk, recorded: int, *, is_certain: bool = False
) -> int:
    """Repairs the last segment of a log by the table above; returns where it ends.

    Args:
        segment: It ends above `recorded`, without damage, and there is no snapshot at that end.
        directory: The partition directory.
        disk: Where the files live.
        recorded: The log end that a clean stop left.
        is_certain: Whether that has a checksum.

    Raises:
        OSError: The disk refused.
    """
    next_offset = segment.base_offset
    liar: ScannedBatch | None = None
    for batch in segment.walk():
        is_gap = batch.header.base_offset > next_offset
        if batch.header.next_offset > recorded and (is_gap or is_certain):
            liar = batch
            break
        next_offset = batch.header.next_offset
    if liar is None:
        logger.warning(
            "%s: ends at offset %d, although a clean stop left it at %d: its batches lead there"
            " without a gap, so the recovery point is taken for wrong",
            segment.path, next_offset, recorded,
        )  # fmt: skip
        return next_offset
    position, header = liar.position, liar.header
    is_last = position + header.size == segment.size
    if (
        is_last
        and header.magic >= CURRENT_MAGIC
        and next_offset + header.last_offset_delta + 1 == recorded
    ):
        logger.error(
            "%s: the batch at position %d says that it starts at offset %d; the clean stop left the"
            " log end at %d, so it starts at %d: repaired",
            segment.path, position, header.base_offset, recorded, next_offset,
        )  # fmt: skip
        _write_offset(segment.path, position, next_offset, disk)
        return recorded
    path = set_tail_aside(disk, directory, segment, position)
    logger.error(
        "%s: the batch at position %d says that it starts at offset %d, although a clean stop left"
        " the log end at %d: what it holds, and %d bytes behind it, are set aside in %s; see them"
        " with `odradek log dump --records` on a copy whose name ends in .log, and produce again"
        " what is wanted",
        segment.path, position, header.base_offset, recorded,
        segment.size - position - header.size, path,
    )  # fmt: skip
    segment.cut(position)
    return next_offset


def _write_offset(path: str, position: int, offset: int, disk: Disk) -> None:
    fd = disk.open(path, os.O_WRONLY)
    try:
        os.lseek(fd, position, os.SEEK_SET)
        data = _OFFSET.pack(offset)
        written = disk.write(fd, data)
        if written != len(data):
            raise OSError(f"short write to {path}: {written} of {len(data)} bytes")
        disk.fsync(fd)
    finally:
        disk.close(fd)
