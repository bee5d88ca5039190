"""What an answer means for a batch: the table of `answers`, line by line, without a broker."""

from random import Random

import pytest

from odradek.client.producer.answers import Answers
from odradek.client.producer.batch import Batch, PartitionQueue
from odradek.client.producer.config import read_producer_settings
from odradek.client.producer.metrics import ProducerMetrics
from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.protocol.messages.produce import PartitionProduceResponse
from tests.unit.client.producer.test_partitioning import accumulator

LEADER = 4
NOW_S = 100.0
ID, EPOCH = 7, 0


class Flight:
    """Batches of one partition that are in flight, numbered, one record or more in each."""

    def __init__(self, *record_counts: int, retries: int = 2**31 - 1) -> None:
        self.accumulator, topic = accumulator(1)
        self.queue: PartitionQueue = topic.queues[0]
        self.queue.begin_anew(ID, EPOCH)
        self.metrics = ProducerMetrics(NOW_S)
        self.finished: list[Batch] = []
        self.forgotten: list[int] = []
        settings = {"bootstrap_servers": "a:1", "retries": retries, "retry_backoff_ms": 1_000}
        _, options = read_producer_settings(None, settings)
        self.answers = Answers(
            options,
            self.accumulator,
            self.metrics,
            lock=self.accumulator._owner.lock,
            now_s=lambda: NOW_S,
            rng=Random(1),
            forget_leader=lambda _, leader: self.forgotten.append(leader),
            on_finish=self.finished.append,
        )
        self.free_bytes = self.accumulator.free_bytes
        self.batches = [self._let_go(count) for count in record_counts]

    def _let_go(self, record_count: int) -> Batch:
        for number in range(record_count):
            self.accumulator.append("t", b"%d" % number, None, (), 0, None)
        self.accumulator.close_batch(self.queue)
        batch = self.queue.closed.popleft()
        self.queue.number(batch)
        batch.attempts = 1
        batch.is_in_flight = True
        self.queue.in_flight_count += 1
        return batch

    def answer(self, batch: Batch, code: ErrorCode, base_offset: int = -1) -> None:
        told = PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
        self.answers.judge(batch, told, LEADER)


@pytest.mark.parametrize(
    ("code", "base_offset"), [(ErrorCode.NONE, 50), (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)]
)
def test_what_is_written_is_done(code: ErrorCode, base_offset: int) -> None:
    """09:CL-14: a duplicate is written, too; only where, nobody says."""
    flight = Flight(2)
    (batch,) = flight.batches
    flight.answer(batch, code, base_offset)

    assert flight.finished == [batch]
    assert (batch.error, batch.base_offset) == (None, base_offset)
    assert flight.queue.is_known
    assert flight.queue.is_idle
    assert not flight.queue.unanswered
    assert flight.accumulator.free_bytes == flight.free_bytes
    assert flight.metrics.records_sent.value == 2


def test_what_is_too_large_comes_back_in_halves() -> None:
    """09:CL-15: with the numbers of the whole, and as old as it was."""
    flight = Flight(3, 1)
    whole, behind = flight.batches
    flight.answer(whole, ErrorCode.MESSAGE_TOO_LARGE)

    first, second = flight.queue.closed
    assert [(one.sequence, one.record_count) for one in (first, second)] == [(0, 2), (2, 1)]
    assert flight.queue.unanswered == [first, second, behind]
    assert list(flight.accumulator.incomplete) == [first, second, behind]
    assert not flight.finished


def test_one_record_that_is_too_large_fails() -> None:
    """09:CL-15: there is nothing to split."""
    flight = Flight(1)
    (batch,) = flight.batches
    flight.answer(batch, ErrorCode.MESSAGE_TOO_LARGE)

    assert flight.finished == [batch]
    assert isinstance(batch.error, ApiError)
    assert flight.queue.is_broken
    assert flight.metrics.records_failed.value == 1


def test_what_may_be_sent_again_comes_back_in_order_after_a_pause() -> None:
    """09:CL-2, 09:CL-14: whichever is answered first."""
    flight = Flight(1, 1)
    first, second = flight.batches
    flight.answer(second, ErrorCode.NOT_ENOUGH_REPLICAS)
    flight.answer(first, ErrorCode.NOT_ENOUGH_REPLICAS)

    assert list(flight.queue.closed) == [first, second]
    assert [one.sequence for one in (first, second)] == [0, 1]
    assert NOW_S + 0.8 <= flight.queue.retry_at_s <= NOW_S + 1.2
    assert not first.is_maybe_stored
    assert not flight.queue.is_broken
    assert not flight.forgotten


def test_who_does_not_lead_is_forgotten() -> None:
    """09:CL-4: the next attempt needs to know who does."""
    flight = Flight(1)
    (batch,) = flight.batches
    flight.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    assert flight.forgotten == [LEADER]
    assert list(flight.queue.closed) == [batch]


def test_only_the_first_that_is_out_of_order_breaks_the_numbers() -> None:
    """09:CL-14: one behind may be out of order because the first has not arrived yet."""
    flight = Flight(1, 1)
    first, second = flight.batches
    is_broken_after = []
    for batch in (second, first):
        flight.answer(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        is_broken_after.append(flight.queue.is_broken)

    assert is_broken_after == [False, True]
    assert list(flight.queue.closed) == [first, second]


def test_what_has_no_answer_may_be_written() -> None:
    """09:CL-14: so it keeps its numbers, and is sent again under them."""
    flight = Flight(1)
    (batch,) = flight.batches
    lost = ApiError(ErrorCode.NETWORK_EXCEPTION, "the connection is gone")
    flight.answers.take_back(batch, lost, LEADER)

    assert batch.is_maybe_stored
    assert list(flight.queue.closed) == [batch]
    assert (batch.producer_id, batch.producer_epoch, batch.sequence) == (ID, EPOCH, 0)


def test_what_never_left_cannot_be_written() -> None:
    """09:CL-14: the connection was closed before the request was on it."""
    flight = Flight(1)
    (batch,) = flight.batches
    lost = ApiError(ErrorCode.NETWORK_EXCEPTION, "the connection is gone")
    flight.answers.take_back(batch, lost, LEADER, was_sent=False)

    assert not batch.is_maybe_stored
    assert list(flight.queue.closed) == [batch]


def test_a_partition_that_is_not_in_the_answer_fails() -> None:
    """09:CL-15: every batch has its outcome, whatever a broker forgets."""
    flight = Flight(1)
    (batch,) = flight.batches
    flight.answers.judge(batch, None, LEADER)

    assert flight.finished == [batch]
    assert "broker 4 left t-0 out of its answer" in str(batch.error)
    assert flight.queue.is_broken


def test_what_came_back_too_often_fails() -> None:
    """09:CL-7: `retries` says how often."""
    flight = Flight(1, retries=1)
    (batch,) = flight.batches
    flight.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert flight.queue.closed.popleft() is batch
    batch.attempts += 1
    flight.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)

    assert isinstance(batch.error, ApiError)
    assert batch.error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not flight.queue.closed


def test_who_is_given_up_counts_as_in_flight_until_the_answer() -> None:
    """09:CL-14: before, nobody knows whether the log has it."""
    flight = Flight(1)
    (batch,) = flight.batches
    flight.answers.give_up(batch, OdradekError("late"))
    assert flight.finished == [batch]
    assert flight.queue.is_broken
    assert not flight.queue.needs_new_epoch()

    flight.answer(batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert flight.queue.needs_new_epoch()
    assert not flight.queue.unanswered
    assert flight.finished == [batch]
