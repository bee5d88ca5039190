"""Replaces old segments by new ones, so that a crash leaves either the old or the new set.

The order of renames makes it safe (`loader` reads it backwards), and the sync of the names after
each step:

1. the new segments are complete and synced as `.cleaned`; if there is only one, the name of an
   empty file says which segments it replaces (`interrupted_swaps`), until the swap is complete;
2. they become `.swap`, from the highest base down: as long as one `.cleaned` is left, every
   `.swap` at or above it belongs to an incomplete set and is dropped at the next start;
3. the old ones become `.deleted`;
4. the new ones lose their suffix;
5. the log reads from the new ones: records that they lack are never read again.

After a crash after 2 the next start completes the replacement; after an earlier crash it undoes it.

Renames and the log belong to the thread that owns the log. A sync may take long, so it may run on
another thread, and the log is used meanwhile: it reads from the old segments, whatever their names.
Code that changes the files of the log in another way calls `finish` before.
"""

import contextlib
import logging
import os
from collections.abc import Callable

from odradek.files import Disk
from odradek.records.batch import CURRENT_MAGIC, NO_TIMESTAMP
from odradek.storage.log.config import INT32_MAX, LogConfig
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.paths import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    replaced_path,
)
from odradek.storage.segments.file_slice import FileSlice
from odradek.storage.segments.scan import CHUNK_BYTES
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["SegmentSwap", "split_segment", "swap_segments"]

logger = logging.getLogger(__name__)

_STEPS = 4  # Of a swap.


class SegmentSwap:
    """A replacement in progress: `step`, sync the directory, `step`, … until it is done.

    Args:
        segments: The log's map.
        new: Complete and flushed, as `.cleaned`; none, if the old ones are only removed.
        old: The segments to replace; those that left the map meanwhile are ignored.
        witnesses: Those of the log; those of the replaced segments are removed.
        disk: Where the files live.
        directory: The partition directory.
        on_done: Called when the replacement is complete, with the old segments, whose files (now
            `.deleted`) the caller removes.

    Attributes:
        new: The new segments.
        directory: To be synced between the steps.
        is_done: Whether the log reads from the new ones.
    """

    __slots__ = (
        "_disk",
        "_notice",
        "_on_done",
        "_replaced",
        "_segments",
        "_steps",
        "_witnesses",
        "directory",
        "is_done",
        "new",
    )

    def __init__(
        self,
        segments: LogSegments,
        new: list[LogSegment],
        old: list[LogSegment],
        *,
        witnesses: RollWitnesses,
        disk: Disk,
        directory: str,
        on_done: Callable[[list[LogSegment]], None] | None = None,
    ) -> None:
        self.new = sorted(new, key=lambda segment: segment.base_offset)
        self.directory = directory
        self.is_done = False
        self._segments = segments
        self._replaced = [segment for segment in old if segment in segments]
        self._witnesses = witnesses
        self._disk = disk
        self._on_done = on_done
        self._notice: str | None = None  # The file whose name tells which segments are replaced.
        self._steps = [self._offer, self._put_old_aside, self._name_new, self._put_in_place]
        assert len(self._steps) == _STEPS
        if not new:
            self._steps[0] = self._forget_witnesses  # Without a `.swap` the loader does not do it.

    def step(self) -> bool:
        """Takes the next step; returns whether the directory has to be synced for another one.

        Raises:
            OSError: The disk refused, and the log cannot be used before the next start.
        """
        assert not self.is_done
        self._steps.pop(0)()
        return not self.is_done

    def finish(self) -> None:
        """Takes all remaining steps and syncs here, also if a sync runs on another thread.

        Raises:
            OSError: The disk refused, and the log cannot be used before the next start.
        """
        if self.is_done:
            return
        if len(self._steps) < _STEPS:  # The last one may not be synced yet.
            self._disk.fsync_dir(self.directory)
        while self.step():
            self._disk.fsync_dir(self.directory)

    def _offer(self) -> None:
        if len(self.new) == 1 and self._replaced:
            following = self._segments.higher(self._replaced[-1].base_offset)
            if following is not None:
                # Names of a directory become durable in order: it exists if the `.swap` does.
                self._notice = replaced_path(
                    self.directory, self.new[0].base_offset, following.base_offset
                )
                self._disk.close(self._disk.open(self._notice, os.O_WRONLY | os.O_CREAT))
        for segment in reversed(self.new):
            segment.change_stage(SWAP_SUFFIX)

    def _put_old_aside(self) -> None:
        self._forget_witnesses()
        for segment in self._replaced:
            segment.change_stage(DELETED_SUFFIX)

    def _name_new(self) -> None:
        for segment in self.new:
            segment.change_stage("")

    def _put_in_place(self) -> None:
        for segment in self._replaced:
            self._segments.remove(segment)
        for segment in self.new:
            self._segments.add(segment)
        if self._notice is not None:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(self._notice)
        self.is_done = True
        if self._on_done is not None:
            self._on_done(self._replaced)

    def _forget_witnesses(self) -> None:
        """Removes witnesses: the new segments are synced, and may end before the old ones did."""
        if not self._replaced:
            return
        kept = {segment.base_offset for segment in self.new}
        for segment in self._segments.from_offset(self._replaced[0].base_offset):
            if segment not in self._replaced:  # The one behind them.
                self._witnesses.remove(segment.base_offset)
                return
            if segment.base_offset not in kept:
                self._witnesses.remove(segment.base_offset)


def swap_segments(
    segments: LogSegments,
    new: list[LogSegment],
    old: list[LogSegment],
    *,
    witnesses: RollWitnesses,
    disk: Disk,
    directory: str,
) -> list[LogSegment]:
    """Replaces `old` by `new` on disk and in the map before it returns; see `SegmentSwap`.

    Returns:
        The old segments, renamed to `.deleted`, whose files the caller removes.

    Raises:
        OSError: The disk refused.
    """
    replaced: list[LogSegment] = []
    SegmentSwap(
        segments,
        new,
        old,
        witnesses=witnesses,
        disk=disk,
        directory=directory,
        on_done=replaced.extend,
    ).finish()
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
    """Copies damaged bytes, too; recovery decides about them."""
    segment.append(data, (), largest_offset=segment.base_offset, largest_timestamp=NO_TIMESTAMP)
