"""The outcome of a batch that was sent, or was given up: the meaning of answers and failures.

================================================  ===============================================
written, or DUPLICATE_SEQUENCE_NUMBER             done; the offset of a duplicate is not known
MESSAGE_TOO_LARGE with several records            two halves take its place
retriable, or no answer                           back to the front after a pause, if in time;
                                                  new metadata first, where the error says so
OUT_OF_ORDER_SEQUENCE_NUMBER and such             back to the front; if it was the first without
                                                  an answer, the partition begins anew (`batch`)
anything else                                     failed
================================================  ===============================================

In a transaction a partition does not begin anew: where it would, the batch fails, and with it the
transaction. An old epoch there means that another producer has taken over.

A numbered batch that fails leaves a hole in the numbers of its partition (`batch`, rule 3). One
that is given up while it is in flight has its outcome at once, but counts as in flight until its
answer: only then is it known whether the log has it.
"""

import logging
import threading
from collections.abc import Callable
from random import Random
from typing import Final

from odradek.client.leaders import api_error
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.batch import NO_SEQUENCE, Batch, PartitionQueue
from odradek.client.producer.config import ProducerOptions
from odradek.client.producer.errors import ProducerFencedError
from odradek.client.producer.metrics import ProducerMetrics
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.model import TopicPartition
from odradek.protocol.messages.produce import PartitionProduceResponse

__all__ = ["Answers"]

logger = logging.getLogger(__name__)

_JITTER: Final = 0.2

# The numbers of a batch do not follow those the broker has.
_OUT_OF_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
# Another producer has the transactional id now.
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Answers after which the batch may be in the log all the same.
_MAYBE_STORED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Answers:
    """See the module's docstring. All methods are called on the loop.

    Args:
        lock: The producer's, which guards queues and the buffer.
        now_s: The loop's time.
        forget_leader: Called with a queue and the broker that does not lead it any more.
        on_finish: Called with each batch that has its outcome. Its exceptions are logged.
    """

    def __init__(
        self,
        options: ProducerOptions,
        accumulator: Accumulator,
        metrics: ProducerMetrics,
        *,
        lock: threading.Lock,
        now_s: Callable[[], float],
        rng: Random,
        forget_leader: Callable[[PartitionQueue, int], None],
        on_finish: Callable[[Batch], None],
    ) -> None:
        self._options = options
        self._accumulator = accumulator
        self._metrics = metrics
        self._lock = lock
        self._now_s = now_s
        self._rng = rng
        self._forget_leader = forget_leader
        self._on_finish = on_finish

    def judge(self, batch: Batch, told: PartitionProduceResponse | None, leader: int) -> None:
        """Handles a broker's answer for this batch; None if the answer leaves the partition out."""
        if told is None:
            what = f"broker {leader} left {batch.topic}-{batch.partition} out of its answer"
            self.take_back(batch, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, what), leader)
        elif told.error_code == ErrorCode.NONE:
            batch.queue.is_known = True
            self.finish(batch, base_offset=told.base_offset, append_time_ms=told.log_append_time_ms)
        elif told.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.queue.is_known = True
            self.finish(batch)
        else:
            faults = [one.batch_index_error_message for one in told.record_errors]
            message = told.error_message or next(filter(None, faults), None)
            tp = TopicPartition(batch.topic, batch.partition)
            self.take_back(batch, api_error(told.error_code, message, tp), leader)

    def take_back(
        self, batch: Batch, error: ApiError, leader: int, *, was_sent: bool = True
    ) -> None:
        """Handles a batch that was not acknowledged."""
        queue = batch.queue
        _land(batch)
        if batch.is_done:
            queue.forget(batch)
            return
        code = error.code
        if was_sent and code in _MAYBE_STORED:
            batch.is_maybe_stored = True
        if code is ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1:
            self._split(batch)
            return
        is_out_of_sequence = code in _OUT_OF_SEQUENCE and batch.sequence != NO_SEQUENCE
        if self._options.transactional_id is not None:
            if code in _FENCED:
                self.fail(batch, ProducerFencedError(self._options.transactional_id))
                return
            if is_out_of_sequence and queue.unanswered[0] is batch:
                self.fail(batch, error)
                return
        if is_out_of_sequence:
            batch.is_maybe_stored = False
            if queue.unanswered[0] is batch:
                queue.is_broken = True
        if code.refresh_metadata:
            self._forget_leader(queue, leader)
        if not (code.retriable or is_out_of_sequence) or batch.attempts > self._options.retries:
            self.fail(batch, error)
            return
        batch.last_failure = error
        self._metrics.records_retried.value += batch.record_count
        queue.retry_at_s = self._now_s() + self.pause_s(batch.attempts)
        with self._lock:
            queue.come_back(batch)
            self._accumulator.active[queue] = None

    def _split(self, batch: Batch) -> None:
        """Replaces a batch that is too large by its halves."""
        queue = batch.queue
        halves = batch.halves()
        queue.max_batch_bytes = 0  # No batch of it grows any more: the topic takes smaller ones.
        self._metrics.batch_splits.value += 1
        accumulator = self._accumulator
        with self._lock:
            queue.replace(batch, halves)
            accumulator.active[queue] = None
            accumulator.incomplete.pop(batch, None)
            # Batches are given up in this order; the halves are as old as the whole.
            rest = [*halves, *accumulator.incomplete]
            rest.sort(key=lambda one: one.deadline_s)
            accumulator.incomplete.clear()
            accumulator.incomplete.update(dict.fromkeys(rest))
        batch.forget_records()

    def finish(self, batch: Batch, *, base_offset: int = -1, append_time_ms: int = -1) -> None:
        """Ends a batch that is in the log."""
        _land(batch)
        self._end(batch, base_offset=base_offset, append_time_ms=append_time_ms, error=None)

    def fail(self, batch: Batch, error: OdradekError) -> None:
        """Ends a batch that is not in flight, and will not be sent again."""
        _land(batch)
        self.give_up(batch, error)

    def give_up(self, batch: Batch, error: OdradekError) -> None:
        """The same, but if it is in flight it stays so until its answer."""
        if batch.sequence != NO_SEQUENCE:
            batch.queue.is_broken = True
        self._end(batch, base_offset=-1, append_time_ms=-1, error=error)

    def _end(
        self, batch: Batch, *, base_offset: int, append_time_ms: int, error: OdradekError | None
    ) -> None:
        if not batch.is_in_flight:
            batch.queue.forget(batch)
        if batch.finish(base_offset=base_offset, append_time_ms=append_time_ms, error=error):
            if error is None:
                self._metrics.records_sent.value += batch.record_count
            else:
                self._metrics.records_failed.value += batch.record_count
            try:
                self._on_finish(batch)
            except Exception:  # its memory must become free in any case
                logger.exception("the outcome of a batch for %s-%d", batch.topic, batch.partition)
            batch.forget_records()
            with self._lock:
                self._accumulator.free(batch)

    def pause_s(self, attempts: int) -> float:
        """How long to wait after so many attempts: longer each time, never quite the same."""
        options = self._options
        pause_ms = min(
            options.retry_backoff_ms << min(attempts - 1, 20), options.retry_backoff_max_ms
        )
        return pause_ms * self._rng.uniform(1 - _JITTER, 1 + _JITTER) / 1000


def _land(batch: Batch) -> None:
    if batch.is_in_flight:
        batch.is_in_flight = False
        batch.queue.in_flight_count -= 1
