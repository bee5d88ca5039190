"""How far a batch goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import TopicPartition
from odradek.spark.datasource.limits import Limits, PartitionSize, decide_end, is_held_back


def tps(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def test_without_limits_a_batch_takes_all() -> None:
    """12:SP-15, 12:SP-33."""
    assert decide_end(tps(1, 2), tps(10, 2), Limits()) == tps(10, 2)


def test_offsets_are_shared_out_in_proportion() -> None:
    """12:SP-33."""
    assert decide_end(tps(0, 50, 7), tps(900, 150, 7), Limits(max_offsets=100)) == tps(90, 60, 7)


def test_a_partition_with_a_backlog_moves_at_least_by_one() -> None:
    """12:SP-33."""
    assert decide_end(tps(0, 0, 0), tps(10**9, 1, 3), Limits(max_offsets=2)) == tps(1, 1, 1)


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    """12:SP-33."""
    assert decide_end(tps(5), tps(9), Limits(max_offsets=4)) == tps(9)


def test_an_end_below_the_start_is_not_followed() -> None:
    """12:SP-33: it is lost data, which is told elsewhere."""
    assert decide_end(tps(50, 0), tps(10, 8), Limits(max_offsets=4)) == tps(50, 4)


SIZES = {
    TopicPartition("t", 0): PartitionSize(size_bytes=100_000, offset_count=1000),  # 100 each
    TopicPartition("t", 1): PartitionSize(size_bytes=1_000_000, offset_count=1000),  # 1000 each
}


def test_bytes_become_offsets_by_the_mean_size() -> None:
    """12:SP-33: 11,000 of 1,100,000 bytes are a hundredth of each backlog."""
    end = decide_end(tps(0, 0), tps(1000, 1000), Limits(max_bytes=11_000), SIZES)
    assert end == tps(10, 10)


def test_the_smallest_limit_wins() -> None:
    """12:SP-33."""
    limits = Limits(max_bytes=11_000, max_offsets=10)
    assert decide_end(tps(0, 0), tps(1000, 1000), limits, SIZES) == tps(5, 5)
    limits = Limits(max_bytes=11_000, max_offsets=1000)
    assert decide_end(tps(0, 0), tps(1000, 1000), limits, SIZES) == tps(10, 10)


def test_a_partition_of_unknown_size_is_not_held_up() -> None:
    """12:SP-33: an empty one, or one whose leader has moved."""
    assert decide_end(tps(0, 0, 0), tps(9, 9, 9), Limits(max_bytes=5), {}) == tps(9, 9, 9)


@pytest.mark.parametrize(
    ("backlog", "waited_ms", "is_held"), [(9, 0, True), (10, 0, False), (9, 500, False)]
)
def test_a_small_batch_waits_for_a_while(backlog: int, waited_ms: int, is_held: bool) -> None:
    """12:SP-33."""
    limits = Limits(min_offsets=10, max_delay_ms=500)
    assert (
        is_held_back(
            tps(0, 3), tps(backlog, 3), limits, last_batch_ms=1000, now_ms=1000 + waited_ms
        )
        is is_held
    )


def test_without_a_least_size_nothing_waits() -> None:
    assert not is_held_back(tps(0), tps(1), Limits(), last_batch_ms=0, now_ms=0)


@given(
    st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)), min_size=1, max_size=30),
    st.integers(1, 2**40),
)
def test_every_batch_moves_on_and_keeps_to_the_limit(
    partitions: list[tuple[int, int]], limit: int
) -> None:
    """12:SP-33."""
    start = tps(*(at for at, _ in partitions))
    latest = tps(*(at + backlog for at, backlog in partitions))
    end = decide_end(start, latest, Limits(max_offsets=limit))
    assert all(start[tp] <= end[tp] <= latest[tp] for tp in start)
    assert all(end[tp] > start[tp] for tp in start if latest[tp] > start[tp])
    taken = sum(end[tp] - start[tp] for tp in start)
    assert taken <= max(limit, 0) + len(start)
