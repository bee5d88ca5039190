"""Future logs: the copies that are to replace the logs of partitions in other directories.

A move (`replication.directory_moves`) fills the future log from the current one and, when both end
at the same offset, puts it in the place of the current one. The order makes a crash harmless at
every point (`copies` has the rules of the next start):

1. the future log has all leader epochs of the current one and is synced as far as that is;
2. the file `replaces-current` is durable in it: from now on a start compares both logs;
3. `replace`, in one call while no request can come between: the future directory gets the live
   name, the current one that of a deleted partition, and the log here is the other one;
4. `finish_steps`: both names become durable, then checkpoints are written, then the file is
   removed. The files of the replaced log are removed after that, and stay if any of it fails.

The leaders' work goes on during all of it: before the third point records go to the current log,
after it to the other one. A current log that is truncated truncates its copy, too: `note_cut` keeps
the offset until the move has done so. Compaction leaves a log alone while it has a future one:
the copy then has the same records below the first dirty offset, which moves with them.

A wish for a partition that is not here yet is kept until its log is created.
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.files import remove_files, write_atomically
from odradek.model import TopicPartition
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.directories.partition_directories import (
    PartitionKind,
    PartitionRemoval,
    write_topic_id,
)
from odradek.storage.log.log import Log
from odradek.storage.log.services import LogServices, Steps
from odradek.storage.paths import REPLACEMENT_FILE
from odradek.storage.recovery.loader import load_log

__all__ = ["FutureLogs"]

logger = logging.getLogger(__name__)

# Wishes that are remembered; of more the oldest is dropped. A reassignment by Kafka's tool names
# the partitions of one plan.
_MOST_WISHES: Final = 16_384


class FutureLogs:
    """The future logs of a broker, and the directories wished for logs that do not exist yet.

    Args:
        services: The services that all logs share.
        live: The live logs by partition.
        add: Makes a live log available.
        removal: Removes the directories of replaced and given up logs.
        cleaner: Compaction, which leaves logs alone while they have a future one.

    Attributes:
        logs: By partition.
    """

    def __init__(
        self,
        services: LogServices,
        *,
        live: Mapping[TopicPartition, Log],
        add: Callable[[Log], None],
        removal: PartitionRemoval,
        cleaner: LogCleaner,
    ) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        self._services = services
        self._live = live
        self._add = add
        self._removal = removal
        self._cleaner = cleaner
        self._wishes: dict[TopicPartition, LogDirectory] = {}
        # The lowest truncation of the current log since that of the future one.
        self._cuts: dict[TopicPartition, int] = {}
        # Future logs that have the file `replaces-current`.
        self._marked: set[Log] = set()
        # Replaced logs that could not be put aside, with the reason.
        self._failures: dict[Log, OSError] = {}
        # Logs that know producers by the one that they replaced: their next snapshot is due.
        self._richer: set[Log] = set()

    # Wishes

    def wish(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Remembers where a partition is to be created."""
        self._wishes.pop(topic_partition, None)
        self._wishes[topic_partition] = directory
        if len(self._wishes) > _MOST_WISHES:
            del self._wishes[next(iter(self._wishes))]

    def take_wish(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """The wished directory, if it is online; the wish is over."""
        directory = self._wishes.pop(topic_partition, None)
        return directory if directory is not None and directory.is_online else None

    # Creating and giving up

    def create_steps(
        self, current: Log, directory: LogDirectory, topic_id: uuid.UUID | None
    ) -> Steps[Log]:
        """Creates the empty future log of a partition in another directory.

        Raises:
            StorageError: The directory failed.
            ApiError: Descriptors ran out, or the partition is gone.
            ValueError: The topic's name leaves no room for the name of the directory.
        """
        tp = current.topic_partition
        assert tp not in self.logs, f"{tp} has a future log"
        assert current.log_directory is not directory
        path = self._removal.unused_path(directory, tp, PartitionKind.FUTURE)
        made: list[Log] = []

        def create() -> None:
            log = load_log(
                path,
                tp,
                config=current.config,
                log_directory=directory,
                services=self._services,
            )
            made.append(log)
            if topic_id is not None:
                write_topic_id(self._services.disk, path, topic_id)

        try:
            yield create
        except OSError as error:
            for log in made:
                log.mark_offline("it was not created in full")
            if is_out_of_descriptors(error):
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{tp}: create: {error}; raise the limit on open files",
                ) from error
            raise directory.fail(f"create a future log ({tp})", error) from error
        [log] = made
        if (reason := directory.offline_reason) is not None:  # It failed meanwhile.
            log.mark_offline(reason)
            raise StorageError(directory.path, f"{tp}: offline because {reason}")
        directory.logs[log.name] = log
        if self._live.get(tp) is not current or tp in self.logs:
            yield from self._put_aside_steps([log])
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{tp} has changed meanwhile")
        self.logs[tp] = log
        self._cleaner.cancel(current)
        logger.info("%s: is copied from %s to %s", tp, current.log_directory.path, log.directory)
        return log

    def drop_steps(self, topic_partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Gives up the future logs of partitions; they are out of use when the first step begins.

        A directory that fails meanwhile is offline afterwards; the others are handled.
        """
        by_directory: dict[LogDirectory, list[Log]] = {}
        for tp in topic_partitions:
            self._wishes.pop(tp, None)
            self._cuts.pop(tp, None)
            log = self.logs.pop(tp, None)
            if log is not None and log.is_usable:
                log.retire("the move is given up")
                self._marked.discard(log)
                by_directory.setdefault(log.log_directory, []).append(log)
        for logs in by_directory.values():
            try:
                yield from self._put_aside_steps(logs)
            except StorageError as error:
                logger.warning("future logs are not deleted: %s", error)

    def _put_aside_steps(self, logs: list[Log]) -> Steps[None]:
        directory = logs[0].log_directory
        try:
            yield from self._removal.put_aside_steps(logs, PartitionKind.DELETED)
            # A later copy must not inherit offsets.
            yield partial(
                _run_all, [directory.prepare_recovery_points(), directory.prepare_log_starts()]
            )
        except OSError as error:
            raise directory.fail(f"give up {len(logs)} moves", error) from error

    # Truncations

    def note_cut(self, log: Log, offset: int) -> None:
        """Takes note that the current log of a partition is about to be truncated."""
        tp = log.topic_partition
        if tp in self.logs and self._live.get(tp) is log:
            self._cuts[tp] = min(offset, self._cuts.get(tp, offset))

    def take_cut(self, topic_partition: TopicPartition) -> int | None:
        """The offset at which the future log has to be truncated; None if it need not."""
        return self._cuts.pop(topic_partition, None)

    def has_cut(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._cuts

    # Replacing

    def is_prepared(self, topic_partition: TopicPartition) -> bool:
        """Whether the future log may replace the current one once it ends at the same offset."""
        future, current = self.logs[topic_partition], self._live[topic_partition]
        return (
            future in self._marked
            and future.leader_epochs.entries == current.leader_epochs.entries
            and not future.leader_epochs.is_dirty
            and future.recovery_point >= current.recovery_point
        )

    def prepare_steps(self, topic_partition: TopicPartition) -> Steps[None]:
        """Gives a future log the leader epochs of the current one, and its mark, durably.

        All records of the current log that the copy lacks are of the latest epoch.

        Raises:
            StorageError: The directory failed.
            ApiError: Descriptors ran out.
        """
        future, current = self.logs[topic_partition], self._live[topic_partition]
        epochs, path = future.leader_epochs, os.path.join(future.directory, REPLACEMENT_FILE)
        if epochs.entries != current.leader_epochs.entries:
            epochs.restore(current.leader_epochs.entries)
        try:
            yield epochs.flush
            if future not in self._marked and future.is_usable:
                yield partial(write_atomically, self._services.disk, path, b"version: 0\n")
        except OSError as error:
            if not future.is_usable:  # Given up meanwhile, and its directory renamed.
                return
            raise future.fail("prepare to replace the current log", error) from error
        self._marked.add(future)

    def replace(self, topic_partition: TopicPartition) -> tuple[Log, list[Callable[[], None]]]:
        """Puts the future log in the place of the current one; both end at the same offset.

        Returns the log that was current, and work for `finish_steps`, which the caller takes in the
        same turn, but after the partition has got its log: a directory that has failed here is
        taken offline there, with the partitions whose logs are in it then.

        Raises:
            StorageError: The directory of the future log failed; the current log stays.
        """
        current, future = self._live[topic_partition], self.logs[topic_partition]
        assert self.is_prepared(topic_partition)
        assert future.log_end_offset == current.log_end_offset
        disk, source, target = self._services.disk, current.log_directory, future.log_directory
        path = os.path.join(target.path, str(topic_partition))
        with target.guard(f"replace the current log ({topic_partition})"):
            disk.rename(future.directory, path)
        aside = self._removal.unused_path(source, topic_partition, PartitionKind.DELETED)
        failure: OSError | None = None
        try:
            disk.rename(current.directory, aside)
        except OSError as error:  # The next start compares both.
            failure = error
        first_dirty = self._cleaner.first_dirty.get(current)
        work = self._cleaner.first_dirty.forget([current])
        self._cleaner.forget(current)
        current.retire(f"it has moved to {target.path}")
        del source.logs[current.name]
        del target.logs[future.name]
        if failure is None:
            current.follow_directory(aside)
        source.logs[os.path.basename(aside)] = current
        future.follow_directory(path)
        target.logs[future.name] = future
        del self.logs[topic_partition]
        self._cuts.pop(topic_partition, None)
        self._marked.discard(future)
        self._take_over(current, future)
        self._add(future)
        if first_dirty is not None:
            work.append(self._cleaner.first_dirty.raise_to(future, first_dirty))
        logger.info("%s: moved from %s to %s", topic_partition, source.path, target.path)
        if failure is not None:
            self._failures[current] = failure
        return current, work

    def _take_over(self, current: Log, future: Log) -> None:
        """Gives a log the state of the one that it replaces and that is not in the records."""
        future.config = current.config
        future.on_append_rejected = current.on_append_rejected
        if future.producer_state.adopt(current.producer_state):
            self._richer.add(future)
        future.update_high_watermark(current.high_watermark)

    def finish_steps(self, before: Log, after: Log, work: list[Callable[[], None]]) -> Steps[None]:
        """Makes a replacement durable; only then may the replaced log be removed.

        Raises:
            StorageError: A directory failed.
        """
        disk, mark = self._services.disk, os.path.join(after.directory, REPLACEMENT_FILE)
        source, target = before.log_directory, after.log_directory
        if (failure := self._failures.pop(before, None)) is not None:
            source.fail(f"put the replaced log aside ({before.topic_partition})", failure)
        if after in self._richer:
            self._richer.discard(after)
            try:
                after.producer_state.begin_snapshot()
                for snapshot in after.producer_state.snapshots.unwritten(after.log_end_offset):
                    yield snapshot.write
            except OSError as error:
                after.fail("write a snapshot", error)
        for directory in (target, source):
            if not directory.is_online:
                continue
            try:
                yield partial(disk.fsync_dir, directory.path)
                yield partial(
                    _run_all, [directory.prepare_recovery_points(), directory.prepare_log_starts()]
                )
            except OSError as error:
                raise directory.fail("finish a move", error) from error
        if not (source.is_online and target.is_online):
            return  # The next start needs the mark.
        unfinished: Exception | None = None
        try:
            yield partial(_run_all, work)
            yield partial(remove_files, disk, [mark])
            yield partial(disk.fsync_dir, os.path.dirname(mark))
        except OSError as error:
            if after.is_usable:  # Else it was put aside meanwhile, and its directory renamed.
                unfinished = after.fail("finish a move", error)
        if source.is_online and target.is_online:  # Else it may be the only complete log.
            self._removal.forget_later(before, PartitionKind.DELETED)
        if unfinished is not None:
            raise unfinished


def _run_all(work: Iterable[Callable[[], None]]) -> None:
    for one in work:
        one()
