"""The segment files of a partition directory before loading: finds, opens, checks, splits them.

An index without its log is removed. Of each segment the indexes must be there, and the transaction
index must prove itself, or they are made again from the batches.
"""

import contextlib
import logging
import os
from collections.abc import Sequence

from odradek.errors import CorruptIndexError
from odradek.storage import paths
from odradek.storage.directories.closed_logs import ClosedSegment
from odradek.storage.indexes.transaction_index import TransactionIndex
from odradek.storage.log.config import LogConfig
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.log.services import LogServices
from odradek.storage.recovery.interrupted_swaps import SegmentContent
from odradek.storage.segments.replacement import split_segment, swap_segments
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["SegmentFiles"]

logger = logging.getLogger(__name__)


class SegmentFiles:
    """Opens and makes the segments of one directory."""

    def __init__(self, directory: str, *, config: LogConfig, services: LogServices) -> None:
        self._directory = directory
        self._config = config
        self._services = services
        self._disk = services.disk

    def names(self) -> list[str]:
        """All files of the directory, in order."""
        with os.scandir(self._directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())

    def bases(self, names: Sequence[str]) -> list[int]:
        """Base offsets of the segments among these files; an index without a segment is removed."""
        present = set(names)
        bases: list[int] = []
        for name in names:
            base = paths.offset_from_name(name)
            if base is None:
                continue
            if name.endswith(paths.INDEX_SUFFIXES):
                if f"{base:020d}{paths.LOG_SUFFIX}" not in present:
                    path = os.path.join(self._directory, name)
                    logger.warning("removing the index %s: it has no log", path)
                    self._disk.unlink(path)
            elif name.endswith(paths.LOG_SUFFIX):
                bases.append(base)
        return bases

    # One segment

    def open(self, base: int, stage: str = "") -> LogSegment:
        return LogSegment(
            self._directory,
            base,
            config=self._config,
            disk=self._disk,
            now_ms=self._services.clock.now_ms(),
            roll_jitter_ms=self._roll_jitter_ms(),
            stage=stage,
        )

    def create(self, base: int) -> LogSegment:
        return LogSegment(
            self._directory,
            base,
            config=self._config,
            disk=self._disk,
            now_ms=self._services.clock.now_ms(),
            roll_jitter_ms=self._roll_jitter_ms(),
            create=True,
        )

    def _roll_jitter_ms(self) -> int:
        jitter = min(self._config.segment_jitter_ms, self._config.roll_ms)
        return self._services.random.randrange(jitter) if jitter > 0 else 0

    def content_of(self, base: int, stage: str) -> SegmentContent:
        """The content of a segment that is not opened yet, by a walk over its batches."""
        segment = self.open(base, stage)
        try:
            walk = segment.walk()
            count = sum(1 for _ in walk)
            is_sound = not len(segment.damage) and walk.good_end == segment.size
            return SegmentContent(walk.next_offset, count > 0, is_sound)
        finally:
            segment.close_handles()

    # Indexes

    def problem_of_indexes(
        self, segment: LogSegment, present: frozenset[str], closed: ClosedSegment | None = None
    ) -> str | None:
        """Why the indexes of a segment have to be rebuilt; None if they are usable.

        No index is mapped, for there may be thousands.

        Args:
            segment: Whose indexes they are.
            present: The files of the directory.
            closed: The segment as the last stop left it; None if that is not known.
        """
        is_known = closed is not None and closed.transaction_bytes >= 0
        try:
            if closed is not None and is_known:
                _compare_transaction_index(segment, closed)
            if os.path.basename(segment.offset_index.path) not in present:
                return "the offset index is missing"
            if os.path.basename(segment.time_index.path) not in present:
                self._disk.close(self._disk.open(segment.time_index.path, os.O_WRONLY | os.O_CREAT))
            if not is_known:
                _check_transaction_index(segment)
        except CorruptIndexError as error:
            return str(error)
        return None

    def stand_in(self, closed: ClosedSegment) -> bool:
        """Creates an empty segment in place of one whose log file is gone; false if not needed.

        Its transaction index names aborted records of the segments before it, so it is needed, if
        it is as the last stop left it.
        """
        path = paths.segment_path(
            self._directory, closed.base_offset, paths.TRANSACTION_INDEX_SUFFIX
        )
        index = TransactionIndex(path, closed.base_offset, disk=self._disk)
        if closed.transaction_bytes <= 0 or not index.holds(*closed[2:]):
            return False
        for suffix in (paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(paths.segment_path(self._directory, closed.base_offset, suffix))
        self.create(closed.base_offset).close_handles()
        self._disk.fsync_dir(self._directory)
        return True

    # Overflow

    def split(self, segment: LogSegment, segments: LogSegments, witnesses: RollWitnesses) -> None:
        """Replaces a segment whose offsets overflow by several segments."""
        parts = split_segment(
            segment,
            directory=self._directory,
            config=self._config,
            disk=self._disk,
            now_ms=self._services.clock.now_ms(),
        )
        for replaced in swap_segments(
            segments,
            parts,
            [segment],
            witnesses=witnesses,
            disk=self._disk,
            directory=self._directory,
        ):
            replaced.delete_if_exists()


def _compare_transaction_index(segment: LogSegment, closed: ClosedSegment) -> None:
    """Compares the file with the record of the last stop, which has a checksum of its own."""
    index = segment.transaction_index
    if not index.holds(closed.transaction_bytes, closed.transaction_crc):
        index.distrust()
        raise CorruptIndexError(
            f"transaction index {index.path}: it is not that of {closed.transaction_bytes} bytes,"
            f" CRC {closed.transaction_crc:08x}, which the last stop left"
        )
    if closed.transaction_bytes:
        index.seal()


def _check_transaction_index(segment: LogSegment) -> None:
    """Compares the file with its proof; without one with the markers that its entries name."""
    index = segment.transaction_index
    if index.sanity_check() or not index.has_entries:
        return
    for transaction in index.all_entries():
        place = segment.translate_offset(transaction.last_offset)
        if (
            place is None
            or place.header.base_offset != transaction.last_offset
            or place.header.producer_id != transaction.producer_id
            or not place.header.is_control
        ):
            raise CorruptIndexError(
                f"transaction index {index.path}: no marker bears out {transaction}"
            )
    index.seal()
