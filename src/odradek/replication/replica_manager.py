"""All replicas of this broker: their roles, watermarks and in-sync replicas.

Requests use the parts `appends`, `reads` and `look_ups`. One bad partition never stops the others
of a request: its error is its result. A method that is given `respond` calls it exactly once:
before it returns, or when its parked operation ends.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from odradek.clock import Clock
from odradek.errors import ErrorCode, StorageError
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.ports import AlterIsrOutcome, IsrAltered, IsrOutcomeUnknown, IsrRefused
from odradek.model import TopicPartition
from odradek.replication.appending import Appends
from odradek.replication.gauges import register_replica_gauges
from odradek.replication.high_watermarks import HighWatermarkCheckpoints
from odradek.replication.hosted import HostedPartitions
from odradek.replication.isr import IsrChange
from odradek.replication.look_ups import LookUps
from odradek.replication.parked import ParkedRequests, Purgatories
from odradek.replication.partition import Partition
from odradek.replication.reading import Reads
from odradek.replication.roles import RoleChanges
from odradek.replication.stats import ReplicationStats
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.storage.log.services import BackgroundTasks, Steps, run_beside

__all__ = ["Purgatories", "ReplicaManager", "ReplicaManagerConfig"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE

# Partitions whose roles are taken at the same time. Fewer than a broker has storage threads, so
# that a flush or a write of the store waits for one partition and not for all of them.
_CHANGES_AT_ONCE: Final = 3


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """The broker's settings that the manager needs."""

    broker_id: int
    max_lag_ms: int = 30_000  # replica.lag.time.max.ms
    internal_topics: frozenset[str] = frozenset({"__consumer_offsets", "__transaction_state"})


