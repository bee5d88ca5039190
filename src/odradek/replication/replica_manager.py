"""All replicas of this broker: roles in, appends and reads through, parked requests released.

A partition is *hosted* once metadata gave it a role, *offline* once its directory failed, which
only a restart mends. One bad partition never stops the others of a request: its error is its
result.

Answers may come later. `append_records`, `fetch_messages` and `delete_records` call `respond`
exactly once, before they return or when the purgatory lets go. What an append makes readable is
checked after its own answer has been given (`_release`), which bounds the stack: an answer that
appends again only adds keys to the list being worked off.
"""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.clock import Clock
from odradek.errors import (
    ApiError,
    CorruptCheckpointError,
    ErrorCode,
    RecordsError,
    StorageError,
)
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.ports import AlterIsrOutcome, IsrAltered, IsrOutcomeUnknown
from odradek.model import AppendOrigin, LeaderAndIsr, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.delayed_produce import DelayedProduce, ProduceResult
from odradek.replication.fetching import FetchParams, FetchPartition, FetchResult
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.storage.checkpoints import OffsetCheckpointFile
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_manager import LogManager
from odradek.storage.partition_metadata import read_topic_id, write_topic_id
from odradek.storage.timestamp_search import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    TimestampedOffset,
    fetch_offset_by_timestamp,
)

__all__ = ["Purgatories", "ReplicaManager", "ReplicaManagerConfig"]

logger = logging.getLogger(__name__)

HIGH_WATERMARK_FILE = "replication-offset-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaManagerConfig:
    """What the manager needs of the broker's settings."""

    broker_id: int
    max_lag_ms: int = 30_000  # replica.lag.time.max.ms
    internal_topics: frozenset[str] = frozenset({"__consumer_offsets", "__transaction_state"})


class Purgatories(NamedTuple):
    """Where requests wait, by kind."""

    produce: DelayedOperationPurgatory[DelayedProduce]
    fetch: DelayedOperationPurgatory[DelayedFetch]
    delete_records: DelayedOperationPurgatory[DelayedDeleteRecords]


