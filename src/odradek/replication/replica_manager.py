"""All replicas of this broker: their roles, watermarks and in-sync replicas.

Requests use the parts `appends`, `reads` and `look_ups`. One bad partition never stops the others
of a request: its error is its result. A method that is given `respond` calls it exactly once:
before it returns, or when its parked operation ends.
"""

import logging
from collections.abc import Callable, Iterator

from odradek.clock import Clock
from odradek.errors import ErrorCode, StorageError
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.metadata.delta import LocalDelta
from odradek.metadata.ports import (
    AlterIsrOutcome,
    IsrAltered,
    IsrNotAsked,
    IsrOutcomeUnknown,
    IsrRefused,
)
from odradek.model import TopicPartition
from odradek.replication.appending import Appends
from odradek.replication.directory_moves import DirectoryMoves
from odradek.replication.following.replica_fetchers import ReplicaFetchers
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
from odradek.storage.log.services import BackgroundTasks

__all__ = ["Purgatories", "ReplicaManager", "ReplicaManagerConfig"]

logger = logging.getLogger(__name__)


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """The broker's settings that the manager needs."""

    broker_id: int
    max_lag_ms: int = 30_000  # replica.lag.time.max.ms
    internal_topics: frozenset[str] = frozenset({"__consumer_offsets", "__transaction_state"})
    # The age from which on an open transaction hangs: transaction.max.timeout.ms and 5 minutes.
    late_transaction_ms: int = 1_200_000


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
        self._hosted = hosted = HostedPartitions(config.broker_id)
        self.stats = stats
        self.purgatories = purgatories
        self.parked = parked = ParkedRequests(purgatories)
        internal_topics = config.internal_topics
        self.appends = Appends(
            hosted, parked, purgatories, stats, internal_topics, log_manager.inline_budget
        )
        self.reads = Reads(hosted, parked, purgatories.fetch, stats)
        self.look_ups = LookUps(hosted, parked, purgatories.delete_records, internal_topics)
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
        register_replica_gauges(
            hosted, stats.registry, clock=clock, late_transaction_ms=config.late_transaction_ms
        )
        # None: partitions that other brokers lead are not followed.
        self.fetchers: ReplicaFetchers | None = None
        # None: replicas do not move between data directories.
        self.moves: DirectoryMoves | None = None
        # Partitions whose roles were taken, to be followed once metadata is published.
        self._to_follow: dict[TopicPartition, None] = {}

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
        self.parked.after_answers = after_answers

    def use_isr_updates(self, submit: Callable[[Partition, IsrChange], None]) -> None:
        """Sets the function that carries out ISR changes caused by followers' fetches."""
        self.reads.submit_isr_change = submit

    def use_racks(self, rack_of: Callable[[int, str], str | None]) -> None:
        """Sends consumers that name their rack to followers there (KIP-392).

        Args:
            rack_of: The rack of a broker that has a listener; None if it does not.
        """
        self.reads.rack_of = rack_of

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
        an error if one occurred that belongs to no partition. Partitions whose roles change are not
        followed meanwhile; `start_following` is called when the metadata is published.
        """

        def applied(results: dict[TopicPartition, ErrorCode], error: Exception | None) -> None:
            self.parked.release((tp, True) for tp in results)
            done(results, error)

        def begin() -> None:
            self._roles.apply(delta, applied)

        if self.fetchers is None:
            begin()
        else:
            changed = self._roles.changed_by(delta)
            stopped = {stop.tp for stop in delta.stopped}
            self._to_follow.update((tp, None) for tp in changed if tp not in stopped)
            self.fetchers.halt(changed, begin)

    def start_following(self) -> None:
        """Follows the leaders of partitions whose roles were taken; metadata is published.

        Moves between data directories go on, too.
        """
        if self.fetchers is not None:
            partitions, self._to_follow = self._to_follow, {}
            self.fetchers.follow(partitions)
            self.fetchers.follow_waiting()
        if self.moves is not None:
            self.moves.resume()

    def is_at_work(self, tp: TopicPartition) -> bool:
        """Whether the role of a partition is being taken, or a follower cuts its log."""
        is_following = self.fetchers is not None and self.fetchers.is_at_work(tp)
        return is_following or tp in self._hosted.being_changed

    def note_moved(self, tp: TopicPartition) -> None:
        """Checks the requests that wait for a partition: a watermark, or its log, is another."""
        if self.parked.is_awaited(tp):
            self.parked.release([(tp, True)])

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
        if self.fetchers is not None:
            self.fetchers.halt(lost, lambda: None)
        self.parked.release((tp, True) for tp in lost)

    def suspend_leaders(self) -> None:
        """Stops acknowledging acks=all and proposing ISRs until the controller confirms roles.

        Called when this broker's session is over (08 K-18).
        """
        for partition in self._hosted.online():
            partition.suspend()

    # In-sync replicas

    def propose_isr_shrinks(self) -> Iterator[tuple[Partition, IsrChange] | None]:
        """The changes that the periodic check proposes; each is settled by `settle_isr`.

        One step per partition, with None for most: there may be thousands of partitions.
        """
        for partition in self._hosted.online():
            change = partition.propose_isr_shrink()
            yield None if change is None else (partition, change)

    def settle_isr(self, partition: Partition, change: IsrChange, outcome: AlterIsrOutcome) -> bool:
        """Settles an ISR change by its outcome; returns whether the partition applied it.

        A change that is asked again stays in flight. An answer that comes after a newer state
        from the controller is dropped: its version is outdated.
        """
        if partition.isr_change is not change:
            return False
        if isinstance(outcome, IsrNotAsked | IsrOutcomeUnknown):
            return False
        if isinstance(outcome, IsrAltered):
            is_expansion = len(change.isr) > len(partition.isr)
            (self.stats.isr_expands if is_expansion else self.stats.isr_shrinks).mark()
        else:
            logger.info("%s: ISR %s refused, waiting for the controller", partition.tp, change.isr)
            self.stats.failed_isr_updates.mark()
        try:
            if isinstance(outcome, IsrAltered):
                has_moved = partition.settle_isr_change(change, outcome.partition_version)
            elif isinstance(outcome, IsrRefused):
                # Back to the old ISR: a member that was to be added is not waited for any more.
                has_moved = partition.drop_isr_change(change)
            else:
                has_moved = False
            if has_moved:
                self.parked.release([(partition.tp, True)])
        except StorageError as error:
            logger.warning("%s: %s", partition.tp, error)
        return isinstance(outcome, IsrAltered)

    # High watermark checkpoints

    def checkpoint_high_watermarks(self, tasks: BackgroundTasks | None = None) -> None:
        """Writes the high watermarks of all partitions, each to its directory.

        Args:
            tasks: Runs the writes in the background; without it the files are durable on return.
        """
        logs = [p.log for p in self._hosted.online() if p.log is not None]
        self._high_watermarks.write(logs, tasks)