class ReplicaManager:
    """The replicas of one broker.

    Args:
        config: The broker's id, and limits.
        log_manager: Opens and deletes the logs.
        purgatories: Hold the requests that wait.
        clock: For lag and intervals.
        stats: Meters of the topics; the gauges of the replicas are registered beside them.
        min_insync_replicas: The setting of a topic.
    """

    def __init__(
        self,
        config: ReplicaManagerConfig,
        *,
        log_manager: LogManager,
        purgatories: Purgatories,
        clock: Clock,
        stats: ReplicationStats,
        min_insync_replicas: Callable[[str], int] = lambda _topic: 1,
    ) -> None:
        hosted = HostedPartitions(config.broker_id)
        self._hosted = hosted
        self.stats = stats
        self.purgatories = purgatories
        self._parked = parked = ParkedRequests(purgatories)
        internal_topics = config.internal_topics
        self.appends = Appends(
            hosted, parked, purgatories, stats, internal_topics, log_manager.inline_budget
        )
        self.reads = Reads(hosted, parked, purgatories.fetch, stats)
        self.look_ups = LookUps(hosted, purgatories.delete_records, internal_topics)
        self.config = config
        self.log_manager = log_manager
        self._min_insync_replicas = min_insync_replicas
        self._is_broker_alive: Callable[[int], bool] = lambda _broker_id: True
        self._by_topic = hosted.by_topic
        self._high_watermarks = HighWatermarkCheckpoints()
        self._roles = RoleChanges(
            broker_id=config.broker_id,
            max_lag_ms=config.max_lag_ms,
            hosted=hosted,
            log_manager=log_manager,
            high_watermarks=self._high_watermarks,
            stats=stats,
            clock=clock,
            min_insync_replicas=min_insync_replicas,
            is_broker_alive=lambda broker_id: self._is_broker_alive(broker_id),
        )
        register_replica_gauges(self._hosted, stats.registry)

    # Looking up

    def use_metadata(
        self,
        is_known: Callable[[TopicPartition], bool],
        is_broker_alive: Callable[[int], bool] | None = None,
    ) -> None:
        """Sets the look-ups into metadata.

        Args:
            is_known: Whether a partition exists on any broker.
            is_broker_alive: Whether a broker is alive and not shutting down.
        """
        self._hosted.is_known = is_known
        if is_broker_alive is not None:
            self._is_broker_alive = is_broker_alive

    def use_answers(self, after_answers: Callable[[Callable[[], None]], None]) -> None:
        """Sets the function that calls back when the answers of the requests under way are sent."""
        self._parked.after_answers = after_answers

    def use_isr_updates(self, submit: Callable[[Partition, IsrChange], None]) -> None:
        """Sets the function that carries out ISR changes caused by followers' fetches."""
        self.reads.submit_isr_change = submit

    def partitions(self) -> list[Partition]:
        """Hosted partitions that are online."""
        return self._hosted.online()

    @property
    def offline_count(self) -> int:
        return self._hosted.offline_count

    def find_online(self, topic: str, index: int) -> Partition | None:
        """The hosted partition, if it is online; found without making a key."""
        partitions = self._by_topic.get(topic)
        return None if partitions is None else partitions.get(index)

    def find_partition(self, tp: TopicPartition, *, expect_leader: bool = False) -> Partition:
        """The hosted partition.

        Raises:
            ApiError: As `HostedPartitions.find`.
        """
        return self._hosted.find(tp, expect_leader=expect_leader)

    # Roles

    def apply_local(
        self,
        delta: LocalDelta,
        done: Callable[[dict[TopicPartition, ErrorCode], Exception | None], None],
    ) -> None:
        """Applies the roles a controller assigned; the disk's part runs on storage threads.

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
            self._parked.release((tp, True) for tp in results)
            done(results, error)

        directories = self.log_manager.online_directories
        run_beside(tasks, [self._high_watermarks.load(directories)], next_wave, at_once=1)

    def _changes(
        self, wave: LocalDelta, results: dict[TopicPartition, ErrorCode]
    ) -> Iterator[Steps[None]]:
        """The changes of a delta that names each partition once; each adds its result."""

        def take(hosted: HostedPartition) -> Steps[None]:
            results[hosted.state.tp] = yield from self._roles.take(hosted)

        def delete(logs: Sequence[Log]) -> Steps[None]:
            results.update((yield from self._roles.delete(logs)))

        yield from map(take, wave.hosted)
        stopped, deleted = self._roles.stop(wave.stopped)
        results.update(stopped)
        yield from map(delete, deleted.values())

    def _remove_meters(self, topics: Iterable[str]) -> None:
        """Removes the meters of topics that are gone, or no longer have a leader here."""
        hosted, led = self._hosted.topics()
        for topic in topics:
            if topic not in hosted:
                self.stats.remove_topic(topic)
            elif topic not in led:
                self.stats.remove_leader_meters(topic)

    def renew_settings(self, is_changed: Callable[[str], bool]) -> Iterator[None]:
        """Renews the settings that partitions of changed topics cache, one partition a step."""
        for partition in self._hosted.online():
            topic = partition.tp.topic
            if is_changed(topic):
                partition.min_insync_replicas = self._min_insync_replicas(topic)
            yield

    def handle_directory_failure(self, directory: LogDirectory) -> None:
        """Makes the partitions of a failed directory answer KAFKA_STORAGE_ERROR until a restart.

        May be called in the middle of an append, where failures are found.
        """
        lost = self._hosted.mark_directory_offline(directory)
        self._parked.release((tp, True) for tp in lost)

    # In-sync replicas

    def propose_isr_shrinks(self) -> list[tuple[Partition, IsrChange]]:
        """The changes that the periodic check proposes; each is settled by `settle_isr`."""
        return [
            (partition, change)
            for partition in self._hosted.online()
            if (change := partition.propose_isr_shrink()) is not None
        ]

    def settle_isr(self, partition: Partition, change: IsrChange, outcome: AlterIsrOutcome) -> bool:
        """Settles an ISR change by its outcome; returns whether the partition applied it.

        A change whose outcome is unknown stays in flight. An answer that comes after a newer state
        from the controller is dropped: its version is outdated.
        """
        if partition.isr_change is not change or isinstance(outcome, IsrOutcomeUnknown):
            return False
        if not isinstance(outcome, IsrAltered):
            logger.info("%s: ISR %s refused, waiting for the controller", partition.tp, change.isr)
            self.stats.failed_isr_updates.mark()
            if isinstance(outcome, IsrRefused):
                self._drop_isr(partition, change)
            return False
        is_expansion = len(change.isr) > len(partition.isr)
        (self.stats.isr_expands if is_expansion else self.stats.isr_shrinks).mark()
        try:
            if partition.settle_isr_change(change, outcome.partition_version):
                self._parked.release([(partition.tp, True)])
        except StorageError as error:
            logger.warning("%s: %s", partition.tp, error)
        return True

    def _drop_isr(self, partition: Partition, change: IsrChange) -> None:
        """Goes back to the old ISR: a member that was to be added is not waited for any more."""
        try:
            if partition.drop_isr_change(change):
                self._parked.release([(partition.tp, True)])
        except StorageError as error:
            logger.warning("%s: %s", partition.tp, error)

    # High watermark checkpoints

    def checkpoint_high_watermarks(self, tasks: BackgroundTasks | None = None) -> None:
        """Writes the high watermarks of all partitions, each to its directory.

        Args:
            tasks: Runs the writes in the background; without it the files are durable on return.
        """
        logs = [p.log for p in self._hosted.online() if p.log is not None]
        self._high_watermarks.write(logs, tasks)


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
