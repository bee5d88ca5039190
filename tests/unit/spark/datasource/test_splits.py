"""Ranges of offsets as tasks."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position, SplitRule
from odradek.spark.datasource.splits import Split, cut, splits_between


def position(
    offsets: dict[int, int], *, topic_id: str = "id-1", split: SplitRule | None = None
) -> Position:
    named = {TopicPartition("t", number): at for number, at in offsets.items()}
    return Position.of(named, {"t": topic_id}, split or SplitRule())


def ranges(*sizes: int) -> list[Split]:
    return [
        Split(topic="t", topic_id="", partition=number, start=7, end=7 + size)
        for number, size in enumerate(sizes)
    ]


def test_each_partition_with_anything_to_read_is_a_task() -> None:
    """12:SP-35."""
    splits = splits_between(position({0: 5, 1: 8, 2: 0}), position({0: 9, 1: 8, 2: 3}))
    assert splits == [
        Split(topic="t", topic_id="id-1", partition=0, start=5, end=9),
        Split(topic="t", topic_id="id-1", partition=2, start=0, end=3),
    ]


def test_nothing_to_read_gives_no_task() -> None:
    """12:SP-35."""
    assert splits_between(position({0: 5}), position({0: 5})) == []


def test_a_new_partition_is_read_from_its_first_record() -> None:
    """12:SP-34: whose offset nobody knows here."""
    (split,) = splits_between(position({0: 5}), position({0: 5, 1: 9}))
    assert (split.partition, split.start, split.end) == (1, 0, 9)
    assert split.is_from_earliest


def test_a_topic_made_anew_is_read_from_zero() -> None:
    """12:SP-37."""
    (split,) = splits_between(position({0: 500}), position({0: 9}, topic_id="id-2"))
    assert (split.topic_id, split.start, split.end) == ("id-2", 0, 9)


def test_an_id_that_is_not_known_is_no_other_one() -> None:
    """12:SP-32: a checkpoint of Spark's own source goes on."""
    (split,) = splits_between(position({0: 5}, topic_id=""), position({0: 9}))
    assert (split.topic_id, split.start) == ("id-1", 5)


def test_the_rule_of_the_batch_counts() -> None:
    """12:SP-35: the one that travels with its end."""
    start = position({0: 0}, split=SplitRule(min_partitions=9))
    end = position({0: 100}, split=SplitRule(max_records=25))
    assert [(one.start, one.end) for one in splits_between(start, end)] == [
        (0, 25),
        (25, 50),
        (50, 75),
        (75, 100),
    ]


def test_large_ranges_get_more_of_the_tasks() -> None:
    """12:SP-35."""
    splits = cut(ranges(100, 300), SplitRule(min_partitions=8))
    assert [one.partition for one in splits] == [0] * 2 + [1] * 6
    assert {one.size for one in splits} == {50}


def test_small_ranges_are_not_cut_into_nothing() -> None:
    """12:SP-35."""
    splits = cut(ranges(1, 2), SplitRule(min_partitions=50))
    assert [(one.partition, one.size) for one in splits] == [(0, 1), (1, 1), (1, 1)]


def test_both_rules_together() -> None:
    """12:SP-35."""
    splits = cut(ranges(10, 30), SplitRule(min_partitions=3, max_records=10))
    assert [one.size for one in splits] == [10, 10, 10, 10]


_positions = st.dictionaries(st.integers(0, 40), st.integers(0, 2**61), max_size=20)
_rules = st.builds(
    SplitRule, min_partitions=st.integers(0, 200), max_records=st.sampled_from([0, 2**55, 2**60])
)


@given(start=_positions, steps=_positions, rule=_rules)
def test_tasks_cover_the_batch_once_and_are_the_same_again(
    start: dict[int, int], steps: dict[int, int], rule: SplitRule
) -> None:
    """12:SP-35: a pure function of start and end."""
    first = position(start)
    last = position({n: start.get(n, 0) + step for n, step in steps.items()}, split=rule)
    splits = splits_between(first, last)

    assert splits == splits_between(Position.parse(first.to_json()), Position.parse(last.to_json()))
    for number, step in steps.items():
        parts = [one for one in splits if one.partition == number]
        assert sum(one.size for one in parts) == step
        assert all(one.size > 0 for one in parts)
        at = start.get(number, 0)
        for one in parts:
            assert one.start == at
            at = one.end
            assert not rule.max_records or one.size <= rule.max_records
