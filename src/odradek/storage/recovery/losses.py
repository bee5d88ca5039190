"""Reports losses: since a clean stop by the record of that stop, else where offsets jump.

`closed_logs` has the record. A log file that is gone, or shorter than the stop left it, is reported
and counted, whether or not the remaining batches show the loss. A file that is gone is replaced by
an empty one if its transaction index is still there: the index names aborted transactions whose
records are in the segments before it, and loading would remove an index without its log.
"""

import logging
import os

from odradek.model import TopicPartition
from odradek.storage import paths
from odradek.storage.directories.closed_logs import ClosedLog, ClosedSegment
from odradek.storage.log.services import LogServices
from odradek.storage.recovery.segment_files import SegmentFiles
from odradek.storage.segments.segments import LogSegments

__all__ = ["report_losses", "warn_of_jump"]

logger = logging.getLogger(__name__)


def report_losses(
    directory: str,
    topic_partition: TopicPartition,
    closed: ClosedLog,
    *,
    files: SegmentFiles,
    services: LogServices,
) -> None:
    """Compares the log files of a partition directory with the record of a clean stop.

    Raises:
        OSError: The disk refused.
    """
    ends = [*(segment.base_offset for segment in closed.segments[1:]), closed.log_end_offset]
    for number, (segment, end) in enumerate(zip(closed.segments, ends, strict=True)):
        path = paths.segment_path(directory, segment.base_offset, paths.LOG_SUFFIX)
        size = os.path.getsize(path) if os.path.exists(path) else -1
        if size >= segment.size:
            continue
        _tell(topic_partition, path, size, segment, end)
        if services.on_damage is not None:
            services.on_damage()
        if size < 0 and number:  # There is no segment before the first one.
            files.stand_in(segment)


def _tell(
    topic_partition: TopicPartition, path: str, size: int, segment: ClosedSegment, end: int
) -> None:
    topic, partition = topic_partition
    logger.error(
        "%s %s, although a clean stop left it with %d bytes and the offsets %d to %d: reads skip"
        " the lost records; if there is a copy, stop the broker, put it back, and start it again",
        path, "is missing" if size < 0 else f"has {size} bytes", segment.size,
        segment.base_offset, end - 1,
        extra={
            "topic": topic, "partition": partition, "size": max(0, size),
            "expected_size": segment.size,
        },
    )  # fmt: skip


def warn_of_jump(
    topic_partition: TopicPartition, segments: LogSegments, missing_from: int | None
) -> None:
    """Warns if the last batch or segment of an unclean log jumps ahead to its unsynced end.

    A damaged offset cannot be told from the offsets of a leader with gaps.

    Args:
        topic_partition: Whose log it is.
        segments: Its segments.
        missing_from: The first offset that is missing before the last batch; None if none is.

    Raises:
        OSError: The disk refused.
    """
    active = segments.active
    assert active is not None
    topic, partition = topic_partition
    before = segments.floor(active.base_offset - 1)
    if active.size == 0 and before is not None:
        end = before.read_next_offset().next_offset
        if end < active.base_offset:
            logger.warning(
                "%s: it is empty, and the segment before it ends at offset %d: the offsets between"
                " were never written here, or the file belongs to another log",
                active.path, end,
                extra={"topic": topic, "partition": partition, "missing_from": end},
            )  # fmt: skip
    elif missing_from is not None:
        logger.warning(
            "%s: offsets from %d on are missing before the last batch of the log: they were never"
            " written here, or the offset of the batch, which no checksum covers, is damaged",
            active.path, missing_from,
            extra={"topic": topic, "partition": partition, "missing_from": missing_from},
        )  # fmt: skip
