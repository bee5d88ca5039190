"""Rows that were sent are those of one attempt of each task, and all of them."""

import itertools

import pytest

from odradek.client.producer.ticket import TransactionTicket
from odradek.spark.transactional.attempts import MixedAttemptsError, SentRows, count_sent
from odradek.spark.transactional.packing import Writers
from odradek.spark.transactional.sending import Sending


def test_the_rows_of_two_tasks_at_three_writers() -> None:
    sent = [
        SentRows(0, 10, 5, 8),
        SentRows(1, 11, 0, 2),
        SentRows(0, 10, 3, None),
        SentRows(1, 11, 2, None),
    ]
    assert count_sent(sent) == 10
    assert count_sent([SentRows(0, 10, 0, 0)]) == 0
    assert count_sent([]) == 0


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([SentRows(0, 10, 5, 8), SentRows(0, 12, 3, None)], id="two attempts"),
        pytest.param([SentRows(0, 10, 5, 8), SentRows(0, 10, 2, None)], id="a row is missing"),
        pytest.param([SentRows(0, 10, 5, 5), SentRows(0, 10, 5, None)], id="rows are there twice"),
        pytest.param([SentRows(0, 10, 5, None)], id="no total"),
    ],
)
def test_a_mixture_is_found(sent: list[SentRows]) -> None:
    """12:SP-25: a lost shuffle block brings rows of a second attempt, with other content."""
    with pytest.raises(MixedAttemptsError):
        count_sent(sent)


def test_only_the_first_attempt_may_send() -> None:
    """12:SP-25."""
    ticket = TransactionTicket(
        transactional_id="t", producer_id=1, producer_epoch=0, transaction_version=2
    )
    sending = Sending(settings=(), ticket=ticket, writers=Writers(count=1, turn=0))
    sending.refuse_repetition(0)
    with pytest.raises(RuntimeError, match="attempt 1 of a task that writes in a transaction"):
        sending.refuse_repetition(1)


def test_each_partition_has_one_writer_and_each_writer_its_turn() -> None:
    """12:SP-25."""
    for turn in range(5):
        writers = Writers(count=3, turn=turn)
        shares = [list(writers.partitions(writer, "t", 8)) for writer in range(3)]
        assert sorted(itertools.chain(*shares)) == list(range(8))
        for writer, share in enumerate(shares):
            assert {writers.of("t", partition) for partition in share} == {writer}
    assert {Writers(count=3, turn=turn).of("t", 0) for turn in range(3)} == {0, 1, 2}
