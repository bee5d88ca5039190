"""Who is in sync (05 section 10), without a log."""

import pytest

from odradek.replication.isr import (
    NEVER_MS,
    FollowerState,
    can_join_isr,
    high_watermark_candidate,
    out_of_sync_replicas,
)

MAX_LAG_MS = 10_000


def follower(broker_id: int, *, end: int, caught_up_ms: int = NEVER_MS) -> FollowerState:
    state = FollowerState(broker_id)
    state.log_end_offset = end
    state.last_caught_up_ms = caught_up_ms
    return state


def candidate(leader_end: int, followers: list[FollowerState], isr: set[int], now_ms: int) -> int:
    return high_watermark_candidate(
        leader_end, followers, frozenset(isr), now_ms=now_ms, max_lag_ms=MAX_LAG_MS
    )


def out_of_sync(
    followers: list[FollowerState], *, now_ms: int, leader_end: int = 10, isr: tuple[int, ...]
) -> list[int]:
    return out_of_sync_replicas(
        isr,
        {state.broker_id: state for state in followers},
        leader_id=1,
        leader_end=leader_end,
        now_ms=now_ms,
        max_lag_ms=MAX_LAG_MS,
    )


def test_catching_up() -> None:
    """05:R27: at the end it is caught up now; past the end of the last fetch, as of that fetch."""
    state = FollowerState(2)
    caught_up = []
    for fetch_offset, leader_end, now_ms in [(100, 100, 1000), (120, 150, 2000), (150, 200, 3000)]:
        state.apply_fetch(
            fetch_offset=fetch_offset, log_start_offset=0, leader_end=leader_end, now_ms=now_ms
        )
        caught_up.append(state.last_caught_up_ms)
    assert caught_up == [1000, 1000, 2000]


def test_one_record_short_is_not_caught_up() -> None:
    """05:R27: neither at the leader's end now, nor at its end of the fetch before."""
    state = FollowerState(2)
    state.apply_fetch(fetch_offset=99, log_start_offset=0, leader_end=100, now_ms=1000)
    assert state.last_caught_up_ms == NEVER_MS
    state.apply_fetch(fetch_offset=99, log_start_offset=0, leader_end=150, now_ms=2000)
    assert state.last_caught_up_ms == NEVER_MS
    state.apply_fetch(fetch_offset=150, log_start_offset=0, leader_end=200, now_ms=3000)
    assert state.last_caught_up_ms == 2000


def test_a_follower_that_never_caught_up_is_not_caught_up_soon_after_boot() -> None:
    """A monotonic clock starts near 0 with the machine, so 0 is no sign for "never"."""
    state = FollowerState(2)
    state.reset(now_ms=500, is_in_isr=False, is_new_leader=True)
    state.apply_fetch(fetch_offset=3, log_start_offset=0, leader_end=10, now_ms=600)
    assert candidate(10, [state], {1}, now_ms=700) == 10


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [
        pytest.param(5_000, [], id="05:R25-stays"),
        pytest.param(10_000, [], id="05:R25-not-yet-longer"),
        pytest.param(10_001, [2], id="05:R25-longer"),
        pytest.param(15_000, [2], id="05:R25-removed"),
    ],
)
def test_out_of_sync_by_time(now_ms: int, expected: list[int]) -> None:
    """05:R25: caught up at 0; checks every half period remove it at 1.5 times the setting."""
    assert out_of_sync([follower(2, end=8, caught_up_ms=0)], now_ms=now_ms, isr=(1, 2)) == expected


def test_a_follower_at_the_end_is_in_sync_however_long_it_was_silent() -> None:
    assert out_of_sync([follower(2, end=10, caught_up_ms=0)], now_ms=99_999, isr=(1, 2)) == []


def test_the_leader_is_never_out_of_sync() -> None:
    assert out_of_sync([], now_ms=99_999, isr=(1,)) == []


def test_a_member_that_is_no_replica_any_more() -> None:
    """15:KAFKA-9672: nobody waits for it, and the next check drops it."""
    assert candidate(10, [follower(2, end=7)], {1, 2, 5}, now_ms=99_999) == 7
    assert out_of_sync([follower(2, end=10)], now_ms=99_999, isr=(1, 2, 5)) == [5]


def test_high_watermark_waits_for_members_and_for_those_about_to_be() -> None:
    late = follower(3, end=4, caught_up_ms=1_000)
    assert candidate(10, [follower(2, end=8), late], {1, 2}, now_ms=11_000) == 4
    assert candidate(10, [follower(2, end=8), late], {1, 2}, now_ms=11_001) == 8