class ReplicaManager:
    """The replicas of one broker.

    Args:
        config: Who we are, and limits.
        log_manager: Where logs are.
        purgatories: Where requests wait.
        clock: For lag and intervals.
        stats: Meters of the topics.
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
        self.config = config
        self.log_manager = log_manager
        self.purgatories = purgatories
        self.stats = stats
        self._clock = clock
        self._min_insync_replicas = min_insync_replicas
        # None stands for a partition whose directory failed.
        self._partitions: dict[TopicPartition, Partition | None] = {}
        self._known: Callable[[TopicPartition], bool] = lambda _tp: False
        self._loaded_high_watermarks: dict[TopicPartition, int] | None = None
        # Partitions whose state changed while an answer was being given, each once.
        self._changed: deque[tuple[TopicPartition, bool]] = deque()
        self._is_releasing = False

    # Looking up

    def use_metadata(self, is_known: Callable[[TopicPartition], bool]) -> None:
        """How to tell a partition that lives elsewhere from one that does not exist."""
        self._known = is_known

    def partitions(self) -> Iterable[Partition]:
        """Hosted partitions that are online."""
        return [partition for partition in self._partitions.values() if partition is not None]

    @property
    def offline_count(self) -> int:
        return sum(partition is None for partition in self._partitions.values())

    def find_partition(self, tp: TopicPartition, *, expect_leader: bool = False) -> Partition:
        """The hosted partition.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if its directory failed, otherwise by what is known.
        """
        partition = self._partitions.get(tp)
        if partition is not None:
            return partition
        if tp in self._partitions:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        if self._known(tp):
            code = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if expect_leader
                else ErrorCode.REPLICA_NOT_AVAILABLE
            )
            raise ApiError(code, f"{tp} is not hosted by broker {self.config.broker_id}")
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} does not exist here")

    def find_leader(self, tp: TopicPartition) -> Partition:
        """The hosted partition that a writer wants; whether it leads is found on use."""
        return self.find_partition(tp, expect_leader=True)

    # Roles

    def apply_local(self, delta: LocalDelta) -> dict[TopicPartition, ErrorCode]:
        """Takes the roles a controller gave; returns the result of each partition."""
        results: dict[TopicPartition, ErrorCode] = {}
        released: list[TopicPartition] = []
        for hosted in delta.hosted:
            tp = hosted.state.tp
            try:
                results[tp] = self._take_role(hosted)
                released.append(tp)
            except ApiError as error:
                logger.warning("%s: role refused: %s", tp, error)
                results[tp] = error.code
            except StorageError as error:
                logger.error("%s: %s", tp, error)  # noqa: TRY400 - the message says it all
                self._partitions[tp] = None
                results[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        for stopped in delta.stopped:
            results[stopped.tp] = self._stop(stopped)
            released.append(stopped.tp)
        self._release((tp, True) for tp in released)
        return results

    def _take_role(self, hosted: HostedPartition) -> ErrorCode:
        state = hosted.state
        tp = state.tp
        if tp in self._partitions and self._partitions[tp] is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory is offline")
        if self.config.broker_id not in state.replicas:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.config.broker_id} is not among the replicas {state.replicas}",
            )
        partition = self._partitions.get(tp)
        self._check_topic_id(hosted, partition)
        partition = self._partitions.get(tp)
        if partition is not None and state.leader_epoch <= partition.leader_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"leader epoch {state.leader_epoch} does not exceed {partition.leader_epoch}",
            )
        log = self._open_log(hosted)
        if partition is None:
            partition = Partition(
                tp,
                local_id=self.config.broker_id,
                clock=self._clock,
                max_lag_ms=self.config.max_lag_ms,
            )
            self._partitions[tp] = partition
        partition.topic_id = hosted.topic_id or partition.topic_id
        partition.min_insync_replicas = self._min_insync_replicas(tp.topic)
        if state.leader == self.config.broker_id:
            partition.make_leader(state, log)
            partition.maybe_increment_high_watermark()
        else:
            partition.make_follower(state, log)
        return ErrorCode.NONE

    def _check_topic_id(self, hosted: HostedPartition, partition: Partition | None) -> None:
        """A log of another topic of the same name is set aside, or nothing is touched."""
        tp, wanted = hosted.state.tp, hosted.topic_id
        log = self.log_manager.get_log(tp)
        if wanted is None or log is None:
            return
        found = partition.topic_id if partition is not None else self._topic_id_of(log)
        if found is None or found == wanted:
            return
        if not hosted.is_new:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"the local log belongs to topic id {found}, the controller says {wanted}",
            )
        logger.warning("%s: the log of topic id %s is set aside for %s", tp, found, wanted)
        self._partitions.pop(tp, None)
        if self._loaded_high_watermarks is not None:
            self._loaded_high_watermarks.pop(tp, None)
        self.log_manager.mark_stray(tp)

    def _topic_id_of(self, log: Log) -> uuid.UUID | None:
        return read_topic_id(log.services.disk, log.directory)

    def _open_log(self, hosted: HostedPartition) -> Log:
        tp = hosted.state.tp
        log = self.log_manager.get_log(tp)
        is_fresh = log is None
        if log is None:
            log = self.log_manager.get_or_create_log(tp, is_new=hosted.is_new)
        partition = self._partitions.get(tp)
        if partition is None:
            checkpointed = self._checkpointed_high_watermarks().get(tp, log.log_start_offset)
            log.update_high_watermark(checkpointed)
            if hosted.topic_id is not None and (is_fresh or self._topic_id_of(log) is None):
                with log.log_directory.guard("write partition.metadata"):
                    write_topic_id(log.services.disk, log.directory, hosted.topic_id)
        return log

    def _stop(self, stopped: StoppedPartition) -> ErrorCode:
        tp = stopped.tp
        if tp in self._partitions and self._partitions[tp] is None:
            return ErrorCode.KAFKA_STORAGE_ERROR if stopped.deletes_log else ErrorCode.NONE
        partition = self._partitions.get(tp)
        if (
            partition is not None
            and stopped.leader_epoch >= 0
            and stopped.leader_epoch < partition.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        if not stopped.deletes_log:
            return ErrorCode.NONE
        self._partitions.pop(tp, None)
        try:
            if self.log_manager.get_log(tp) is not None:
                self.log_manager.delete_log(tp)
        except StorageError as error:
            logger.error("%s: %s", tp, error)  # noqa: TRY400 - the message says it all
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def handle_directory_failure(self, lost: Iterable[TopicPartition]) -> None:
        """Partitions whose directory failed answer KAFKA_STORAGE_ERROR until a restart."""
        gone = [tp for tp in lost if tp in self._partitions]
        for tp in gone:
            self._partitions[tp] = None
        self._release((tp, True) for tp in gone)

    # Appending

    def append_records(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        internal_topics_allowed: bool,
        origin: AppendOrigin,
        entries: Mapping[TopicPartition, bytes | bytearray | memoryview],
        respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Appends to leaders here; answers when `required_acks` is satisfied.

        The buffers are used before this returns, never after.
        """
        if required_acks not in (-1, 0, 1):
            respond(dict.fromkeys(entries, ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS)))
            return
        results: dict[TopicPartition, ProduceResult] = {}
        required: dict[TopicPartition, int] = {}
        changed: list[tuple[TopicPartition, bool]] = []
        for tp, records in entries.items():
            if not internal_topics_allowed and tp.topic in self.config.internal_topics:
                results[tp] = ProduceResult(
                    error=ErrorCode.INVALID_TOPIC_EXCEPTION,
                    error_message=f"clients must not write to the internal topic {tp.topic}",
                )
                continue
            results[tp] = self._append(tp, records, origin, required_acks, required, changed)
        if required_acks == -1 and required:
            operation = DelayedProduce(
                timeout_ms,
                required_offsets=required,
                results=results,
                find_leader=self.find_leader,
                respond=respond,
                on_expired=self.stats.mark_produce_expired,
            )
            self.purgatories.produce.try_complete_else_watch(operation, list(required))
        else:
            respond(results)
        self._release(changed)

    def _append(
        self,
        tp: TopicPartition,
        records: bytes | bytearray | memoryview,
        origin: AppendOrigin,
        required_acks: int,
        required: dict[TopicPartition, int],
        changed: list[tuple[TopicPartition, bool]],
    ) -> ProduceResult:
        """Appends to one partition; notes what to wait for and what it changed."""
        stats = self.stats.topic(tp.topic)
        stats.total_produce_requests.mark()
        try:
            partition = self.find_leader(tp)
            info, moved = partition.append_as_leader(
                records, origin=origin, required_acks=required_acks
            )
        except ApiError as error:
            stats.count_refusal(error.code)
            return ProduceResult(
                error=error.code,
                record_errors=error.record_errors if isinstance(error, RecordsError) else (),
                error_message=str(error),
            )
        except StorageError as error:
            stats.failed_produce_requests.mark()
            return ProduceResult(error=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
        first_offset = -1 if info.first_offset is None else info.first_offset
        if not info.is_duplicate:
            stats.count_append(info.valid_bytes, info.message_count)
            changed.append((tp, moved))
        required[tp] = info.last_offset + 1
        return ProduceResult(
            base_offset=first_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )

    # Fetching

    def fetch_messages(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[list[tuple[FetchPartition, FetchResult]]], None],
        *,
        on_parked: Callable[[DelayedFetch], None] | None = None,
    ) -> None:
        """Reads from local logs; waits for more if there is less than `min_bytes`.

        `on_parked` gets the operation that has to be ended if the asker goes away.
        """
        results = self._read_all(params, partitions)
        if params.is_from_follower:
            self._note_follower(params.replica_id, results)
        readable = sum(len(r.records) for _, r in results if r.records is not None)
        if (
            params.max_wait_ms <= 0
            or not partitions
            or readable >= params.min_bytes
            or any(result.error is not ErrorCode.NONE for _, result in results)
        ):
            respond(results)
            return
        places = [(w, r.offset_metadata) for w, r in results if r.offset_metadata is not None]
        operation = DelayedFetch(
            params,
            places,
            find_partition=self.find_partition,
            read_and_respond=lambda: respond(self._read_all(params, partitions)),
            on_expired=lambda: self.stats.mark_fetch_expired(params.is_from_follower),
        )
        parked = not self.purgatories.fetch.try_complete_else_watch(
            operation, [wanted.tp for wanted in partitions]
        )
        if parked and on_parked is not None and not operation.is_completed:
            on_parked(operation)

    def _read_all(
        self, params: FetchParams, partitions: Sequence[FetchPartition]
    ) -> list[tuple[FetchPartition, FetchResult]]:
        """Reads in order under one byte budget; the first batch found may exceed it."""
        results: list[tuple[FetchPartition, FetchResult]] = []
        budget = params.max_bytes
        min_one_message = not params.is_hard_limit
        isolation, only_leader = params.isolation, params.only_from_leader
        for wanted in partitions:
            self.stats.topic(wanted.tp.topic).total_fetch_requests.mark()
            try:
                partition = self.find_partition(wanted.tp, expect_leader=only_leader)
                self._check_fetch_id(wanted, partition)
                data, offsets = partition.read(
                    wanted.fetch_offset,
                    max(0, min(wanted.max_bytes, budget)),
                    isolation,
                    current_leader_epoch=wanted.current_leader_epoch,
                    only_leader=only_leader,
                    min_one_message=min_one_message,
                )
            except ApiError as error:
                results.append((wanted, FetchResult(error.code)))
                continue
            except StorageError:
                results.append((wanted, FetchResult(ErrorCode.KAFKA_STORAGE_ERROR)))
                continue
            records = data.records
            if records is not None and records.length:
                budget -= records.length
                min_one_message = False
            else:
                records = None
            aborted = data.aborted_transactions
            results.append(
                (
                    wanted,
                    FetchResult(
                        ErrorCode.NONE,
                        offsets.high_watermark,
                        offsets.last_stable_offset,
                        offsets.log_start_offset,
                        records,
                        None
                        if aborted is None
                        else [(a.producer_id, a.first_offset) for a in aborted],
                        -1,
                        data.offset_metadata,
                    ),
                )
            )
        return results

    @staticmethod
    def _check_fetch_id(wanted: FetchPartition, partition: Partition) -> None:
        if (
            wanted.topic_id is not None
            and partition.topic_id is not None
            and wanted.topic_id != partition.topic_id
        ):
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{wanted.tp} has topic id {partition.topic_id}, asked for {wanted.topic_id}",
            )

    def _note_follower(
        self, replica_id: int, results: list[tuple[FetchPartition, FetchResult]]
    ) -> None:
        changed: list[tuple[TopicPartition, bool]] = []
        for wanted, result in results:
            partition = self._partitions.get(wanted.tp)
            if partition is None or result.error is not ErrorCode.NONE:
                continue
            moved = partition.apply_follower_fetch(
                replica_id,
                fetch_offset=wanted.fetch_offset,
                log_start_offset=wanted.log_start_offset,
                leader_epoch=wanted.current_leader_epoch,
            )
            if moved:
                changed.append((wanted.tp, True))
        self._release(changed)

    # Offsets

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp: int,
        *,
        current_leader_epoch: int,
        read_committed: bool,
        is_from_consumer: bool,
    ) -> TimestampedOffset | None:
        """The offset at a time, or an end of what the asker may see.

        Raises:
            ApiError: By partition and epoch.
            StorageError: The disk failed.
        """
        partition = self.find_partition(tp, expect_leader=True)
        log = partition.log_for(current_leader_epoch, only_leader=True)
        limit = log.log_end_offset
        if is_from_consumer:
            limit = log.last_stable_offset if read_committed else log.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            return TimestampedOffset(-1, limit, partition.leader_epoch)
        found = fetch_offset_by_timestamp(log, timestamp)
        if timestamp == EARLIEST_TIMESTAMP or found is None or found.offset < limit:
            return found
        return None

    def end_offset_for_epoch(
        self, tp: TopicPartition, *, current_leader_epoch: int, leader_epoch: int
    ) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `leader_epoch`; -1 if unknown.

        Raises:
            ApiError: By partition and epoch.
        """
        log = self.find_partition(tp, expect_leader=True).log_for(
            current_leader_epoch, only_leader=True
        )
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
                requested, low_watermark = self.find_leader(tp).delete_records(offset)
            except ApiError as error:
                results[tp] = DeleteRecordsResult(error.code)
            except StorageError:
                results[tp] = DeleteRecordsResult(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                results[tp] = DeleteRecordsResult(ErrorCode.NONE, low_watermark)
                if low_watermark < requested:
                    pending[tp] = requested
        if not pending:
            respond(results)
            return
        operation = DelayedDeleteRecords(
            timeout_ms,
            requested=pending,
            results=results,
            find_leader=self.find_leader,
            respond=respond,
        )
        self.purgatories.delete_records.try_complete_else_watch(operation, list(pending))

    # In-sync replicas

    def propose_isr_shrinks(self) -> list[tuple[Partition, LeaderAndIsr]]:
        """What the periodic check wants to store; each is settled by `settle_isr`."""
        return [
            (partition, proposal)
            for partition in self.partitions()
            if (proposal := partition.propose_isr_shrink()) is not None
        ]

    def settle_isr(self, partition: Partition, outcome: AlterIsrOutcome) -> None:
        """An ISR change was stored or refused; an unknown outcome stays in flight."""
        change = partition.isr_change
        if change is None or isinstance(outcome, IsrOutcomeUnknown):
            return
        version = outcome.partition_version if isinstance(outcome, IsrAltered) else None
        if version is None:
            self.stats.failed_isr_updates.mark()
        if partition.settle_isr_change(change, version):
            self._release([(partition.tp, True)])

    # High watermark checkpoints

    def _checkpointed_high_watermarks(self) -> dict[TopicPartition, int]:
        if self._loaded_high_watermarks is None:
            self._loaded_high_watermarks = {}
            for directory in self.log_manager.online_directories:
                checkpoint = _high_watermark_file(directory)
                try:
                    self._loaded_high_watermarks.update(checkpoint.read())
                except CorruptCheckpointError as error:
                    logger.warning("%s; high watermarks begin at the log starts", error)
        return self._loaded_high_watermarks

    def checkpoint_high_watermarks(self) -> None:
        """Writes the high watermarks of all partitions, each to its directory.

        Nothing is written before the first role was taken: a half-filled map would forget the
        partitions that are still to come.
        """
        if self._loaded_high_watermarks is None:
            return
        for directory in self.log_manager.online_directories:
            offsets = {
                partition.tp: partition.log.high_watermark
                for partition in self.partitions()
                if partition.log is not None and partition.log.log_directory is directory
            }
            with directory.guard("checkpoint high watermarks"):
                _high_watermark_file(directory).write(offsets)

    # Parked requests

    def _release(self, changed: Iterable[tuple[TopicPartition, bool]]) -> None:
        """Checks the requests that wait for these partitions; (partition, watermark moved)."""
        self._changed.extend(changed)
        if self._is_releasing:
            return
        self._is_releasing = True
        try:
            while self._changed:
                tp, moved = self._changed.popleft()
                self.purgatories.fetch.check_and_complete(tp)
                if moved:
                    self.purgatories.produce.check_and_complete(tp)
                    self.purgatories.delete_records.check_and_complete(tp)
        finally:
            self._is_releasing = False


def _high_watermark_file(directory: LogDirectory) -> OffsetCheckpointFile:
    return OffsetCheckpointFile(f"{directory.path}/{HIGH_WATERMARK_FILE}", directory.disk)
