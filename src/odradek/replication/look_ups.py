"""A leader's answers besides records: offsets by time, ends of epochs, deletions of records.

`delete_records` calls `respond` exactly once: before it returns, or when its parked operation ends.
"""

from collections.abc import Callable, Mapping

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.protocol.enums import EARLIEST, LATEST
from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from odradek.replication.hosted import HostedPartitions
from odradek.replication.parked import ParkedRequests
from odradek.storage.segments.timestamp_search import (
    OpenedBatches,
    TimestampedOffset,
    fetch_offset_by_timestamp,
)

__all__ = ["LookUps"]

_NONE = ErrorCode.NONE


class LookUps:
    """The look-ups of a `ReplicaManager`.

    Args:
        hosted: The partitions here.
        parked: Wakes followers that wait for news of a log start.
        purgatory: Where deletions of records wait.
        internal_topics: Clients must not delete from these.
    """

    __slots__ = ("_hosted", "_internal_topics", "_parked", "_purgatory")

    def __init__(
        self,
        hosted: HostedPartitions,
        parked: ParkedRequests,
        purgatory: DelayedOperationPurgatory[DelayedDeleteRecords],
        internal_topics: frozenset[str],
    ) -> None:
        self._hosted = hosted
        self._parked = parked
        self._purgatory = purgatory
        self._internal_topics = internal_topics

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
        """The first offset at or after a time, or the start or end of what the reader may see.

        Raises:
            SearchDeferredError: A batch has to be opened first; only if `opened` is given.
            ApiError: By partition and epoch; OFFSET_NOT_AVAILABLE while a new leader does not know
                yet how far its log is committed, since its answer could be lower than an earlier
                one.
            StorageError: The disk failed.
        """
        partition = self._hosted.find_leader(tp)
        log = partition.log_for(current_leader_epoch, only_leader=True)
        limit = log.log_end_offset
        is_late = False
        if is_from_consumer:
            limit = log.last_stable_offset if read_committed else log.high_watermark
            is_late = partition.epoch_start_offset > log.high_watermark
        if timestamp == EARLIEST:
            return fetch_offset_by_timestamp(log, timestamp)
        if timestamp != LATEST:
            found = fetch_offset_by_timestamp(log, timestamp, opened)
            if found is not None and found.offset < limit:
                return found
        if is_late:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{tp}: the high watermark {log.high_watermark} has not reached the start"
                f" {partition.epoch_start_offset} of epoch {partition.leader_epoch}",
            )
        if timestamp == LATEST:
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
        """Raises log starts; answers when every live replica has raised its own."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: dict[TopicPartition, int] = {}
        for tp, offset in offsets.items():
            try:
                if tp.topic in self._internal_topics:
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
        self._purgatory.try_complete_else_watch(operation, list(pending))
        self._parked.release(())
