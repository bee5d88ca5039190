"""Appends to the partitions that this broker leads.

One bad partition never stops the others of a request: its error is its result. What an append
changed is noted; `odradek.replication.parked` says when the requests that wait for it are checked.

A *single* append is one of a single partition: the everyday one, without a mapping of results. Its
answer is returned and not called back with.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from odradek.errors import ApiError, ErrorCode, RecordsError, StorageError
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import Buffer, parse_header
from odradek.records.control import parse_end_transaction_marker
from odradek.replication.delayed_produce import DelayedProduce, ProduceResult
from odradek.replication.hosted import HostedPartitions
from odradek.replication.parked import ParkedRequests, Purgatories
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.expansion import ExpansionDeferredError, InlineBudget

__all__ = ["Appends"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE


class Appends:
    """The append side of a `ReplicaManager`.

    Args:
        hosted: The partitions here.
        parked: Notes the partitions that change.
        purgatories: Where requests wait.
        stats: Meters of the topics.
        internal_topics: Clients must not write to these.
        inline_budget: How many bytes the batches of a request may expand to on the loop.
    """

    __slots__ = (
        "_hosted",
        "_inline_budget",
        "_internal_topics",
        "_parked",
        "_purgatories",
        "_stats",
    )

    def __init__(
        self,
        hosted: HostedPartitions,
        parked: ParkedRequests,
        purgatories: Purgatories,
        stats: ReplicationStats,
        internal_topics: frozenset[str],
        inline_budget: InlineBudget,
    ) -> None:
        self._hosted = hosted
        self._parked = parked
        self._purgatories = purgatories
        self._stats = stats
        self._internal_topics = internal_topics
        self._inline_budget = inline_budget

    def append_records(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        internal_topics_allowed: bool,
        origin: AppendOrigin,
        entries: Mapping[TopicPartition, Buffer],
        respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    ) -> Mapping[TopicPartition, ProduceResult]:
        """Appends to leaders here; answers when `required_acks` is satisfied.

        The buffers are used before this returns, never after.

        Returns:
            The results of the local appends, whether or not the request waits for replicas.
        """
        results: dict[TopicPartition, ProduceResult] = {}
        if required_acks not in (-1, 0, 1):
            results = dict.fromkeys(entries, ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS))
            respond(results)
            return results
        is_outermost = self._parked.begin()
        try:
            pending: dict[TopicPartition, int] = {}
            self._inline_budget.begin()
            try:
                for tp, records in entries.items():
                    if not internal_topics_allowed and tp.topic in self._internal_topics:
                        results[tp] = self._refuse_internal(tp)
                    else:
                        results[tp] = self._append(tp, records, origin, required_acks, pending)
            finally:
                self._inline_budget.end()
            if pending:
                self._park_produce(timeout_ms, pending, results, respond)
            else:
                respond(results)
            return results
        finally:
            if is_outermost:
                self._parked.end()

    def append_markers(
        self,
        partitions: Iterable[TopicPartition],
        batch: bytes,
        *,
        transaction_version: int,
        timeout_ms: int,
        respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Appends a transaction marker to leaders here; answers when all in-sync replicas have it.

        Args:
            partitions: Those that it ends its transaction in.
            batch: The control batch.
            transaction_version: Decides which epochs of producers are late.
            timeout_ms: How long to wait for the replicas.
            respond: Takes the results.
        """
        results: dict[TopicPartition, ProduceResult] = {}
        pending: dict[TopicPartition, int] = {}
        is_outermost = self._parked.begin()
        try:
            self._append_marker(partitions, batch, transaction_version, results, pending)
            if pending:
                self._park_produce(timeout_ms, pending, results, respond)
            else:
                respond(results)
        finally:
            if is_outermost:
                self._parked.end()

    def append_markers_unreplicated(
        self, partitions: Iterable[TopicPartition], batch: bytes, *, transaction_version: int
    ) -> Mapping[TopicPartition, ProduceResult]:
        """As `append_markers`, at once, for partitions of which no replica has to be awaited.

        Requests that wait for them are checked after the caller has answered.
        """
        results: dict[TopicPartition, ProduceResult] = {}
        pending: dict[TopicPartition, int] = {}
        is_outermost = self._parked.begin()
        try:
            self._append_marker(partitions, batch, transaction_version, results, pending)
            assert not pending, "the caller has looked for followers"
            return results
        finally:
            if is_outermost:
                self._parked.end_after_answers()

    def _append_marker(
        self,
        partitions: Iterable[TopicPartition],
        batch: bytes,
        transaction_version: int,
        results: dict[TopicPartition, ProduceResult],
        pending: dict[TopicPartition, int],
    ) -> None:
        """Appends a marker to each partition, unless its epochs are late there.

        The append checks them, too, but does not know the version of the transaction.
        """
        header = parse_header(batch)
        assert header is not None
        marker = parse_end_transaction_marker(batch, header=header)
        assert marker is not None, "made by this broker"
        for tp in partitions:
            try:
                partition = self._hosted.get(tp) or self._hosted.find_leader(tp)
                partition.leader_log().producer_state.check_marker(
                    header, marker, transaction_version=transaction_version
                )
            except ApiError as error:
                results[tp] = _refusal(tp, error)
                continue
            results[tp] = self._append(tp, batch, AppendOrigin.COORDINATOR, -1, pending)

    def append_single(
        self, partition: Partition, records: Buffer, required_acks: int
    ) -> LogAppendInfo | ProduceResult:
        """Appends a client's batches to a partition that `find_online` found; acks is 1 or all.

        Requests that wait for the new records are checked after the caller has answered.

        Returns:
            What was stored, or the answer if nothing was. With followers and acks=all the caller
            continues with `await_replicas`.
        """
        is_outermost = self._parked.begin()
        try:
            return self._append_to(partition, records, AppendOrigin.CLIENT, required_acks)
        except Exception as error:  # noqa: BLE001 - it must not end other requests
            partition.stats.count_refusal(error, records)
            return _refusal(partition.tp, error)
        finally:
            if is_outermost:
                self._parked.end_after_answers()

    def await_replicas(
        self,
        partition: Partition,
        info: LogAppendInfo,
        timeout_ms: int,
        respond: Callable[[ProduceResult], None],
    ) -> None:
        """Answers an `append_single` once all in-sync replicas have its records, or at once."""
        tp = partition.tp
        required_offset = info.last_offset + 1
        is_enough, error_code = partition.has_enough_replicas(required_offset)
        result = _result_of(info, error_code)
        if is_enough:
            respond(result)
        else:
            self._park_produce(
                timeout_ms,
                {tp: required_offset},
                {tp: result},
                lambda results: respond(results[tp]),
            )

    def _park_produce(
        self,
        timeout_ms: int,
        pending: Mapping[TopicPartition, int],
        results: Mapping[TopicPartition, ProduceResult],
        respond: Callable[[Mapping[TopicPartition, ProduceResult]], None],
    ) -> None:
        operation = DelayedProduce(
            timeout_ms,
            required_offsets=pending,
            results=results,
            find_leader=self._hosted.find_leader,
            respond=respond,
            on_expired=self._stats.mark_produce_expired,
        )
        self._purgatories.produce.try_complete_else_watch(operation, list(pending))

    def try_append_unreplicated(
        self, tp: TopicPartition, records: Buffer, origin: AppendOrigin, leader_epoch: int
    ) -> ProduceResult | None:
        """Does `append_records` with acks=all at once, for a partition without other replicas.

        Returns None and appends nothing if there may be a replica to wait for, or if this broker
        does not lead in that epoch.
        """
        partition = self._hosted.get(tp)
        if (
            partition is None
            or partition.followers
            or not partition.is_leader
            or partition.leader_epoch != leader_epoch
        ):
            return None
        is_outermost = self._parked.begin()
        try:
            return _result_of(self._append_to(partition, records, origin, -1), _NONE)
        except Exception as error:  # noqa: BLE001 - the caller learns why
            partition.stats.count_refusal(error, records)
            return _refusal(tp, error)
        finally:
            if is_outermost:
                self._parked.end()

    def _refuse_internal(self, tp: TopicPartition) -> ProduceResult:
        partition = self._hosted.get(tp)
        (self._stats.all_topics if partition is None else partition.stats).count_refused()
        return ProduceResult(
            error=ErrorCode.INVALID_TOPIC_EXCEPTION,
            error_message=f"clients must not write to the internal topic {tp.topic}",
        )

    def _append(
        self,
        tp: TopicPartition,
        records: Buffer,
        origin: AppendOrigin,
        required_acks: int,
        pending: dict[TopicPartition, int],
    ) -> ProduceResult:
        """Appends to one partition; adds the offset that replicas must reach to `pending`."""
        stats = self._stats.all_topics
        try:
            partition = self._hosted.get(tp) or self._hosted.find_leader(tp)
            stats = partition.stats
            info = self._append_to(partition, records, origin, required_acks)
        except Exception as error:  # noqa: BLE001 - one partition never fails its neighbours
            stats.count_refusal(error, records)
            return _refusal(tp, error)
        error_code = _NONE
        if required_acks == -1:
            required_offset = info.last_offset + 1
            is_enough, error_code = partition.has_enough_replicas(required_offset)
            if not is_enough:
                pending[tp] = required_offset
        return _result_of(info, error_code)

    def _append_to(
        self, partition: Partition, records: Buffer, origin: AppendOrigin, required_acks: int
    ) -> LogAppendInfo:
        """Appends to one partition and notes the change if a request waits for the partition.

        Raises:
            Exception: As `Partition.append_as_leader`.
        """
        parked = self._parked
        parked.shared_read = None  # Read before this append: it lacks the new records.
        before = partition.high_watermark if partition.has_followers else -1
        info = partition.append_as_leader(records, origin, required_acks)
        if info.is_duplicate:
            partition.stats.count_refused()
            return info
        partition.stats.count_append(info.valid_bytes, info.message_count)
        tp = partition.tp
        if parked.is_awaited(tp):
            # Without followers a batch is committed as soon as it is appended.
            parked.note(tp, before < 0 or partition.high_watermark > before)
        return info


def _result_of(info: LogAppendInfo, error: ErrorCode) -> ProduceResult:
    return ProduceResult(
        error,
        -1 if info.first_offset is None else info.first_offset,
        info.log_append_time,
        info.log_start_offset,
    )


def _refusal(tp: TopicPartition, error: Exception) -> ProduceResult:
    """The answer to an append that was refused or failed."""
    if isinstance(error, ApiError):
        return ProduceResult(
            error=error.code,
            record_errors=error.record_errors if isinstance(error, RecordsError) else (),
            error_message=str(error),
            expand=error.expand if isinstance(error, ExpansionDeferredError) else None,
        )
    if isinstance(error, StorageError):
        return ProduceResult(error=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
    logger.error("%s: append failed", tp, exc_info=error)
    return ProduceResult(error=ErrorCode.UNKNOWN_SERVER_ERROR)