@pytest.mark.parametrize(
    ("high_watermark", "epoch_start", "end", "joins"),
    [
        pytest.param(10, 12, 9, False, id="below-both"),
        pytest.param(10, 12, 11, False, id="one-below-the-epoch"),
        pytest.param(10, 12, 12, True, id="at-the-epoch"),
        pytest.param(12, 10, 11, False, id="one-below-the-high-watermark"),
        pytest.param(12, 10, 12, True, id="at-the-high-watermark"),
    ],
)
def test_joining(high_watermark: int, epoch_start: int, end: int, joins: bool) -> None:
    """15:KAFKA-7128: all that is committed, and the start of the leader's epoch, to the record."""
    assert (
        can_join_isr(
            follower(2, end=end), high_watermark=high_watermark, leader_epoch_start=epoch_start
        )
        is joins
    )


def test_a_new_epoch_of_the_same_leader_keeps_what_followers_have() -> None:
    state = FollowerState(2)
    state.apply_fetch(fetch_offset=7, log_start_offset=1, leader_end=9, now_ms=100)
    state.reset(now_ms=200, is_in_isr=True, is_new_leader=False)
    assert (state.log_end_offset, state.log_start_offset) == (7, 1)
    assert (state.last_caught_up_ms, state.last_fetch_ms) == (200, NEVER_MS)
    state.reset(now_ms=300, is_in_isr=False, is_new_leader=True)
    assert (state.log_end_offset, state.log_start_offset) == (-1, -1)
    assert state.last_caught_up_ms == NEVER_MS


def fetching(*, end: int = 100, leader_end: int = 100, now_ms: int = 1000) -> FollowerState:
    state = FollowerState(2)
    state.apply_fetch(fetch_offset=end, log_start_offset=0, leader_end=leader_end, now_ms=now_ms)
    return state


def test_another_life_is_another_follower() -> None:
    """15:KAFKA-15221: what an earlier life of the broker had says nothing about its disk now."""
    state = fetching()
    state.meet(7, now_ms=1000, is_in_isr=False)
    assert (state.broker_epoch, state.log_end_offset) == (7, 100), "the first epoch that is known"
    state.meet(7, now_ms=2000, is_in_isr=False)
    assert state.log_end_offset == 100
    state.meet(-1, now_ms=2000, is_in_isr=False)
    assert (state.broker_epoch, state.log_end_offset) == (7, 100), "an older fetch has no epoch"
    state.meet(8, now_ms=2000, is_in_isr=False)
    assert (state.broker_epoch, state.log_end_offset) == (8, -1)
    assert state.last_caught_up_ms == NEVER_MS


@pytest.mark.parametrize(
    ("known", "given", "is_earlier"),
    [(5, 4, True), (5, 5, False), (5, 6, False), (5, -1, False), (5, 0, True), (-1, 0, False)],
)
def test_fetches_of_an_earlier_life(known: int, given: int, is_earlier: bool) -> None:
    state = FollowerState(2)
    state.broker_epoch = known
    assert state.is_of_earlier_life(given) is is_earlier


def test_an_epoch_of_0_is_an_epoch() -> None:
    state = fetching()
    state.meet(0, now_ms=1000, is_in_isr=False)
    assert (state.broker_epoch, state.log_end_offset) == (0, 100)
    state.meet(1, now_ms=1000, is_in_isr=False)
    assert (state.broker_epoch, state.log_end_offset) == (1, -1)


@pytest.mark.parametrize(
    ("end", "caught_up_ms"),
    [
        pytest.param(100, 5000, id="at-the-end"),
        pytest.param(101, 5000, id="beyond"),
        pytest.param(99, NEVER_MS, id="one-short"),
    ],
)
def test_idle_fetches_count_when_the_leader_writes_again(end: int, caught_up_ms: int) -> None:
    """05:R27 for a partition without news, whose fetches are not applied one by one."""
    state = fetching(end=end)
    state.last_caught_up_ms = NEVER_MS
    state.note_idle_until(5000)
    assert (state.last_caught_up_ms, state.last_fetch_ms) == (caught_up_ms, 5000)
    state.note_idle_until(4000)
    assert (state.last_caught_up_ms, state.last_fetch_ms) == (caught_up_ms, 5000)
