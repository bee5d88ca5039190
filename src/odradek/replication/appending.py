"""Appends to the partitions that this broker leads, and the release of requests that wait for them.

One bad partition never stops the others of a request: its error is its result.

Answers may come later. What an append changed is noted while it runs, and the requests that wait
for it are checked once it has given its own answer (04b section 9). An answer that asks for more,
as a pipelined client's does, only adds to the notes of the call below it: the stack stays flat, and
no partition is touched in the middle of its append.

A *lone* append is one of a single partition: the everyday one, without a mapping of results. Its
answer is returned and not called back with, so whoever waits is checked `after_answers`: when the
answers of the requests that were found with it are on their way.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.errors import ApiError, ErrorCode, RecordsError, StorageError
from odradek.model import AppendOrigin, TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.records.batch import Buffer
from odradek.replication.delayed_delete_records import DelayedDeleteRecords
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.delayed_produce import DelayedProduce, ProduceResult
from odradek.replication.hosted import HostedPartitions
from odradek.replication.local_reads import SharedRead
from odradek.replication.partition import Partition
from odradek.replication.stats import ReplicationStats
from odradek.storage.log.append_analysis import LogAppendInfo
from odradek.storage.log.expansion import ExpansionDeferredError, InlineBudget

__all__ = ["Appends", "Purgatories"]

logger = logging.getLogger(__name__)

_NONE = ErrorCode.NONE


class Purgatories(NamedTuple):
    """Where requests wait, by kind."""

    produce: DelayedOperationPurgatory[DelayedProduce]
    fetch: DelayedOperationPurgatory[DelayedFetch]
    delete_records: DelayedOperationPurgatory[DelayedDeleteRecords]


class Appends:
    """The append side of a `ReplicaManager`.

    Args:
        hosted: The partitions here.
        purgatories: Where requests wait.
        stats: Meters of the topics.
        internal_topics: Clients must not write to these.
        inline_budget: What the batches of a request may expand to on the loop.
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        purgatories: Purgatories,
        stats: ReplicationStats,
        internal_topics: frozenset[str],
        inline_budget: InlineBudget,
    ) -> None:
        self._hosted = hosted
        self.purgatories = purgatories
        self.stats = stats
        self._internal_topics = internal_topics
        self._inline_budget = inline_budget
        # Partitions whose waiting requests have to be checked, in order, and whether a watermark
        # of theirs moved.
        self._changed: dict[TopicPartition, bool] = {}
        # Whether anybody waits for a partition, by kind.
        self._is_fetch_waiting = purgatories.fetch.is_watched
        self._is_produce_waiting = purgatories.produce.is_watched
        self._is_delete_waiting = purgatories.delete_records.is_watched
        # Whether a call is under way that will look through `_changed` at its end.
        self._is_busy = False
        # While the fetches that wait for one partition are checked: what was read for the last.
        self._is_checking_fetches = False
        self._shared_read: SharedRead | None = None
        # Calls back once, when the answers of the requests under way are on their way to their
        # clients. None: there is nobody who would know, and waiting requests are checked at once.
        self.after_answers: Callable[[Callable[[], None]], None] | None = None
        self._is_check_asked_for = False

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
            What the appends here came to, whether or not others are waited for.
        """
        results: dict[TopicPartition, ProduceResult] = {}
        if required_acks not in (-1, 0, 1):
            results = dict.fromkeys(entries, ProduceResult(error=ErrorCode.INVALID_REQUIRED_ACKS))
            respond(results)
            return results
        is_outermost, self._is_busy = not self._is_busy, True
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
                self._check_waiting()

    def append_lone(
        self, partition: Partition, records: Buffer, required_acks: int
    ) -> LogAppendInfo | ProduceResult:
        """A client's append to one partition that `find_online` found, 1 or all acks required.

        Whoever waits for what it makes readable is checked after the caller has answered.

        Returns:
            What was stored, or the answer if nothing was. Where there are followers and all have to
            have it, `await_replicas` follows.
        """
        was_busy, self._is_busy = self._is_busy, True
        try:
            return self._append_to(partition, records, AppendOrigin.CLIENT, required_acks)
        except Exception as error:  # noqa: BLE001 - it must not end other requests
            partition.stats.count_refusal(error, records)
            return _refusal(partition.tp, error)
        finally:
            if was_busy:
                pass
            elif self._changed:
                self._check_waiting_later()
            else:
                self._is_busy = False

    def await_replicas(
        self,
        partition: Partition,
        info: LogAppendInfo,
        timeout_ms: int,
        respond: Callable[[ProduceResult], None],
    ) -> None:
        """Answers what `append_lone` stored once it is on all in-sync replicas, perhaps at once."""
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
            on_expired=self.stats.mark_produce_expired,
        )
        self.purgatories.produce.try_complete_else_watch(operation, list(pending))

    def try_append_lone(
        self, tp: TopicPartition, records: Buffer, origin: AppendOrigin, leader_epoch: int
    ) -> ProduceResult | None:
        """`append_records` with acks=all for one partition that has no other replica, at once.

        None, with nothing done, if there may be a replica to wait for, or this broker does not
        lead in that epoch.
        """
        partition = self._hosted.get(tp)
        if (
            partition is None
            or partition.followers
            or not partition.is_leader
            or partition.leader_epoch != leader_epoch
        ):
            return None
        is_outermost, self._is_busy = not self._is_busy, True
        try:
            return _result_of(self._append_to(partition, records, origin, -1), _NONE)
        except Exception as error:  # noqa: BLE001 - the caller learns why
            partition.stats.count_refusal(error, records)
            return _refusal(tp, error)
        finally:
            if is_outermost:
                self._check_waiting()

    def _refuse_internal(self, tp: TopicPartition) -> ProduceResult:
        partition = self._hosted.get(tp)
        (self.stats.all_topics if partition is None else partition.stats).count_refused()
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
        """Appends to one partition; notes what it changed, and what has yet to be waited for."""
        stats = self.stats.all_topics
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
        """Appends to one partition and notes what it changed, if anybody waits for that.

        Raises:
            Exception: As `Partition.append_as_leader`.
        """
        self._shared_read = None  # A request that an answer brought at once: read again.
        before = partition.high_watermark if partition.has_followers else -1
        info = partition.append_as_leader(records, origin, required_acks)
        if info.is_duplicate:
            partition.stats.count_refused()
            return info
        partition.stats.count_append(info.valid_bytes, info.message_count)
        tp = partition.tp
        if (
            self._is_fetch_waiting(tp)
            or self._is_produce_waiting(tp)
            or self._is_delete_waiting(tp)
        ):
            # Without followers it is committed with the append.
            moved = before < 0 or partition.high_watermark > before
            self._changed[tp] = moved or self._changed.get(tp, False)
        return info

    # Parked requests

    def _release(self, changed: Iterable[tuple[TopicPartition, bool]]) -> None:
        """Has the requests checked that wait for these partitions; (partition, watermark moved)."""
        self._shared_read = None
        for tp, moved in changed:
            self._changed[tp] = moved or self._changed.get(tp, False)
        if not self._is_busy:
            self._is_busy = True
            self._check_waiting()

    def _check_waiting_later(self) -> None:
        """Has what was noted worked off when the answers of this moment are given."""
        if self.after_answers is None:
            self._check_waiting()
            return
        self._is_busy = False
        if not self._is_check_asked_for:
            self._is_check_asked_for = True
            self.after_answers(self._on_answers_given)

    def _on_answers_given(self) -> None:
        self._is_check_asked_for = False
        self._release(())

    def _check_waiting(self) -> None:
        """Works off what was noted; a call that is made meanwhile adds to it."""
        fetch, produce, delete_records = (
            self.purgatories.fetch,
            self.purgatories.produce,
            self.purgatories.delete_records,
        )
        changed = self._changed
        try:
            while changed:
                tp = next(iter(changed))
                moved = changed.pop(tp)
                self._is_checking_fetches = True
                fetch.check_and_complete(tp)
                self._is_checking_fetches = False
                self._shared_read = None
                if moved:
                    produce.check_and_complete(tp)
                    delete_records.check_and_complete(tp)
        finally:
            self._is_busy = self._is_checking_fetches = False
            self._shared_read = None


def _result_of(info: LogAppendInfo, error: ErrorCode) -> ProduceResult:
    return ProduceResult(
        error,
        -1 if info.first_offset is None else info.first_offset,
        info.log_append_time,
        info.log_start_offset,
    )


def _refusal(tp: TopicPartition, error: Exception) -> ProduceResult:
    """What a client is told of an append that was refused, or failed."""
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
