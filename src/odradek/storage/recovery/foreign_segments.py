"""Segments that do not belong to a log: copies of another segment, and files above its end.

They leave the log, but not the disk (`set_aside`), and an error line names each of them.
"""

import logging
from collections.abc import Iterable

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.recovery.set_aside import find_original, set_segments_aside
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["ForeignSegments"]

logger = logging.getLogger(__name__)


class ForeignSegments:
    """Removes segments from a log that is being opened."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        disk: Disk,
        segments: LogSegments,
        witnesses: RollWitnesses,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._disk = disk
        self._segments = segments
        self._witnesses = witnesses

    def set_copies_aside(self, segments: Iterable[LogSegment]) -> None:
        """Removes those of these segments that are copies of another one.

        An append to such a file would assign offsets a second time; a cut would cost all segments
        behind it.

        Raises:
            OSError: The disk refused.
        """
        for segment in segments:
            original = find_original(segment, self._segments)
            if original is not None:
                suffix = self._set_aside(segment)
                logger.error(
                    "%s: its first batch is in %s, too, where it belongs: it is a copy, and is set"
                    " aside with the suffix %s",
                    segment.path.removesuffix(suffix), original.path, suffix,
                )  # fmt: skip

    def set_all_above_aside(self, end: int) -> None:
        """Removes the segments above the end that a clean stop recorded.

        Raises:
            OSError: The disk refused.
        """
        while (active := self._segments.active) is not None and active.base_offset > end:
            self._set_aside_above(active, end)

    def set_empty_end_aside(self, recorded: int) -> None:
        """Removes an empty last segment of a log that was closed below its base.

        A segment before it that ends at its base confirms it.

        Args:
            recorded: The recovery point that a clean stop left; 0 if it is lost.

        Raises:
            OSError: The disk refused.
        """
        active = self._segments.active
        assert active is not None
        before = self._segments.floor(active.base_offset - 1)
        if (
            not active.size
            and before is not None
            and 0 < recorded < active.base_offset
            and before.read_next_offset().next_offset != active.base_offset
        ):
            self._set_aside_above(active, recorded)

    def _set_aside_above(self, segment: LogSegment, end: int) -> None:
        suffix = self._set_aside(segment)
        logger.error(
            "%s: the segment %020d in %s lies above %d, where a clean stop left the log end: it"
            " belongs to another log, and is set aside with the suffix %s",
            self._topic_partition, segment.base_offset, self._directory, end, suffix,
        )  # fmt: skip

    def _set_aside(self, segment: LogSegment) -> str:
        """Removes one segment from the log; returns its new suffix."""
        suffix = set_segments_aside(self._disk, self._directory, [segment])
        self._segments.remove(segment)
        self._witnesses.remove(segment.base_offset)
        before = self._segments.floor(segment.base_offset)
        if before is not None:
            # Batches above the lower limit may have counted as damage.
            before.damage.forget_from(0)
        return suffix
