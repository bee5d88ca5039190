"""Role changes ordered by a controller: lead, follow, stop, delete.

A request for a partition is checked in this order; the first case that applies decides, and only
the last two change anything:

1. its log directory is offline: 56;
2. the log here is of another topic id and the partition is not new: 103. Ids can be lost from the
   store, and to delete on such a request would empty all replicas at once;
3. the leader epoch does not exceed ours: 11, unless it is the same with a later version. The epoch
   of an earlier topic with the same name does not count;
4. this broker is not among the replicas: 3;
5. the log here is of another topic id and the partition is new: the log belongs to a deleted topic.
   It is set aside, never deleted;
6. the role is taken. A log is created if there is none, unless it may lie in a directory that is
   offline: 56.

Blocking work (logs, ids and epochs on disk) is yielded (`storage.background.Steps`), so that it
runs on threads, for several partitions at once. Requests are served meanwhile, and a partition
whose role is changing answers 6: it is `hosted` with that role after the last step, not before, and
one that led already stops leading before its next epoch is written. Only a role change changes
roles, and those of one partition run one after another; but a directory may fail at any time, so
after every step the partition, its epoch and its log are compared with what the step assumed.

**Why epochs are durable first.** The entry of a leader's epoch is durable before the role is taken,
hence before the first record of that epoch can be on disk (01 section 8.8): a crash would otherwise
leave records whose epoch is unknown, and a follower would not find where it diverged.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from odradek.clock import Clock
from odradek.errors import ApiError, CorruptCheckpointError, ErrorCode, StorageError
from odradek.lazy_dataclass import dataclass
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.image import PartitionState
from odradek.model import TopicPartition
from odradek.replication.high_watermarks import HighWatermarkCheckpoints
from odradek.replication.hosted import HostedPartitions
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.directories.partition_directories import (
    PartitionKind,
    read_topic_id,
    write_topic_id,
)
from odradek.storage.log.log import Log
from odradek.storage.log.services import Steps, run_beside

__all__ = ["RoleChanges"]

logger = logging.getLogger(__name__)

# Partitions whose roles are taken at the same time. Fewer than a broker has storage threads, so
# that a flush or a write of the store waits for one partition and not for all of them.
_CHANGES_AT_ONCE: Final = 3
# Marks an id that cannot be read; it equals no topic's id.
_UNREADABLE = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanges:
    """Gives roles to the partitions of a broker.

    Args:
        broker_id: This broker.
        max_lag_ms: replica.lag.time.max.ms.
        hosted: The partitions.
        log_manager: Opens and deletes the logs.
        high_watermarks: The checkpointed high watermarks of logs found on disk.
        stats: Meters.
        clock: For lag.
        min_insync_replicas: The setting of a topic.
        is_broker_alive: Whether metadata shows a broker alive.
    """

    broker_id: int
    max_lag_ms: int
    hosted: HostedPartitions
    log_manager: LogManager
    high_watermarks: HighWatermarkCheckpoints
    stats: ReplicationStats
    clock: Clock
    min_insync_replicas: Callable[[str], int]
    is_broker_alive: Callable[[int], bool]

    def changed_by(self, delta: LocalDelta) -> list[TopicPartition]:
        """The partitions here whose roles a delta may change.

        A later version of the same epoch, or an order of an earlier one, changes no role: the
        partition is followed on without an interruption (KAFKA-13790).
        """
        changed: dict[TopicPartition, None] = {}
        for wanted in delta.hosted:
            partition = self.hosted.get(wanted.state.tp)
            if (
                partition is None
                or wanted.state.leader_epoch > partition.leader_epoch
                or wanted.topic_id not in (None, partition.topic_id)
            ):
                changed[wanted.state.tp] = None
        for stopped in delta.stopped:
            if self._stop(stopped) is not ErrorCode.FENCED_LEADER_EPOCH:
                changed[stopped.tp] = None
        return list(changed)

    def apply(
        self,
        delta: LocalDelta,
        done: Callable[[dict[TopicPartition, ErrorCode], Exception | None], None],
    ) -> None:
        """Takes and stops the roles a delta names, the disk's part on storage threads.

        One call at a time: the next follows `done`, which gets the result of each partition, and
        an error if one occurred that belongs to no partition.
        """
        results: dict[TopicPartition, ErrorCode] = {}
        tasks = self.log_manager.tasks
        waves = iter(_waves(delta))

        def next_wave(error: Exception | None) -> None:
            wave = next(waves, None) if error is None else None
            if wave is not None:
                run_beside(tasks, self._changes(wave, results), next_wave, at_once=_CHANGES_AT_ONCE)
                return
            self._remove_meters(dict.fromkeys(tp.topic for tp in results))
            done(results, error)

        directories = self.log_manager.online_directories
        run_beside(tasks, [self.high_watermarks.load(directories)], next_wave, at_once=1)

    def _changes(
        self, wave: LocalDelta, results: dict[TopicPartition, ErrorCode]
    ) -> Iterator[Steps[None]]:
        """The changes of a delta that names each partition once; each adds its result."""

        def take(hosted: HostedPartition) -> Steps[None]:
            results[hosted.state.tp] = yield from self.take(hosted)

        def delete(logs: Sequence[Log]) -> Steps[None]:
            results.update((yield from self.delete(logs)))

        yield from map(take, wave.hosted)
        stopped, deleted = self.stop(wave.stopped)
        results.update(stopped)
        yield from map(delete, deleted.values())

    def _remove_meters(self, topics: Iterable[str]) -> None:
        """Removes the meters of topics that are gone, or no longer have a leader here."""
        hosted, led = self.hosted.topics()
        for topic in topics:
            if topic not in hosted:
                self.stats.remove_topic(topic)
            elif topic not in led:
                self.stats.remove_leader_meters(topic)

    def take(self, wanted: HostedPartition) -> Steps[ErrorCode]:
        """Makes this broker lead or follow, as the controller orders."""
        tp = wanted.state.tp
        partition = self.hosted.get(tp)
        was_leader = partition is not None and partition.is_leader
        self.hosted.being_changed.add(tp)
        try:
            yield from self._take(wanted)
        except ApiError as error:
            # A new controller announces what is known already: not worth a warning.
            is_usual = error.code is ErrorCode.STALE_CONTROLLER_EPOCH
            logger.log(
                logging.INFO if is_usual else logging.WARNING, "%s: role refused: %s", tp, error
            )
            if partition is not None and self.hosted.get(tp) is partition:
                partition.is_leader = was_leader
            return error.code
        except StorageError as error:
            logger.error("%s: %s", tp, error)  # noqa: TRY400 - the message is complete
            self.hosted.mark_offline(tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        finally:
            self.hosted.being_changed.discard(tp)
        return ErrorCode.NONE

    def _take(self, wanted: HostedPartition) -> Steps[None]:
        state = wanted.state
        tp = state.tp
        self._check_online(tp)
        partition = self.hosted.get(tp)
        log = self.log_manager.get_log(tp)
        found_id = yield from self._topic_id(partition, log)
        is_other_topic = found_id is not None and wanted.topic_id not in (None, found_id)
        if is_other_topic:
            if found_id == _UNREADABLE and not wanted.is_new:
                is_other_topic, found_id = False, None
            elif not wanted.is_new:
                raise ApiError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"the local log belongs to topic id {found_id}, the controller says"
                    f" {wanted.topic_id}",
                )
        if log is not None and found_id is None and wanted.topic_id is not None:
            yield from self._adopt(partition, log, wanted.topic_id)
        is_update = not is_other_topic and self._check_epoch(partition, state)
        if self.broker_id not in state.replicas:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.broker_id} is not among the replicas {state.replicas}",
            )
        if is_other_topic:
            assert log is not None
            logger.warning("%s: the log of another topic (%s) is set aside", tp, found_id)
            self._forget(tp)
            yield from self.log_manager.put_aside_steps([log], PartitionKind.STRAY)
            partition = log = None
        if is_update:
            assert partition is not None
            partition.apply_update(state)
            if partition.is_leader:
                partition.maybe_increment_high_watermark()
            return
        yield from self._begin(partition, log, wanted)

    def _check_online(self, tp: TopicPartition) -> None:
        if self.hosted.is_offline(tp):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")

    def _check_unchanged(
        self, tp: TopicPartition, partition: Partition | None, leader_epoch: int, log: Log
    ) -> None:
        """Checks after a step that partition, epoch and log are those it began with.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR or STALE_CONTROLLER_EPOCH.
            StorageError: The directory failed meanwhile.
        """
        self._check_online(tp)
        log.check_usable()
        epoch = -1 if partition is None else partition.leader_epoch
        if self.hosted.get(tp) is not partition or epoch != leader_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"expected leader epoch {leader_epoch} after a step, found {epoch}: another role"
                " was taken meanwhile",
            )

    def _check_epoch(self, partition: Partition | None, state: PartitionState) -> bool:
        """Whether this is a later version of the partition's role; False for a new role.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH if it is neither.
        """
        if partition is None or state.leader_epoch > partition.leader_epoch:
            return False
        if state.leader_epoch == partition.leader_epoch and state.leader == partition.leader_id:
            if state.partition_version > partition.partition_version:
                return True
            # The same once more, after this broker lost its session: it leads still.
            if partition.is_suspended and state.partition_version == partition.partition_version:
                return True
        raise ApiError(
            ErrorCode.STALE_CONTROLLER_EPOCH,
            f"leader epoch {state.leader_epoch} (version {state.partition_version}) does not exceed"
            f" {partition.leader_epoch} (version {partition.partition_version})",
        )

    def _begin(
        self, partition: Partition | None, log: Log | None, wanted: HostedPartition
    ) -> Steps[None]:
        """Takes a role in a new leader epoch."""
        state = wanted.state
        tp = state.tp
        epoch = -1 if partition is None else partition.leader_epoch
        if log is None:
            log = yield from self.log_manager.create_steps(
                tp, is_new=wanted.is_new, topic_id=wanted.topic_id
            )
            self._check_unchanged(tp, partition, epoch, log)
            if partition is not None:
                partition.topic_id = wanted.topic_id or partition.topic_id
        was_leader = partition is not None and partition.is_leader
        if partition is not None:
            # Answers 6 from here on; the next epoch begins where this one ends.
            partition.is_leader = False
        if state.leader == self.broker_id:
            yield from self._record_epoch(log, state.leader_epoch)
            self._check_unchanged(tp, partition, epoch, log)
        is_first = partition is None
        if partition is None:
            partition = Partition(
                tp,
                local_id=self.broker_id,
                clock=self.clock,
                max_lag_ms=self.max_lag_ms,
                stats=self.stats.topic(tp.topic),
                is_broker_alive=self.is_broker_alive,
            )
            partition.topic_id = wanted.topic_id
            log.update_high_watermark(self.high_watermarks.find(log))
        # Meters may have been dropped while nothing of the topic was led here.
        partition.stats = self.stats.topic(tp.topic)
        log.on_append_rejected = partition.stats.count_rejected
        partition.min_insync_replicas = self.min_insync_replicas(tp.topic)
        if state.leader == self.broker_id:
            partition.is_leader = was_leader  # If True, the followers' log ends stay known.
            partition.make_leader(state, log)
            partition.maybe_increment_high_watermark()
        else:
            partition.make_follower(state, log)
        if is_first:
            self.hosted.add(partition)
            self.high_watermarks.forget(tp)

    def _record_epoch(self, log: Log, leader_epoch: int) -> Steps[None]:
        """Makes it durable that an epoch begins at the log's end, which does not move meanwhile."""
        epochs = log.leader_epochs
        before, start_offset = epochs.entries, log.log_end_offset
        if not epochs.assign(leader_epoch, start_offset, durable=False):
            return
        try:
            yield epochs.flush
        except OSError as error:
            epochs.restore(before)
            raise log.fail("record a leader epoch", error) from error
        assert log.log_end_offset == start_offset

    # Stopping

    def stop(
        self, stopped: Sequence[StoppedPartition]
    ) -> tuple[dict[TopicPartition, ErrorCode], dict[LogDirectory, list[Log]]]:
        """Stops replicas; returns the result of each, and the logs that have to be deleted.

        A log's result is final unless `delete` returns another one for it.
        """
        results: dict[TopicPartition, ErrorCode] = {}
        deleted: dict[LogDirectory, list[Log]] = {}
        for wanted in stopped:
            tp = wanted.tp
            results[tp] = self._stop(wanted)
            if wanted.deletes_log and results[tp] is ErrorCode.NONE:
                self._forget(tp)
                # Also for a log without a role: its topic was deleted while this broker was down.
                try:
                    found = self.log_manager.get_log(tp)
                except StorageError as error:
                    results[tp] = self._fail(tp, error)
                else:
                    if found is not None:
                        deleted.setdefault(found.log_directory, []).append(found)
        return results, deleted

    def _stop(self, wanted: StoppedPartition) -> ErrorCode:
        tp = wanted.tp
        if self.hosted.is_offline(tp):
            return ErrorCode.KAFKA_STORAGE_ERROR if wanted.deletes_log else ErrorCode.NONE
        partition = self.hosted.get(tp)
        if partition is not None and 0 <= wanted.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE

    def delete(self, logs: Sequence[Log]) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Deletes the logs of one directory; returns the results of those that failed."""
        try:
            yield from self.log_manager.put_aside_steps(logs, PartitionKind.DELETED)
        except StorageError as error:
            return {log.topic_partition: self._fail(log.topic_partition, error) for log in logs}
        return {}

    def _fail(self, tp: TopicPartition, error: StorageError) -> ErrorCode:
        logger.error("%s: %s", tp, error)
        self.hosted.mark_offline(tp)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def _forget(self, tp: TopicPartition) -> None:
        self.hosted.remove(tp)
        self.high_watermarks.forget(tp)

    # Topic ids

    def _topic_id(self, partition: Partition | None, log: Log | None) -> Steps[uuid.UUID | None]:
        """The id of the topic that the local log belongs to."""
        if partition is not None or log is None:
            return None if partition is None else partition.topic_id
        disk, directory, tp = log.services.disk, log.directory, log.topic_partition
        found: list[uuid.UUID | None] = []

        def read() -> None:
            try:
                found.append(read_topic_id(disk, directory))
            except CorruptCheckpointError as error:
                logger.warning("%s: %s", tp, error)
                found.append(_UNREADABLE)

        try:
            yield read
        except OSError as error:
            raise log.fail("read partition.metadata", error) from error
        self._check_unchanged(tp, None, -1, log)
        return found[0]

    def _adopt(self, partition: Partition | None, log: Log, topic_id: uuid.UUID) -> Steps[None]:
        """Writes down the id of a log that had none."""
        disk, directory = log.services.disk, log.directory
        epoch = -1 if partition is None else partition.leader_epoch
        try:
            yield lambda: write_topic_id(disk, directory, topic_id)
        except OSError as error:
            raise log.fail("write partition.metadata", error) from error
        self._check_unchanged(log.topic_partition, partition, epoch, log)
        if partition is not None:
            partition.topic_id = topic_id


def _waves(delta: LocalDelta) -> list[LocalDelta]:
    """Splits a delta into parts that name each partition once, to be applied one after another.

    A delta usually names each partition once; then there is one part.
    """
    waves: list[tuple[list[HostedPartition], list[StoppedPartition]]] = []
    seen: Counter[TopicPartition] = Counter()

    def wave_of(
        tp: TopicPartition,
    ) -> tuple[list[HostedPartition], list[StoppedPartition]]:
        number = seen[tp]
        seen[tp] += 1
        if number == len(waves):
            waves.append(([], []))
        return waves[number]

    for hosted in delta.hosted:
        wave_of(hosted.state.tp)[0].append(hosted)
    for stopped in delta.stopped:
        wave_of(stopped.tp)[1].append(stopped)
    return [replace(delta, hosted=tuple(h), stopped=tuple(s)) for h, s in waves]
