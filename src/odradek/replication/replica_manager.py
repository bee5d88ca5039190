"""All replicas of this broker: roles in, reads through, watermarks and in-sync replicas kept.

Appends, and how parked requests are released, are in `odradek.replication.appending`. One bad
partition never stops the others of a request: its error is its result. `append_records`,
`fetch_messages` and `delete_records` call `respond` exactly once, before they return or when the
purgatory lets go.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.clock import Clock
from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.marks import mypyc_attr
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.ports import AlterIsrOutcome, IsrAltered, IsrOutcomeUnknown
from odradek.model import TopicPartition
from odradek.replication.appending import Appends, Purgatories
from odradek.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.fetching import FetchParams, FetchPartition, FetchResults
from odradek.replication.gauges import register_replica_gauges
from odradek.replication.high_watermarks import HighWatermarkCheckpoints
from odradek.replication.hosted import HostedPartitions
from odradek.replication.isr import IsrChange
from odradek.replication.local_reads import MAX_PIECES, SharedRead, read_partitions
from odradek.replication.partition import Partition
from odradek.replication.roles import RoleChanges
from odradek.replication.stats import ReplicationStats
from odradek.storage.directories.background import BackgroundTasks, Steps, run_beside
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import FetchIsolation, Log
from odradek.storage.segments.timestamp_search import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OpenedBatches,
    TimestampedOffset,
    fetch_offset_by_timestamp,
)
from odradek.values import dataclass

__all__ = ["Purgatories", "ReplicaManager", "ReplicaManagerConfig"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE

# Partitions whose roles are taken at the same time. Fewer than a broker has storage threads, so
# that a flush or a write of the store waits for one partition and not for all of them.
_CHANGES_AT_ONCE: Final = 3


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """What the manager needs of the broker's settings."""

    broker_id: int
    max_lag_ms: int = 30_000  # replica.lag.time.max.ms
    internal_topics: frozenset[str] = frozenset({"__consumer_offsets", "__transaction_state"})


