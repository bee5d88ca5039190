"""Taking the roles a controller gives: lead, follow, stop, delete.

A request for a partition is judged in this order; the first that applies decides, and only the last
two change anything:

1. its log directory is offline: 56;
2. the log here is of another topic id and the partition is not new: 103. Ids can be lost from the
   store, and to delete on such a request would empty all replicas at once;
3. the leader epoch does not exceed ours: 11, unless it is the same with a later version. The epoch
   of a topic that had the same name before says nothing;
4. this broker is not among the replicas: 3;
5. the log here is of another topic id and the partition is new: the log belongs to a deleted topic.
   It is set aside, never deleted;
6. the role is taken. A log is created if there is none, unless it may lie in a directory that is
   offline: 56.
"""

import logging
import uuid
from collections.abc import Callable

from odradek.clock import Clock
from odradek.errors import ApiError, CorruptCheckpointError, ErrorCode, StorageError
from odradek.metadata.delta import HostedPartition, StoppedPartition
from odradek.metadata.image import PartitionState
from odradek.model import TopicPartition
from odradek.replication.high_watermarks import HighWatermarkCheckpoints
from odradek.replication.hosted import HostedPartitions
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.storage.log import Log
from odradek.storage.log_manager import LogManager
from odradek.storage.partition_metadata import read_topic_id, write_topic_id
from odradek.values import dataclass

__all__ = ["RoleChanges"]

logger = logging.getLogger(__name__)

# Stands for an id that cannot be read, so it equals none.
_UNREADABLE = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanges:
    """Gives roles to the partitions of a broker.

    Args:
        broker_id: This broker.
        max_lag_ms: replica.lag.time.max.ms.
        hosted: The partitions.
        log_manager: Where logs are.
        high_watermarks: Where a log that comes back was committed up to.
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

    def take(self, wanted: HostedPartition) -> ErrorCode:
        """Leads or follows, as the controller wants it."""
        tp = wanted.state.tp
        try:
            self._take(wanted)
        except ApiError as error:
            logger.warning("%s: role refused: %s", tp, error)
            return error.code
        except StorageError as error:
            logger.error("%s: %s", tp, error)  # noqa: TRY400 - the message says it all
            self.hosted.mark_offline(tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _take(self, wanted: HostedPartition) -> None:
        state = wanted.state
        tp = state.tp
        if self.hosted.is_offline(tp):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        partition = self.hosted.get(tp)
        log = self.log_manager.get_log(tp)
        found_id = self._topic_id(partition, log)
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
            self._adopt(partition, log, wanted.topic_id)
        is_update = not is_other_topic and self._check_epoch(partition, state)
        if self.broker_id not in state.replicas:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"broker {self.broker_id} is not among the replicas {state.replicas}",
            )
        if is_other_topic:
            logger.warning("%s: the log of another topic (%s) is set aside", tp, found_id)
            self._forget(tp)
            self.log_manager.mark_stray(tp)
            partition = log = None
        if is_update:
            assert partition is not None
            partition.apply_update(state)
            if partition.is_leader:
                partition.maybe_increment_high_watermark()
            return
        self._begin(partition, log, wanted)

    def _check_epoch(self, partition: Partition | None, state: PartitionState) -> bool:
        """Whether this is a later version of the role the partition has; a new role otherwise.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH, it is neither.
        """
        if partition is None or state.leader_epoch > partition.leader_epoch:
            return False
        if (
            state.leader_epoch == partition.leader_epoch
            and state.leader == partition.leader_id
            and state.partition_version > partition.partition_version
        ):
            return True
        raise ApiError(
            ErrorCode.STALE_CONTROLLER_EPOCH,
            f"leader epoch {state.leader_epoch} (version {state.partition_version}) does not exceed"
            f" {partition.leader_epoch} (version {partition.partition_version})",
        )

    def _begin(self, partition: Partition | None, log: Log | None, wanted: HostedPartition) -> None:
        """Takes a role in a new leader epoch."""
        state = wanted.state
        tp = state.tp
        if log is None:
            log = self.log_manager.get_or_create_log(tp, is_new=wanted.is_new)
            if wanted.topic_id is not None:
                self._adopt(partition, log, wanted.topic_id)
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
            partition.make_leader(state, log)
            partition.maybe_increment_high_watermark()
        else:
            partition.make_follower(state, log)
        if is_first:
            self.hosted.add(partition)
            self.high_watermarks.forget(tp)

    def stop(self, stopped: StoppedPartition) -> ErrorCode:
        """Stops a replica, and deletes it if the controller wants that."""
        tp = stopped.tp
        if self.hosted.is_offline(tp):
            return ErrorCode.KAFKA_STORAGE_ERROR if stopped.deletes_log else ErrorCode.NONE
        partition = self.hosted.get(tp)
        if partition is not None and 0 <= stopped.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if not stopped.deletes_log:
            return ErrorCode.NONE
        self._forget(tp)
        try:
            # Also a log without a role: its topic was deleted while this broker was down.
            self.log_manager.delete_log(tp)
        except StorageError as error:
            logger.error("%s: %s", tp, error)  # noqa: TRY400 - the message says it all
            self.hosted.mark_offline(tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _forget(self, tp: TopicPartition) -> None:
        self.hosted.remove(tp)
        self.high_watermarks.forget(tp)

    # Topic ids

    def _topic_id(self, partition: Partition | None, log: Log | None) -> uuid.UUID | None:
        """The id of the topic that the local log belongs to."""
        if partition is not None or log is None:
            return None if partition is None else partition.topic_id
        try:
            return read_topic_id(log.services.disk, log.directory)
        except CorruptCheckpointError as error:
            logger.warning("%s: %s", log.topic_partition, error)
            return _UNREADABLE
        except OSError as error:
            raise log.fail("read partition.metadata", error) from error

    def _adopt(self, partition: Partition | None, log: Log, topic_id: uuid.UUID) -> None:
        """Writes down the id of a log that had none."""
        try:
            write_topic_id(log.services.disk, log.directory, topic_id)
        except OSError as error:
            raise log.fail("write partition.metadata", error) from error
        if partition is not None:
            partition.topic_id = topic_id
