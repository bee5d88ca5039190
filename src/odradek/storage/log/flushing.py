"""Flushing a log: syncs its files, here or on a thread, and moves the recovery point.

A flush up to an offset syncs the files of every segment between the recovery point and it, then
their names; before them it writes the producer snapshots that rolls have begun there. Only then the
recovery point moves, and the witnesses of rolls (`roll_witnesses`) that it passed are removed.

A flush on another thread works on descriptors of its own: the log may roll, truncate or delete
these very segments meanwhile. So its result counts only for records that the log still has: up to
the log end, and up to the lowest truncation since the flush started::

    flush to 10 starts    truncate to 7    append 7, 8, 9    flush ends: the recovery point is 7
"""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.storage import paths
from odradek.storage.log.services import BackgroundTasks

if TYPE_CHECKING:
    from odradek.storage.log.log import Log

__all__ = ["Flusher"]

logger = logging.getLogger(__name__)


class _PendingFlush:
    """A flush that runs on another thread."""

    __slots__ = ("took_ms", "upto")

    def __init__(self, upto: int) -> None:
        # Recovery point once it is done. Lowered by truncations meanwhile.
        self.upto = upto
        self.took_ms = 0  # Set by the thread that syncs, read when it has ended.


class Flusher:
    """The flushes of one log.

    Attributes:
        last_flush_ms: When the last one ended.
    """

    __slots__ = ("_log", "_pending", "_watermarks", "_witnesses", "last_flush_ms")

    def __init__(self, log: "Log") -> None:
        self._log = log
        self._watermarks = log.watermarks
        self._witnesses = log.witnesses
        self._pending: list[_PendingFlush] = []
        self.last_flush_ms = log.services.clock.now_ms()

    def flush(self, upto: int) -> None:
        """Makes everything below `upto` durable before it returns.

        Raises:
            OSError: The disk refused; the recovery point did not move.
        """
        if upto > self._watermarks.recovery_point:
            flush = _PendingFlush(upto)
            self._work(flush)()
            self._flushed(flush)

    def schedule(
        self,
        upto: int,
        *,
        tasks: BackgroundTasks | None = None,
        on_done: Callable[[BaseException | None], None] | None = None,
    ) -> bool:
        """Makes everything below `upto` durable in the background.

        Args:
            upto: The end of the records to flush.
            tasks: Runs the flush, in place of those that run all flushes of the log.
            on_done: Called with the flush's error or None, after the log has been updated.

        Returns:
            Whether there was anything to flush; otherwise `on_done` is not called.

        Raises:
            OSError: The files could not be opened.
        """
        log = self._log
        if upto <= self._watermarks.recovery_point and not (
            log.producer_state.snapshots.unwritten(upto)
        ):
            return False
        directory = log.directory
        pending = _PendingFlush(upto)
        work = self._work(pending)
        self._pending.append(pending)

        def done(error: BaseException | None) -> None:
            self._pending.remove(pending)
            is_gone = log.directory != directory or not log.is_usable
            if isinstance(error, FileNotFoundError) and is_gone:
                logger.info("%s was renamed during a flush, whose result is ignored", directory)
            elif isinstance(error, OSError):
                log.fail("flush", error)
            elif error is None and log.is_usable:
                try:
                    self._flushed(pending)
                except OSError as failure:
                    log.fail("flush", failure)
            if on_done is not None:
                on_done(error)

        (tasks or log.services.tasks).submit(work, done)
        return True

    def limit(self, offset: int) -> None:
        """Limits pending flushes to `offset`: they do not cover records appended from there on."""
        for pending in self._pending:
            pending.upto = min(pending.upto, offset)

    def _flushed(self, flush: _PendingFlush) -> None:
        watermarks = self._watermarks
        # Never beyond the current end: the log may have been truncated since.
        reached = min(flush.upto, watermarks.end.message_offset)
        if reached > watermarks.recovery_point:
            watermarks.recovery_point = reached
        self.last_flush_ms = self._log.services.clock.now_ms()
        self._witnesses.remove_flushed(watermarks.recovery_point)
        if (on_flushed := self._log.services.on_flushed) is not None:
            on_flushed(flush.took_ms)

    def _work(self, flush: _PendingFlush) -> Callable[[], None]:
        """The syncs of a flush, as work that uses nothing but descriptors of its own."""
        disk, directory = self._log.services.disk, self._log.directory
        clock = self._log.services.clock
        leave_failure_mark = self._log.log_directory.leave_failure_mark
        snapshots = self._log.producer_state.snapshots.unwritten(flush.upto)
        names, has_new_names = self._files_below(flush.upto)
        descriptors: list[int] = []
        try:
            for name in names:
                try:
                    descriptors.append(disk.open(name, os.O_RDONLY))
                except FileNotFoundError:
                    if name.endswith(paths.LOG_SUFFIX):
                        raise
                    # An index or a snapshot can be rebuilt: this is no failure of the disk.
                    logger.warning("%s is missing; the next start rebuilds it", name)
        except OSError:
            for fd in descriptors:
                disk.close(fd)
            raise

        def work() -> None:
            started_ms = clock.monotonic_ms()
            try:
                for snapshot in snapshots:
                    snapshot.write()
                for fd in descriptors:
                    disk.fsync(fd)
            except OSError:
                # Here, because the process may die before its loop hears of the failure.
                leave_failure_mark()
                raise
            finally:
                for fd in descriptors:
                    disk.close(fd)
            if has_new_names or snapshots:
                disk.fsync_dir(directory)
            flush.took_ms = clock.monotonic_ms() - started_ms

        return work

    def _files_below(self, offset: int) -> tuple[list[str], bool]:
        """The files between recovery point and `offset`, and whether any of their names is new."""
        directory, recovery_point = self._log.directory, self._watermarks.recovery_point
        segments = self._log.segments.between(recovery_point, offset)
        # A roll makes a snapshot at the new base, the last one possibly just now.
        bases = {offset, *(s.base_offset for s in segments if s.base_offset > recovery_point)}
        names = [
            path
            for base in sorted(bases)
            for suffix in (paths.SNAPSHOT_SUFFIX, paths.RECENT_SUFFIX)
            if os.path.exists(path := paths.segment_path(directory, base, suffix))
        ]
        # The name of a transaction index may be younger than its segment.
        has_new_names = bool(names) or any(
            s.base_offset >= recovery_point or s.transaction_index.file_exists() for s in segments
        )
        for segment in segments:
            names.extend(segment.files())
        return names, has_new_names
