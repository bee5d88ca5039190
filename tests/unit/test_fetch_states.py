"""Which offset is fetched next, whatever happens meanwhile."""

import pytest

from odradek.fetch_states import FetchStates, fetcher_id
from odradek.model import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def fetching() -> FetchStates:
    states = FetchStates()
    states.add({TP: 10})
    return states


def test_an_answer_to_an_older_question_is_dropped() -> None:
    """09:TV-9a."""
    states = fetching()
    states.remove([TP])
    states.add({TP: 20})
    assert not states.is_expected(TP, 10)
    assert not states.advance(TP, 10, 15)
    assert states.offset(TP) == 20


def test_an_answer_moves_the_offset_behind_its_last_record() -> None:
    """09:TV-9b."""
    states = FetchStates()
    states.add({TP: 100})
    handed_on = []
    if states.advance(TP, 100, 105):
        handed_on.append((100, states.offset(TP)))
    assert handed_on == [(100, 105)]  # The state has moved before the data is handed on.


def test_an_empty_answer_counts_and_moves_nothing() -> None:
    """09:TV-9c."""
    states = FetchStates()
    states.add({TP: 7})
    assert states.advance(TP, 7, 7)
    assert states.offset(TP) == 7


def test_a_partition_that_is_there_keeps_its_offset() -> None:
    """09:TV-9d."""
    states = FetchStates()
    states.add({TP: 42})
    states.add({TP: 5})
    assert states.offset(TP) == 42


def test_a_partition_without_an_offset_is_reset_once() -> None:
    """09:TV-9e."""
    asked = []

    def reset(tp: TopicPartition) -> int:
        asked.append(tp)
        return 33

    states = FetchStates()
    states.add({TP: -1}, reset)
    states.add({TP: -1}, reset)
    assert asked == [TP]
    assert states.offset(TP) == 33


def test_a_partition_that_left_is_asked_for_no_more_and_others_go_on() -> None:
    """09:TV-9f: taken out on NOT_LEADER_OR_FOLLOWER, added again when its leader is known."""
    states = fetching()
    states.add({OTHER: 3})
    states.remove([TP])
    assert states.active(0) == {OTHER: 3}
    assert not states.advance(TP, 10, 11)
    states.add({TP: 10})
    assert states.active(0) == {OTHER: 3, TP: 10}


def test_delayed_partitions_wait_and_only_they() -> None:
    states = fetching()
    states.add({OTHER: 3})
    states.delay([TP, TopicPartition("unknown", 0)], until_ms=500)
    assert states.active(499) == {OTHER: 3}
    assert states.next_active_ms() == 500
    assert states.active(500) == {TP: 10, OTHER: 3}
    assert states.next_active_ms() is None
    assert len(states) == 2


def test_who_gave_something_is_asked_last() -> None:
    states = fetching()
    states.add({OTHER: 3})
    states.advance(TP, 10, 11)
    assert list(states.active(0)) == [OTHER, TP]


@pytest.mark.parametrize(
    ("topic", "count", "expected"),
    [
        ("topic1", 2, [0, 1, 0, 1, 0, 1]),
        ("topic1", 3, [0, 2, 1, 0, 2, 1]),
        ("topic1", 4, [2, 1, 0, 3, 2, 1]),
        ("test", 2, [0, 1, 0, 1, 0, 1]),
        ("test", 3, [1, 2, 0, 1, 2, 0]),
        ("test", 4, [2, 3, 0, 1, 2, 3]),
        ("orders", 2, [1, 0, 1, 0, 1, 0]),
        ("orders", 3, [2, 1, 0, 2, 1, 0]),
        ("orders", 4, [1, 0, 3, 2, 1, 0]),
        ("orders", 1, [0] * 6),
    ],
)
def test_a_partition_belongs_to_one_fetcher(topic: str, count: int, expected: list[int]) -> None:
    """09:TV-8."""
    assert [fetcher_id(TopicPartition(topic, number), count) for number in range(6)] == expected
