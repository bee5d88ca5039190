"""All logs of a broker, spread over its data directories.

A partition has one log, in one directory. The manager opens all logs at start, places a new
partition in the directory with the fewest, and runs the periodic work of all logs: retention,
checkpoints, flushing by age, expiry of producers, removal of deleted partitions.

It belongs to the thread that owns the logs. Nothing here awaits: `start` puts the periodic work on
`BackgroundTasks`, and the same methods can be called one by one. Creating and deleting partitions
waits for the disk, so both are `Steps` (`storage.log.services`), and their names end so.

When a directory fails, its logs leave the manager at once; `get_log` of one of them raises
`StorageError` from then on, and the other directories are not affected. A failed directory stays
offline until the broker is started again.

Duties of the caller, in order: `startup` or its two halves, `start`, work, wait for submitted
background work, `shutdown`. The last one also follows a `startup` that raised.
"""

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.storage.cleaning.cleaner import LogCleaner
from odradek.storage.directories.copies import settle_copies
from odradek.storage.directories.future_logs import FutureLogs
from odradek.storage.directories.lifecycle import (
    close_directory,
    find_partitions,
    load_logs,
    take_directories,
)
from odradek.storage.directories.log_directory import LogDirectory, is_out_of_descriptors
from odradek.storage.directories.partition_directories import (
    PartitionDirectory,
    PartitionKind,
    PartitionRemoval,
    write_topic_id,
)
from odradek.storage.log.config import INT64_MAX, LogConfig, LogManagerConfig
from odradek.storage.log.expansion import InlineBudget
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.log.services import BackgroundTasks, LogServices, Steps, run_here
from odradek.storage.recovery.loader import load_log

__all__ = ["LogManager"]

logger = logging.getLogger(__name__)

# Logs per turn of the loop in periodic work; each takes some 10 us.
_LOGS_PER_TURN: Final = 50
# Steps of a swap of segments take a sync each; retention is not urgent.
_UNTIL_SWAPPED_MS: Final = 1_000


