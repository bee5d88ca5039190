"""The log cleaner: chooses logs that are due and compacts each of them, one pass at a time.

The thread that owns the logs decides, renames and replaces; another thread reads, filters, writes
and syncs (`work`)::

    owner    plan -.      .-             .- rename -.    .- rename -.    .- rename -.    .- in place
    thread         flush    keys, group 1            sync            sync            sync  group 2 …

A pass drops records because of later ones, and replaces segments durably. So all records that it
reads are flushed first: otherwise a crash could lose the newer record of a key, or the marker that
committed it, after the older one was dropped.

While a pass runs, the log may lose records. Every such change (truncation, deletion of the
partition or of segments, failure of the directory, the end of the broker) cancels the pass: its new
segment is removed, the old ones stay. A swap in progress (`replacement`) is completed before
anything else happens to the log (`Log.settle`). Groups that have been replaced already stay so:
compacting them again changes nothing.

| failure                                | consequence                                            |
|----------------------------------------|--------------------------------------------------------|
| a damaged batch, keys that do not fit  | the partition is uncleanable until the next start, the |
|                                        | latter also until there is more room                   |
| a segment left the log meanwhile       | the pass counts as cancelled, whatever its error       |
| the disk                               | the data directory goes offline                        |
| no descriptors, no memory              | the partition is tried again after the backoff         |
| a cancelled segment cannot be removed  | the data directory goes offline: the next start undoes |
|                                        | every swap above a `.cleaned`                          |
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from odradek.errors import OdradekError, StorageError
from odradek.model import TopicPartition
from odradek.records.key_table import SECRET_SIZE
from odradek.storage.cleaning.batch_filter import LastRecord
from odradek.storage.cleaning.checkpoint import FirstDirtyOffsets
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.cleaning.plan import (
    Cleanable,
    SourceSegment,
    choose,
    find_cleanable,
    list_sources,
)
from odradek.storage.cleaning.stats import CleanerStats
from odradek.storage.cleaning.throttle import Throttle
from odradek.storage.cleaning.work import (
    CleaningCancelledError,
    CleaningPass,
    LeftBehindError,
    PassPlan,
    TableTooSmallError,
)
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.log.log import Log
from odradek.storage.log.removal import delete_files, delete_files_later
from odradek.storage.log.services import BackgroundTasks, LogServices
from odradek.storage.segments.replacement import SegmentSwap
from odradek.storage.segments.segment import LogSegment

__all__ = ["LogCleaner"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Running:
    """A running pass, as the owner of the log sees it."""

    log: Log
    cleaning: CleaningPass
    started_ms: int
    groups_done: int = 0
    # The thread's result for the owner: a segment to put in place, or the error.
    segment: LogSegment | None = None
    error: BaseException | None = None


class LogCleaner:
    """Compacts the logs whose `cleanup.policy` contains `compact`.

    Args:
        services: The services that all logs share; its timers wake the cleaner.
        config: Threads, memory, rate.
        logs: Returns the current logs to choose from.
        tasks: Run the passes; a pass takes long, so it should not share threads with flushes.

    Attributes:
        first_dirty: How far each log is clean.
        stats: Figures for operators.
        uncleanable: Partitions that are skipped, and why.
    """

    def __init__(
        self,
        *,
        services: LogServices,
        config: CleanerConfig,
        logs: Callable[[], Iterable[Log]],
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self.first_dirty = FirstDirtyOffsets(services.disk)
        self.stats = CleanerStats(services.clock)
        self.uncleanable: dict[TopicPartition, str] = {}
        self._services = services
        self._config = config
        self._logs = logs
        self._tasks = tasks or services.tasks
        self._throttle = Throttle(services.clock, config.io_max_bytes_per_second)
        self._running: dict[TopicPartition, _Running] = {}
        # Uncleanable because of a batch with more keys than the table has room for.
        self._short_of_room: set[TopicPartition] = set()
        # Partitions that are skipped until the next backoff is over.
        self._resting: set[TopicPartition] = set()
        self._is_stopped = False
        self._is_choosing = False
        self._is_timer_set = False
        self._timer_number = 0  # Of the last one that was set.

    # Life

    @property
    def config(self) -> CleanerConfig:
        """Its settings; a change applies to the next pass, that of rate or backoff at once."""
        return self._config

    @config.setter
    def config(self, config: CleanerConfig) -> None:
        before, self._config = self._config, config
        self._throttle.bytes_per_second = config.io_max_bytes_per_second
        if config.most_keys > before.most_keys:
            for topic_partition in self._short_of_room:
                self.uncleanable.pop(topic_partition, None)
            self._short_of_room.clear()
        is_waiting_anew = self._is_timer_set and config.backoff_ms != before.backoff_ms
        if is_waiting_anew:
            self._is_timer_set = False
            self._wait()

    def start(self) -> None:
        """Looks for work, again and again, from the first backoff on."""
        self._wait()

    def stop(self) -> None:
        """Begins no more passes and cancels running ones; the caller waits for their end."""
        self._is_stopped = True
        for running in self._running.values():
            running.cleaning.cancelled.set()
            try:
                running.log.settle()
            except StorageError as error:
                logger.debug("%s: %s", running.log.topic_partition, error)

    @property
    def is_idle(self) -> bool:
        return not self._running

    # What happens to logs

    def before_truncation(self, log: Log, offset: int) -> None:
        """Prepares for the removal of all records from `offset` on.

        Raises:
            StorageError: The disk failed; the truncation must not happen.
        """
        self.cancel(log)
        self.first_dirty.lower(log, offset)

    def before_removal(self, log: Log, segments: Sequence[LogSegment]) -> None:
        """Cancels a pass over segments that are about to be removed from the log."""
        running = self._running.get(log.topic_partition)
        # A segment that was cleaned already is not the one that the pass has begun with.
        if (
            running is not None
            and running.log is log
            and any(source.segment in segments for source in running.cleaning.plan.sources)
        ):
            running.cleaning.cancelled.set()

    def forget(self, log: Log) -> None:
        """Drops all state of a log that is deleted; another one of its name may be created.

        The caller removes its entry of `first_dirty`.
        """
        self.cancel(log)
        self.uncleanable.pop(log.topic_partition, None)
        self._short_of_room.discard(log.topic_partition)

    def handle_directory_failure(self, directory: LogDirectory) -> None:
        """Drops all state of the logs of a directory that failed."""
        for running in self._running.values():
            if running.log.log_directory is directory:
                running.cleaning.cancelled.set()

    def cancel(self, log: Log) -> None:
        """Cancels a pass over a log, which may be the next one again."""
        running = self._running.get(log.topic_partition)
        if running is not None and running.log is log:
            running.cleaning.cancelled.set()

    # Choosing

    def run(self) -> None:
        """Begins passes while logs are due and threads free; otherwise sets a timer."""
        if self._is_stopped or self._is_choosing or not self._config.enable:
            return
        self._is_choosing = True  # A pass may end before `_begin` returns.
        try:
            while len(self._running) < self._config.threads:
                cleanable = self._choose()
                if cleanable is None:
                    break
                self._begin(cleanable)
        finally:
            self._is_choosing = False
        self._wait()

    def _wait(self) -> None:
        if self._is_timer_set or self._is_stopped:
            return
        self._is_timer_set = True
        self._timer_number += 1
        number = self._timer_number

        def wake() -> None:
            if number != self._timer_number:
                return  # The backoff was changed meanwhile, and another timer set.
            self._is_timer_set = False
            self._resting.clear()
            self.run()
            self._wait()

        self._services.tasks.call_later(self._config.backoff_ms, wake)

    def _choose(self) -> Cleanable | None:
        found = self.find(lambda tp: tp not in self._running and tp not in self.uncleanable)
        self.stats.looked(found)
        return choose(c for c in found if c.log.topic_partition not in self._resting)

    def find(self, is_wanted: Callable[[TopicPartition], bool]) -> list[Cleanable]:
        """The cleanable parts of those compacted logs that are wanted."""
        now_ms = self._services.clock.now_ms()
        found = []
        for log in list(self._logs()):
            if not (
                log.config.cleanup_compact
                and log.is_usable
                and not log.is_truncating
                and is_wanted(log.topic_partition)
            ):
                continue
            try:
                found.append(find_cleanable(log, self.first_dirty.get(log), now_ms))
            except OSError as error:
                logger.warning("%s: %s", log.topic_partition, log.fail("clean", error))
        return found

    # One pass

    def _begin(self, cleanable: Cleanable) -> None:
        log = cleanable.log
        try:
            plan = self._plan(cleanable)
        except OSError as error:
            self._judge(log, error)
            return
        cleaning = CleaningPass(plan, self._services.disk, self._config, self._throttle)
        running = _Running(log, cleaning, self._services.clock.monotonic_ms())
        self._running[log.topic_partition] = running
        logger.debug(
            "%s: cleaning offsets %d to %d",
            log.topic_partition, plan.first_dirty_offset, plan.first_uncleanable_offset,
        )  # fmt: skip
        self._flush(running)

    def _plan(self, cleanable: Cleanable) -> PassPlan:
        log, end = cleanable.log, cleanable.first_uncleanable_offset
        first = log.segments.first
        assert first is not None
        return PassPlan(
            name=str(log.topic_partition),
            directory=log.directory,
            config=log.config,
            sources=list_sources(log, end),
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=end,
            aborted=log.collect_aborted_transactions(first.base_offset, end),
            last_records={
                producer_id: LastRecord(
                    entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch
                )
                for producer_id, entry in log.producer_state.producers.items()
            },
            now_ms=self._services.clock.now_ms(),
            secret=self._services.random.randbytes(SECRET_SIZE),
        )

    def _flush(self, running: _Running) -> None:
        """Syncs all records that the pass may decide by, before its first step.

        That is up to the log end: the marker of a transaction may lie far behind its records.
        """
        log = running.log

        def on_done(error: BaseException | None) -> None:
            if error is not None:
                self._end(running, error)
            else:
                self._step(running)

        try:
            is_flushing = log.flusher.schedule(
                log.log_end_offset, tasks=self._tasks, on_done=on_done
            )
        except OSError as error:
            self._end(running, error)
            return
        if not is_flushing:
            self._step(running)

    def _step(self, running: _Running) -> None:
        """Cleans the next group, on a thread; before the first one it reads the keys."""
        cleaning, now_ms = running.cleaning, self._services.clock.now_ms()

        def work() -> None:
            try:
                if not cleaning.groups:
                    cleaning.read_keys()
                group = cleaning.groups[running.groups_done]
                running.segment = cleaning.clean(group, now_ms)
            except (OdradekError, OSError, MemoryError) as error:
                running.error = error

        self._tasks.submit(work, lambda error: self._stepped(running, error))

    def _stepped(self, running: _Running, error: BaseException | None) -> None:
        segment, running.segment = running.segment, None
        error = running.error or error
        log, cleaning = running.log, running.cleaning
        if isinstance(error, LeftBehindError) and log.is_usable:
            error = log.fail_halfway("clean", error.error)
        if error is not None:
            self._end(running, error)
            return
        assert segment is not None
        group = cleaning.groups[running.groups_done]
        if cleaning.cancelled.is_set() or not (log.is_usable and _is_untouched(log, group)):
            self._end(running, _remove(log, segment) or _changed(log))
            return
        new = [segment]
        if not segment.size and group[0].segment is not log.segments.first:
            # No record is left, and the segment before it covers the gap.
            new = []
            failure = _remove(log, segment)
            if failure is not None:
                self._end(running, failure)
                return

        def on_done(replaced: list[LogSegment]) -> None:
            log.pending_swap = None
            running.groups_done += 1
            self._remove_later(log, replaced)

        log.pending_swap = swap = SegmentSwap(
            log.segments,
            new,
            [source.segment for source in group],
            witnesses=log.witnesses,
            disk=self._services.disk,
            directory=log.directory,
            on_done=on_done,
        )
        self._swap(running, swap)

    def _swap(self, running: _Running, swap: SegmentSwap) -> None:
        """Takes a step of the swap, and syncs it on a thread."""
        try:
            is_sync_due = swap.step()
        except OSError as error:
            self._give_up(running, swap, error)
            return
        if not is_sync_due:
            self._go_on(running)
            return
        disk, directory = self._services.disk, swap.directory
        self._tasks.submit(
            lambda: disk.fsync_dir(directory), lambda error: self._synced(running, swap, error)
        )

    def _synced(self, running: _Running, swap: SegmentSwap, error: BaseException | None) -> None:
        log = running.log
        if isinstance(error, OSError) and log.is_usable and log.directory == swap.directory:
            self._give_up(running, swap, error)
        elif swap.is_done:  # `Log.settle` has completed it meanwhile.
            self._go_on(running)
        elif not log.is_usable:
            self._give_up(running, swap, _changed(log))
        elif error is None:
            self._swap(running, swap)
        else:  # The sync never ran: the threads have ended.
            try:
                log.settle()
            except StorageError as failure:
                self._give_up(running, swap, failure)
            else:
                self._go_on(running)

    def _give_up(self, running: _Running, swap: SegmentSwap, error: BaseException) -> None:
        """Abandons a swap; the next start completes it."""
        log = running.log
        if isinstance(error, OSError):
            error = log.fail_halfway("clean", error)
        log.pending_swap = None
        if not swap.is_done:
            for segment in swap.new:
                segment.close_handles()
        self._end(running, error)

    def _go_on(self, running: _Running) -> None:
        """Continues after a group was replaced."""
        if running.cleaning.cancelled.is_set():
            self._end(running, _changed(running.log))
        elif running.groups_done < len(running.cleaning.groups):
            self._step(running)
        else:
            work = self.first_dirty.raise_to(running.log, running.cleaning.end_offset)
            self._tasks.submit(work, lambda error: self._end(running, error))

    def _remove_later(self, log: Log, replaced: list[LogSegment]) -> None:
        """Removes the files once no reader can use them, and snapshots without a segment."""
        state = log.producer_state
        gone = [s.base_offset for s in replaced if log.segments.get(s.base_offset) is None]
        for base_offset in gone:
            state.snapshots.rename_deleted(base_offset)
        delete_files_later(log, replaced, gone)

    def _end(self, running: _Running, error: BaseException | None) -> None:
        log, cleaning = running.log, running.cleaning
        del self._running[log.topic_partition]
        if error is None:
            took_ms = self._services.clock.monotonic_ms() - running.started_ms
            stats = cleaning.stats
            self.stats.passed(stats, took_ms)
            logger.info(
                "%s: cleaned up to offset %d: %d bytes became %d, %d of %d records stayed, %d ms",
                log.topic_partition, cleaning.end_offset, stats.bytes_read, stats.bytes_written,
                stats.records_kept, stats.records_read, took_ms,
            )  # fmt: skip
            if stats.invalid_records:
                logger.warning(
                    "%s: dropped %d records without a key",
                    log.topic_partition, stats.invalid_records,
                )  # fmt: skip
            self.run()
        elif (
            cleaning.cancelled.is_set()
            or log.directory != cleaning.plan.directory
            or _has_lost_source(running)
        ):
            logger.info("%s: cleaning was cancelled", log.topic_partition)
            self.run()
        else:
            self._judge(log, error)

    def _judge(self, log: Log, error: BaseException) -> None:
        """Handles the failure of a pass."""
        if isinstance(error, CleaningCancelledError | StorageError) or not log.is_usable:
            logger.info("%s: cleaning ended: %s", log.topic_partition, error)
        elif isinstance(error, OSError) and not is_out_of_descriptors(error):
            logger.error("%s: cleaning failed: %s", log.topic_partition, log.fail("clean", error))
        elif isinstance(error, OSError | MemoryError):
            logger.error("%s: cleaning failed and is tried again: %s", log.topic_partition, error)
            self._resting.add(log.topic_partition)
        else:
            logger.error("%s: uncleanable until the next start: %s", log.topic_partition, error)
            self.uncleanable[log.topic_partition] = str(error)
            if isinstance(error, TableTooSmallError):
                self._short_of_room.add(log.topic_partition)
        self._wait()


def _is_untouched(log: Log, group: list[SourceSegment]) -> bool:
    return all(
        source.segment in log.segments
        and source.segment is not log.active
        and source.segment.size == source.size
        for source in group
    )


def _has_lost_source(running: _Running) -> bool:
    """Whether a segment that was still to be cleaned is not part of the log any more."""
    cleaning = running.cleaning
    groups = cleaning.groups[running.groups_done :] if cleaning.groups else [cleaning.plan.sources]
    return any(source.segment not in running.log.segments for group in groups for source in group)


def _changed(log: Log) -> CleaningCancelledError:
    return CleaningCancelledError(f"{log.topic_partition}: the log changed meanwhile")


def _remove(log: Log, segment: LogSegment) -> StorageError | None:
    """Removes a segment that is not put in place; returns the failure if it cannot be removed."""
    try:
        delete_files(log, segment)
    except OSError as error:
        segment.close_handles()
        if log.is_usable:
            return log.fail_halfway("clean", error)
        logger.debug("%s: left behind: %s", segment.path, error)
    return None