class ReplicaManager(Appends):
    """The replicas of one broker.

    Args:
        config: Who we are, and limits.
        log_manager: Where logs are.
        purgatories: Where requests wait.
        clock: For lag and intervals.
        stats: Meters of the topics; the gauges of the replicas join them.
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
        super().__init__(
            hosted, purgatories, stats, config.internal_topics, log_manager.inline_budget
        )
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
        # None: ISRs are not changed from here.
        self._submit_isr_change: Callable[[Partition, IsrChange], None] | None = None
        register_replica_gauges(self._hosted, stats.registry)

    # Looking up

    def use_metadata(
        self,
        is_known: Callable[[TopicPartition], bool],
        is_broker_alive: Callable[[int], bool] | None = None,
    ) -> None:
        """How to tell what exists, and who is alive.

        Args:
            is_known: Tells a partition that lives elsewhere from one that does not exist.
            is_broker_alive: Whether a broker is alive and not shutting down.
        """
        self._hosted.is_known = is_known
        if is_broker_alive is not None:
            self._is_broker_alive = is_broker_alive

    def use_isr_updates(self, submit: Callable[[Partition, IsrChange], None]) -> None:
        """Who carries out the ISR changes that follow from followers' fetches."""
        self._submit_isr_change = submit

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
            ApiError: KAFKA_STORAGE_ERROR if its directory failed, otherwise by what is known.
        """
        return self._hosted.find(tp, expect_leader=expect_leader)

    # Roles

    def apply_local(
        self,
        delta: LocalDelta,
        done: Callable[[dict[TopicPartition, ErrorCode], Exception | None], None],
    ) -> None:
        """Takes the roles a controller gave, with the disk's part of it on storage threads.

        One call at a time: the next comes after `done`, which gets the result of each partition,
        and an error if something happened that no partition's result can tell.
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
            self._release((tp, True) for tp in results)
            done(results, error)

        directories = self.log_manager.online_directories
        run_beside(tasks, [self._high_watermarks.load(directories)], next_wave, at_once=1)

    def _changes(
        self, wave: LocalDelta, results: dict[TopicPartition, ErrorCode]
    ) -> Iterator[Steps[None]]:
        """The changes of a delta that names each partition once; results come as they end."""

        def take(hosted: HostedPartition) -> Steps[None]:
            results[hosted.state.tp] = yield from self._roles.take(hosted)

        def delete(logs: Sequence[Log]) -> Steps[None]:
            results.update((yield from self._roles.delete(logs)))

        yield from map(take, wave.hosted)
        stopped, deleted = self._roles.stop(wave.stopped)
        results.update(stopped)
        yield from map(delete, deleted.values())

    def _remove_meters(self, topics: Iterable[str]) -> None:
        """Forgets the meters of topics that are gone, or have no leader here any more."""
        hosted, led = self._hosted.topics()
        for topic in topics:
            if topic not in hosted:
                self.stats.remove_topic(topic)
            elif topic not in led:
                self.stats.remove_leader_meters(topic)

    def renew_settings(self, is_changed: Callable[[str], bool]) -> Iterator[None]:
        """Partitions of changed topics take over what is kept of settings here, one at a time."""
        for partition in self._hosted.online():
            topic = partition.tp.topic
            if is_changed(topic):
                partition.min_insync_replicas = self._min_insync_replicas(topic)
            yield

    def handle_directory_failure(self, directory: LogDirectory) -> None:
        """Partitions whose directory failed answer KAFKA_STORAGE_ERROR until a restart.

        May be called in the middle of an append, where failures are found.
        """
        lost = self._hosted.mark_directory_offline(directory)
        self._release((tp, True) for tp in lost)

    # Fetching

    def fetch_messages(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[FetchResults], None],
        *,
        on_parked: Callable[[DelayedFetch], None] | None = None,
    ) -> None:
        """Reads from local logs; waits for more if there is less than `min_bytes`.

        `on_parked` gets the operation that has to be ended if the asker goes away.
        """
        is_outermost, self._is_busy = not self._is_busy, True
        try:
            results = read_partitions(self._hosted, params, partitions, self.stats.all_topics)
            if params.replica_id >= 0:
                self._note_follower(params.replica_id, results)
            if not partitions or self._is_enough(params, results):
                self._answer_fetch(params, results, respond)
            else:
                self._park_fetch(params, results, respond, on_parked)
        finally:
            if is_outermost:
                self._check_waiting()

    def _is_enough(self, params: FetchParams, results: FetchResults) -> bool:
        """Whether a fetch is answered at once."""
        if params.max_wait_ms <= 0:
            return True
        readable = piece_count = 0
        for wanted, result in results:
            if result.error is not _NONE or result.diverging_epoch is not None:
                return True
            if result.records is not None:
                readable += result.records.length
                piece_count += 1
            if params.replica_id >= 0:
                partition = self._hosted.get(wanted.tp)
                if partition is not None and partition.is_high_watermark_news_to(params.replica_id):
                    return True
        # More pieces than an answer may have cannot be waited for.
        return readable >= params.min_bytes or piece_count >= MAX_PIECES

    def _park_fetch(
        self,
        params: FetchParams,
        results: FetchResults,
        respond: Callable[[FetchResults], None],
        on_parked: Callable[[DelayedFetch], None] | None,
    ) -> None:
        operation = DelayedFetch(
            params,
            [wanted for wanted, _ in results],
            [(w, r.offset_metadata) for w, r in results if r.offset_metadata is not None],
            hosted=self._hosted,
            respond=respond,
            read_and_respond=self._finish_fetch,
            on_expired=self.stats.mark_fetch_expired,
        )
        if not _is_at_end(params, results) and operation.try_complete():
            return
        self.purgatories.fetch.watch(operation, [wanted.tp for wanted, _ in results])
        if on_parked is not None:
            on_parked(operation)

    def _finish_fetch(self, operation: DelayedFetch) -> None:
        """Reads what there is for a fetch that has waited, and answers it."""
        params, partitions = operation.params, operation.partitions
        if params.replica_id >= 0 or len(partitions) != 1:
            found = read_partitions(self._hosted, params, partitions, self.stats.all_topics)
        else:
            wanted = partitions[0]
            shared = self._shared_read
            if shared is not None and shared.suits(params, wanted):
                found = [(wanted, shared.take())]
            else:
                found = read_partitions(self._hosted, params, partitions, self.stats.all_topics)
                partition = self._hosted.get(wanted.tp)
                result = found[0][1]
                if self._is_checking_fetches and result.error is _NONE and partition is not None:
                    self._shared_read = SharedRead(params, wanted, result, partition.stats)
        self._answer_fetch(params, found, operation.respond)

    def _answer_fetch(
        self,
        params: FetchParams,
        results: FetchResults,
        respond: Callable[[FetchResults], None],
    ) -> None:
        """Gives an answer, and takes note of what it tells."""
        for wanted, result in results:
            partition = self._hosted.get(wanted.tp)
            if partition is None or result.error is not _NONE:
                continue
            size = 0 if result.records is None else result.records.length
            if params.replica_id < 0:
                partition.stats.count_bytes_out(size)
                continue
            self.stats.replication_bytes_out.mark(size)
            if params.replica_id in partition.adding_replicas:
                self.stats.reassignment_bytes_out.mark(size)
            follower = partition.followers.get(params.replica_id)
            if follower is not None:
                follower.told_high_watermark = result.high_watermark
        respond(results)

    def _note_follower(self, replica_id: int, results: FetchResults) -> None:
        """Moves watermarks, and perhaps the ISR, by what a follower's fetch says it has."""
        for wanted, result in results:
            partition = self._hosted.get(wanted.tp)
            if (
                partition is None
                or result.error is not _NONE
                or result.diverging_epoch is not None
                or wanted.current_leader_epoch != partition.leader_epoch
            ):
                continue
            try:
                if partition.apply_follower_fetch(
                    replica_id,
                    fetch_offset=wanted.fetch_offset,
                    log_start_offset=wanted.log_start_offset,
                    leader_epoch=wanted.current_leader_epoch,
                ):
                    self._changed[wanted.tp] = True
                if self._submit_isr_change is not None:
                    change = partition.propose_isr_expansion(replica_id)
                    if change is not None:
                        self._submit_isr_change(partition, change)
            except StorageError as error:
                logger.warning("%s: %s", wanted.tp, error)

    # Offsets

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp: int,
        *,
        current_leader_epoch: int,
        read_committed: bool,
        is_from_consumer: bool,
        opened: OpenedBatches | None = None,
    ) -> TimestampedOffset | None:
        """The offset at a time, or an end of what the asker may see.

        Raises:
            SearchDeferredError: A batch has to be opened first; only if `opened` is given.
            ApiError: By partition and epoch; OFFSET_NOT_AVAILABLE while a new leader does not know
                yet how far its log is committed, for an older answer could be lower than the last.
            StorageError: The disk failed.
        """
        partition = self._hosted.find_leader(tp)
        log = partition.log_for(current_leader_epoch, only_leader=True)
        limit = log.log_end_offset
        is_late = False
        if is_from_consumer:
            limit = log.last_stable_offset if read_committed else log.high_watermark
            is_late = partition.epoch_start_offset > log.high_watermark
        if timestamp == EARLIEST_TIMESTAMP:
            return fetch_offset_by_timestamp(log, timestamp)
        if timestamp != LATEST_TIMESTAMP:
            found = fetch_offset_by_timestamp(log, timestamp, opened)
            if found is not None and found.offset < limit:
                return found
        if is_late:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{tp}: the high watermark {log.high_watermark} has not reached the start"
                f" {partition.epoch_start_offset} of epoch {partition.leader_epoch}",
            )
        if timestamp == LATEST_TIMESTAMP:
            return TimestampedOffset(-1, limit, partition.leader_epoch)
        return None

    def end_offset_for_epoch(
        self, tp: TopicPartition, *, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `leader_epoch`; -1 if unknown.

        Raises:
            ApiError: By partition and epoch.
        """
        log = self._hosted.find_leader(tp).log_for(current_leader_epoch, only_leader=True)
        found = log.leader_epochs.end_offset_for(leader_epoch, log.log_end_offset)
        return found.epoch, found.end_offset

    def delete_records(
        self,
        *,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        respond: Callable[[Mapping[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        """Raises log starts; answers when every live replica has followed."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            try:
                if tp.topic in self.config.internal_topics:
                    raise ApiError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is an internal topic"
                    )
                requested, low_watermark = self._hosted.find_leader(tp).delete_records(offset)
            except ApiError as error:
                results[tp] = DeleteRecordsResult(error.code)
            except StorageError:
                results[tp] = DeleteRecordsResult(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                results[tp] = DeleteRecordsResult(_NONE, low_watermark)
                if low_watermark < requested:
                    pending[tp] = requested
        if not pending:
            respond(results)
            return
        operation = DelayedDeleteRecords(
            timeout_ms,
            requested=pending,
            results=results,
            find_leader=self._hosted.find_leader,
            respond=respond,
        )
        self.purgatories.delete_records.try_complete_else_watch(operation, list(pending))

    # In-sync replicas

    def propose_isr_shrinks(self) -> list[tuple[Partition, IsrChange]]:
        """What the periodic check wants to store; each is settled by `settle_isr`."""
        return [
            (partition, change)
            for partition in self._hosted.online()
            if (change := partition.propose_isr_shrink()) is not None
        ]

    def settle_isr(self, partition: Partition, change: IsrChange, outcome: AlterIsrOutcome) -> bool:
        """An ISR change was stored or refused; returns whether the partition has it now.

        Whose outcome is unknown stays in flight. An answer that comes after a newer state from the
        controller is dropped: its version belongs to another time.
        """
        if partition.isr_change is not change or isinstance(outcome, IsrOutcomeUnknown):
            return False
        if not isinstance(outcome, IsrAltered):
            logger.info("%s: ISR %s refused, waiting for the controller", partition.tp, change.isr)
            self.stats.failed_isr_updates.mark()
            return False
        is_expansion = len(change.isr) > len(partition.isr)
        (self.stats.isr_expands if is_expansion else self.stats.isr_shrinks).mark()
        try:
            if partition.settle_isr_change(change, outcome.partition_version):
                self._release([(partition.tp, True)])
        except StorageError as error:
            logger.warning("%s: %s", partition.tp, error)
        return True

    # High watermark checkpoints

    def checkpoint_high_watermarks(self, tasks: BackgroundTasks | None = None) -> None:
        """Writes the high watermarks of all partitions, each to its directory.

        Args:
            tasks: Where to write; without it the files are durable on return.
        """
        logs = [p.log for p in self._hosted.online() if p.log is not None]
        self._high_watermarks.write(logs, tasks)


def _waves(delta: LocalDelta) -> list[LocalDelta]:
    """The delta in parts that name each partition once: changes of one follow one another.

    A delta names a partition once as a rule; then it is its own only part.
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


def _is_at_end(params: FetchParams, results: FetchResults) -> bool:
    """Whether a fetch that was just read stands at the end of all that it may see.

    The everyday one, of a consumer that has read everything: then it need not be looked at again
    before it is parked.
    """
    if params.isolation is not FetchIsolation.HIGH_WATERMARK or params.min_bytes <= 0:
        return False
    for _, result in results:
        place = result.offset_metadata
        if place is None or place.message_offset != result.high_watermark:
            return False
    return True