class LogManager:
    """The logs of a broker.

    Args:
        data_directories: Paths, as in `log.dirs`; created where missing.
        config: Intervals and threads.
        default_log_config: For topics without settings of their own.
        topic_config: Settings of a topic; None for the default. Called on loading threads, too.
        services: The services that all logs share.
        cleaner_tasks: Run compaction; without them, those of all background work do.
        on_directory_failed: Called once for each directory that fails after the start, when its
            logs have left the manager.
        on_all_directories_failed: Called after it when that was the last directory: the broker
            cannot serve any partition and has to stop.
    """

    def __init__(
        self,
        data_directories: Sequence[str],
        *,
        services: LogServices,
        config: LogManagerConfig | None = None,
        default_log_config: LogConfig | None = None,
        topic_config: Callable[[str], LogConfig | None] | None = None,
        cleaner_tasks: BackgroundTasks | None = None,
        on_directory_failed: Callable[[LogDirectory], None] | None = None,
        on_all_directories_failed: Callable[[], None] | None = None,
    ) -> None:
        self.default_log_config = default_log_config or LogConfig()
        # In the order of `log.dirs`, offline ones included; empty before `startup`.
        self.directories: list[LogDirectory] = []
        self._paths = list(data_directories)
        self._contents: dict[LogDirectory, list[PartitionDirectory]] = {}  # As `load` found them.
        self._services = services
        self._config = config or LogManagerConfig()
        self._topic_config = topic_config
        self._on_directory_failed = on_directory_failed
        self._on_all_directories_failed = on_all_directories_failed
        self._logs: dict[TopicPartition, Log] = {}
        # Partitions whose directory failed since the start, with that directory.
        self._lost: dict[TopicPartition, LogDirectory] = {}
        # Directories of logs that are being created; they count when the next one is placed.
        self._being_created: dict[TopicPartition, LogDirectory] = {}
        self._removal = PartitionRemoval(services)
        self.cleaner = LogCleaner(
            services=services,
            config=self._config.cleaner,
            logs=lambda: [log for tp, log in self._logs.items() if tp not in self.futures.logs],
            tasks=cleaner_tasks,
        )
        self.futures = FutureLogs(
            services, live=self._logs, add=self._add, removal=self._removal, cleaner=self.cleaner
        )
        self._is_stopped = False

    @property
    def tasks(self) -> BackgroundTasks:
        """The tasks that run blocking work."""
        return self._services.tasks

    @property
    def inline_budget(self) -> InlineBudget:
        """How many bytes the appends of one request may expand on the loop."""
        return self._services.inline_budget

    # Start and stop

    def startup(self) -> None:
        """Locks the directories, opens their logs and serves them: `load`, `take_into_service`.

        Raises:
            OdradekError: As `load`.
        """
        self.load()
        self.take_into_service()

    def load(self) -> None:
        """Locks the directories and opens their logs; on any thread while the owner waits.

        Raises:
            ConfigError: A directory is named twice, or a partition is in two of them.
            LogDirLockedError: Another broker has locked one of them.
            StorageError: No directory can be used, or descriptors ran out.
        """
        self.directories = take_directories(self._paths, disk=self._services.disk)
        self._contents = find_partitions(self.directories)
        load_logs(
            self._contents,
            config_for=self._config_for,
            services=self._services,
            threads_per_directory=self._config.recovery_threads_per_data_dir,
        )
        settle_copies(self._contents, self.directories, self._services)

    def take_into_service(self) -> None:
        """Makes the logs that `load` has opened available."""
        for directory, partitions in self._contents.items():
            if not directory.is_online:
                continue
            try:
                self.cleaner.first_dirty.load(directory, directory.live_logs())
            except StorageError as error:
                logger.debug("%s", error)
                continue
            directory.on_failure = self._handle_failure
            for name, topic_partition, kind in partitions:
                path = os.path.join(directory.path, name)
                if kind is PartitionKind.LIVE:
                    self._add(directory.logs[name])
                elif kind is PartitionKind.FUTURE:
                    self.futures.logs[topic_partition] = directory.logs[name]
                elif kind is PartitionKind.DELETED:
                    delay_ms = self._config_for(topic_partition.topic).file_delete_delay_ms
                    self._removal.remove_later(directory, path, delay_ms)
                else:
                    logger.warning("%s is a stray partition and is not served", path)

    def start(self) -> None:
        """Begins the periodic work."""
        config = self._config
        self._repeat(lambda: self._spread(self._retain), config.retention_check_interval_ms)
        self._repeat(lambda: self._spread(self._flush_dirty), config.flush_scheduler_interval_ms)
        self._repeat(self.checkpoint_recovery_points, config.flush_offset_checkpoint_interval_ms)
        self._repeat(self.checkpoint_log_starts, config.flush_start_offset_checkpoint_interval_ms)
        self._repeat(self.remove_expired_producers, config.producer_id_expiration_check_interval_ms)
        self.cleaner.start()

    def _repeat(self, action: Callable[[], object], interval_ms: int) -> None:
        tasks = self._services.tasks

        def run() -> None:
            if self._is_stopped:
                return
            try:
                action()
            finally:
                tasks.call_later(interval_ms, run)

        if interval_ms < INT64_MAX:
            tasks.call_later(self._config.initial_task_delay_ms, run)

    def stop_cleaning(self) -> None:
        """Cancels compaction, so that the caller need not wait long for background work."""
        self.cleaner.stop()

    def use_recovery_threads(self, count: int) -> None:
        """Sets how many logs of a directory are opened, or closed, at once."""
        self._config = replace(self._config, recovery_threads_per_data_dir=count)

    def verify_transactions(self, *, is_on: bool) -> None:
        """Sets whether a transaction is verified before its first batch, from the next one on."""
        self._services.verification_switch.is_on = is_on

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Closes the logs and unlocks the directories; also after a failed `startup`.

        Args:
            broker_epoch: Written into the clean-shutdown marker.
        """
        self._is_stopped = True
        self.cleaner.stop()
        threads = self._config.recovery_threads_per_data_dir

        def closers() -> Executor:
            return self._services.threads(threads, "log-closer")

        with ExitStack() as stack:  # A failure in one does not keep the others open.
            for directory in reversed(self.directories):
                directory.on_failure = None
                stack.callback(
                    close_directory,
                    directory,
                    closers=closers,
                    broker_epoch=broker_epoch,
                )
        self._logs.clear()
        self.futures.logs.clear()

    # Failing

    @property
    def online_directories(self) -> list[LogDirectory]:
        """The directories that serve, in the order of `log.dirs`."""
        return [directory for directory in self.directories if directory.is_online]

    def _handle_failure(self, directory: LogDirectory) -> None:
        for logs in (self._logs, self.futures.logs):
            gone = [tp for tp, log in logs.items() if log.log_directory is directory]
            for topic_partition in gone:
                del logs[topic_partition]
                if logs is self._logs:
                    self._lost[topic_partition] = directory
        directory.logs.clear()
        self.cleaner.handle_directory_failure(directory)
        if self._on_directory_failed is not None:
            self._on_directory_failed(directory)
        if not self.online_directories and self._on_all_directories_failed is not None:
            self._on_all_directories_failed()

    # Finding and placing

    def _add(self, log: Log) -> None:
        """Makes a live log available."""
        log.before_truncation = self._before_truncation
        log.before_removal = self.cleaner.before_removal
        self._logs[log.topic_partition] = log

    def _before_truncation(self, log: Log, offset: int) -> None:
        self.cleaner.before_truncation(log, offset)
        self.futures.note_cut(log, offset)

    def find_directory(self, path: str) -> LogDirectory | None:
        """The data directory of a path, written as in `log.dirs` or as the system resolves it."""
        for configured, directory in zip(self._paths, self.directories, strict=True):
            if path in (directory.path, os.path.abspath(configured)):
                return directory
        return None

    def get_log(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition; None if there is none here.

        Raises:
            StorageError: Its directory failed.
        """
        log = self._logs.get(topic_partition)
        if log is None and (directory := self._lost.get(topic_partition)) is not None:
            raise StorageError(
                directory.path, f"{topic_partition}: offline because {directory.offline_reason}"
            )
        return log

    def get_future_log(self, topic_partition: TopicPartition) -> Log | None:
        """The future log of a partition: the copy that is to replace its log."""
        return self.futures.logs.get(topic_partition)

    def all_logs(self) -> list[Log]:
        """The live and the future logs at this moment."""
        return [*self._logs.values(), *self.futures.logs.values()]

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
    ) -> Log:
        """Takes the steps of `create_steps` on the calling thread, if there is no log yet."""
        log = self._logs.get(topic_partition)
        return log or run_here(self.create_steps(topic_partition, config, is_new=is_new))

    def create_steps(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
        topic_id: uuid.UUID | None = None,
    ) -> Steps[Log]:
        """Creates the log of a partition: where it is wished, or else where the fewest are.

        Args:
            topic_partition: The partition of the log.
            config: Settings of its topic, if the caller has them.
            is_new: The partition was never on this broker. Otherwise it is not created while a
                directory is offline, because its log may be there, and an empty log would replace
                it.
            topic_id: Of its topic, written into the partition directory.

        Raises:
            StorageError: Its log is, or may be, in an offline directory; or creating it failed.
            ApiError: Descriptors ran out.
        """
        assert topic_partition not in self._logs
        assert topic_partition not in self._being_created
        if not is_new:
            self.get_log(topic_partition)
            self._check_all_online(topic_partition)
        wished = self.futures.take_wish(topic_partition)
        directory = wished or self._emptiest_directory(topic_partition)
        name = str(topic_partition)
        path = os.path.join(directory.path, name)
        log_config = config or self._config_for(topic_partition.topic)
        made: list[Log] = []

        def create() -> None:
            log = load_log(
                path,
                topic_partition,
                config=log_config,
                log_directory=directory,
                services=self._services,
            )
            made.append(log)
            if topic_id is not None:
                write_topic_id(self._services.disk, path, topic_id)

        self._being_created[topic_partition] = directory
        try:
            yield create
        except OSError as error:
            for log in made:
                log.mark_offline("it was not created in full")
            if is_out_of_descriptors(error):
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{topic_partition}: create: {error}; raise the limit on open files",
                ) from error
            raise directory.fail(f"create ({topic_partition})", error) from error
        finally:
            del self._being_created[topic_partition]
        [log] = made
        if (reason := directory.offline_reason) is not None:  # It failed meanwhile.
            log.mark_offline(reason)
            raise StorageError(directory.path, f"{topic_partition}: offline because {reason}")
        directory.logs[name] = log
        self._add(log)
        self._lost.pop(topic_partition, None)
        logger.debug("%s: created in %s", topic_partition, directory.path)
        return log

    def _check_all_online(self, topic_partition: TopicPartition) -> None:
        for directory in self.directories:
            if not directory.is_online:
                raise StorageError(
                    directory.path,
                    f"{topic_partition} is not created: it may be in {directory.path}, which is"
                    f" offline because {directory.offline_reason}",
                )

    def _emptiest_directory(self, topic_partition: TopicPartition) -> LogDirectory:
        online = self.online_directories
        if not online:
            raise StorageError(
                self._paths[0], f"{topic_partition} is not created: no data directory is online"
            )
        if len(online) == 1:
            return online[0]
        counts = dict.fromkeys(online, 0)
        for log in self.all_logs():
            counts[log.log_directory] += 1
        for directory in self._being_created.values():
            if directory in counts:
                counts[directory] += 1
        return min(online, key=counts.__getitem__)

    # Settings

    def _config_for(self, topic: str) -> LogConfig:
        config = self._topic_config(topic) if self._topic_config is not None else None
        return config or self.default_log_config

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Replaces the settings of a topic's logs; sizes of files apply to the next file."""
        for log in self.all_logs():
            if log.topic_partition.topic == topic:
                log.config = config

    def renew_configs(self, is_changed: Callable[[str], bool]) -> Iterator[None]:
        """Applies the current settings to the logs of changed topics, one log at a time."""
        for log in self.all_logs():
            topic = log.topic_partition.topic
            if is_changed(topic):
                log.config = self._config_for(topic)
            yield

    # Deleting

    def delete_log(self, topic_partition: TopicPartition) -> bool:
        """Deletes one partition; see `delete_logs`."""
        return self.delete_logs([topic_partition]) == 1

    def delete_logs(self, topic_partitions: Iterable[TopicPartition]) -> int:
        """Takes the steps of `put_aside_steps` here; returns how many partitions existed.

        Raises:
            StorageError: A directory failed. Those of its partitions that were not deleted yet
                exist again once it is repaired.
        """
        return self._put_aside(topic_partitions, PartitionKind.DELETED)

    def mark_stray(self, topic_partition: TopicPartition) -> bool:
        """Takes a partition out of service that is not assigned to this broker; keeps its files.

        Raises:
            StorageError: The directory failed.
        """
        return self._put_aside([topic_partition], PartitionKind.STRAY) == 1

    def _put_aside(self, topic_partitions: Iterable[TopicPartition], kind: PartitionKind) -> int:
        logs = self.by_directory(topic_partitions)
        for here in logs.values():
            run_here(self.put_aside_steps(here, kind))
        return sum(map(len, logs.values()))

    def by_directory(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[LogDirectory, list[Log]]:
        """The logs of those of the partitions that exist here, by directory.

        Raises:
            StorageError: One of them is in a directory that failed.
        """
        found: dict[LogDirectory, list[Log]] = {}
        for topic_partition in topic_partitions:
            log = self.get_log(topic_partition)
            if log is not None:
                found.setdefault(log.log_directory, []).append(log)
        return found

    def put_aside_steps(self, logs: Sequence[Log], kind: PartitionKind) -> Steps[None]:
        """Takes partitions of one directory out of service; removes files after the delay.

        They are out of service when the first step begins. After the last step partitions of the
        same names can be created, and the old ones do not reappear after a crash. Their future logs
        are deleted before: without a live one, the next start would make a future one live.

        Raises:
            StorageError: The directory failed. Those partitions that were not put aside yet exist
                again once it is repaired.
        """
        [directory] = {log.log_directory for log in logs}
        for log in logs:
            log.check_usable()
        for log in logs:
            self.cleaner.forget(log)
            del self._logs[log.topic_partition]
        # A later partition of the same name must not inherit offsets: one write for all of them.
        checkpoints: list[Callable[[], None]] = []

        def write() -> None:
            for checkpoint in checkpoints:
                checkpoint()

        try:
            yield from self.futures.drop_steps(log.topic_partition for log in logs)
            yield from self._removal.put_aside_steps(logs, kind)
            checkpoints = [
                directory.prepare_recovery_points(),
                directory.prepare_log_starts(),
                *self.cleaner.first_dirty.forget(logs),
            ]
            yield write
        except OSError as error:
            raise directory.fail(f"put {len(logs)} partitions aside", error) from error
        finally:
            if not directory.is_online:
                self._lost.update((log.topic_partition, directory) for log in logs if log.is_live)

    # Periodic work

    def _each_log(self, action: Callable[[Log], object], logs: Iterable[Log] | None = None) -> None:
        """Runs `action` on every log; a failure affects only the directory of its log.

        A log that is being truncated has its turn the next time.
        """
        for log in self.all_logs() if logs is None else logs:
            if log.is_truncating:
                continue
            try:
                action(log)
            except (StorageError, ApiError) as error:
                logger.warning("%s: %s", log.topic_partition, error)

    def _spread(self, action: Callable[[Log], object]) -> None:
        """Runs `action` on every log as `_each_log`, but only some logs per turn of the loop.

        Logs that leave the manager meanwhile are skipped.
        """
        waiting = deque(self.all_logs())

        def run() -> None:
            if self._is_stopped:
                return
            portion = [waiting.popleft() for _ in range(min(len(waiting), _LOGS_PER_TURN))]
            self._each_log(action, [log for log in portion if log.is_usable])
            if waiting:
                self._services.tasks.call_later(0, run)

        run()

    def delete_expired_segments(self) -> int:
        """Applies retention to every log; returns the number of segments deleted."""
        deleted = 0

        def delete(log: Log) -> None:
            nonlocal deleted
            deleted += delete_old_segments(log)

        self._each_log(delete)
        return deleted

    def _retain(self, log: Log) -> None:
        """Applies retention to one log, a little later if a swap of segments is pending.

        To complete the swap here would sync the directory on this thread.
        """
        if log.pending_swap is None:
            delete_old_segments(log)
        else:
            self._services.tasks.call_later(_UNTIL_SWAPPED_MS, lambda: self._retain_again(log))

    def _retain_again(self, log: Log) -> None:
        if log.is_usable and not self._is_stopped:
            self._each_log(self._retain, [log])

    def flush_dirty_logs(self) -> None:
        """Begins to flush every log whose oldest unflushed data may be older than `flush.ms`."""
        self._each_log(self._flush_dirty)

    def _flush_dirty(self, log: Log) -> None:
        now_ms = self._services.clock.now_ms()
        if log.unflushed_messages and now_ms - log.last_flush_ms >= log.config.flush_ms:
            try:
                log.schedule_flush(log.log_end_offset)
            except OSError as error:
                raise log.fail("flush", error) from error

    def remove_expired_producers(self) -> None:
        """Begins to drop producers that have been idle for too long."""
        self._spread(lambda log: log.producer_state.remove_expired(self._services.clock.now_ms()))

    def checkpoint_recovery_points(self) -> None:
        """Begins to write the recovery points of every directory."""
        self._each_directory(lambda d: d.checkpoint_recovery_points(self._services.tasks))

    def checkpoint_log_starts(self) -> None:
        """Begins to write the log starts of every directory."""
        self._each_directory(lambda d: d.checkpoint_log_starts(self._services.tasks))

    def _each_directory(self, action: Callable[[LogDirectory], None]) -> None:
        for directory in self.online_directories:
            try:
                action(directory)
            except StorageError as error:
                logger.debug("%s", error)
