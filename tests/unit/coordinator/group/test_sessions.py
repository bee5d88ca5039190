"""Who is alive, who leaves, and what a coordinator's change means."""

import pytest

from odradek.coordinator.group import sessions
from odradek.coordinator.group.decisions import TimerKind
from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.records import parse_group_value
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver


def test_heartbeats_per_state() -> None:
    driver = GroupDriver()
    assert driver.heartbeat("x", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = driver.make_stable(2)
    assert driver.heartbeat(leader) is ErrorCode.NONE
    assert driver.heartbeat(leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(leader, instance_id="?") is ErrorCode.UNKNOWN_MEMBER_ID
    driver.join(leader)
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_moves_the_deadline_and_arms_no_timer() -> None:
    driver = GroupDriver()
    leader, _ = driver.make_stable(2)
    member = driver.group.members[leader]
    armed_ms = member.timer_due_ms
    driver.advance(4_000)
    driver.heartbeat(leader)
    assert member.deadline_ms == driver.timer_ms + 10_000
    assert member.timer_due_ms == armed_ms


def test_a_silent_member_is_removed_and_the_others_share() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2)
    driver.advance(9_999)
    assert driver.heartbeat(leader) is ErrorCode.NONE
    assert follower in driver.group.members
    driver.advance(1)
    assert list(driver.group.members) == [leader]
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = driver.join(leader)
    assert ticket.reply.generation_id == 2
    driver.sync_all([leader])


def test_a_dead_leader_is_succeeded() -> None:
    driver = GroupDriver()
    leader, second, third = driver.make_stable(3)
    driver.advance(5_000)
    driver.heartbeat(second)
    driver.heartbeat(third)
    driver.advance(5_000)
    assert leader not in driver.group.members
    driver.join(third)
    ticket = driver.join(second)
    assert ticket.reply.leader == second


def test_a_rebalance_is_cut_off_at_the_slowest_members_timeout() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2, rebalance_timeout_ms=30_000)
    slow, joined = driver.join_twice(rebalance_timeout_ms=45_000)
    rejoined = driver.join(leader)
    for _ in range(14):
        driver.advance(3_000)  # Far beyond the session timeout of 10 s.
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not rejoined.is_answered
    driver.advance(3_000)
    assert rejoined.reply.generation_id == joined.reply.generation_id == 2
    assert list(driver.group.members) == [leader, slow]
    assert driver.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_join_is_parked_does_not_expire() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2, rebalance_timeout_ms=60_000)
    parked = driver.join(leader)
    for _ in range(8):
        driver.advance(5_000)
        driver.heartbeat(follower)
    assert not parked.is_answered
    driver.join(follower)
    assert parked.reply.generation_id == 2


def test_after_the_answer_a_parked_member_has_its_session_timeout() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2, rebalance_timeout_ms=60_000)
    driver.join(leader)
    for _ in range(4):
        driver.advance(5_000)
        driver.heartbeat(follower)
    driver.join(follower)
    driver.advance(9_999)
    assert leader in driver.group.members
    driver.advance(1)
    assert leader not in driver.group.members


def test_a_new_member_becomes_an_ordinary_one_with_its_first_answer() -> None:
    """15:KAFKA-9752: its five minutes end there, and its next joins do not bring them back."""
    driver = GroupDriver()
    _, joined = driver.join_twice()
    driver.advance(3_000)
    member_id = joined.reply.member_id
    member = driver.group.members[member_id]
    assert not member.is_new
    assert member.deadline_ms == driver.timer_ms + 10_000
    driver.sync_all([member_id])
    other, _ = driver.join_twice()
    driver.join(member_id)
    assert driver.group.generation_id == 2
    driver.sync_all([member_id, other])
    driver.advance(10_000)  # Both vanish: nobody waits for five minutes.
    assert driver.group.members == {}
    assert driver.state() is GroupState.EMPTY


@pytest.mark.parametrize("version", [3, 9])
def test_a_new_member_that_went_away_holds_up_no_rebalance(version: int) -> None:
    """15:KAFKA-9752: it had its answer, and after its session the others go on without it."""
    driver = GroupDriver()
    leader, follower = driver.make_stable(2)
    lost = driver.join(version=version)
    if version >= 4:
        lost = driver.join(lost.reply.member_id, version=version)
    for member_id in (leader, follower):
        driver.join(member_id)
    assert driver.group.generation_id == 2
    lost_id = lost.reply.member_id  # Nobody reads it: the client is gone.
    driver.sync(follower)
    driver.sync(leader, assignments={leader: b"l", follower: b"f"})
    driver.advance(9_999)
    assert driver.heartbeat(leader) is ErrorCode.NONE
    assert driver.heartbeat(follower) is ErrorCode.NONE
    driver.advance(1)
    assert lost_id not in driver.group.members
    assert driver.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    first, second = driver.join(leader), driver.join(follower)
    assert (first.reply.generation_id, second.reply.generation_id) == (3, 3)
    driver.sync_all([leader, follower])
    assert driver.state() is GroupState.STABLE


def test_nor_does_one_that_went_away_while_it_waited() -> None:
    """15:KAFKA-9752: five minutes at most, however often the others show that they live."""
    driver = GroupDriver()
    leader, follower = driver.make_stable(2, rebalance_timeout_ms=600_000)
    lost = driver.join(version=3, rebalance_timeout_ms=600_000)
    first = driver.join(leader, rebalance_timeout_ms=600_000)
    for _ in range(59):
        driver.advance(5_000)
        assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(driver.group.members) == 3
    driver.advance(5_000)
    assert lost.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert sorted(driver.group.members) == sorted([leader, follower])
    second = driver.join(follower, rebalance_timeout_ms=600_000)
    assert (first.reply.generation_id, second.reply.generation_id) == (2, 2)
    driver.sync_all([leader, follower])
    assert driver.state() is GroupState.STABLE


def test_the_last_one_out_leaves_an_empty_group() -> None:
    driver = GroupDriver()
    driver.make_stable(2)
    driver.advance(10_000)
    assert driver.state() is GroupState.EMPTY
    assert driver.group.generation_id == 2
    assert driver.group.subscribed_topics == frozenset()
    value = driver.log[-1][1]
    assert value is not None
    stored = parse_group_value(value)
    assert (stored.generation_id, stored.protocol_name, stored.leader) == (2, None, None)
    assert stored.members == []
    assert stored.state_timestamp_ms == driver.now.wall_ms


def test_that_the_last_one_left_need_not_be_written() -> None:
    driver = GroupDriver()
    driver.make_stable(1)
    driver.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    driver.advance(10_000)
    assert driver.state() is GroupState.EMPTY
    assert driver.join_twice()[1].replies == []


class TestLeaving:
    def test_one_of_two(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.make_stable(2)
        assert driver.leave((leader, None)) == [ErrorCode.NONE]
        assert driver.group.leader_id == follower
        assert driver.state() is GroupState.PREPARING_REBALANCE

    def test_the_last_one(self) -> None:
        driver = GroupDriver()
        (member_id,) = driver.make_stable(1)
        assert driver.leave((member_id, None)) == [ErrorCode.NONE]
        assert driver.state() is GroupState.EMPTY
        assert driver.leave((member_id, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]

    def test_several_at_once(self) -> None:
        """07:G-14."""
        driver = GroupDriver()
        a, b = driver.make_static_pair()
        pending = driver.join().reply.member_id
        errors = driver.leave((pending, None), ("unknown", None), ("", "b"))
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
        assert driver.group.pending_members == {}
        assert list(driver.group.members) == [a]
        assert driver.group.static_members == {"a": a}
        errors = driver.leave(("", "nobody"), (b, "a"), ("", None), (a, "a"))
        assert errors == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.NONE,
        ]
        assert driver.state() is GroupState.EMPTY

    def test_several_leave_in_one_rebalance(self) -> None:
        driver = GroupDriver()
        ids = driver.make_stable(3)
        assert driver.leave((ids[0], None), (ids[1], None)) == [ErrorCode.NONE] * 2
        ticket = driver.join(ids[2])
        assert ticket.reply.generation_id == 2

    def test_a_parked_join_is_answered(self) -> None:
        driver = GroupDriver()
        leader, follower = driver.make_stable(2)
        parked = driver.join(leader)
        driver.leave((leader, None))
        assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.join(follower).reply.generation_id == 2

    def test_a_parked_sync_is_answered(self) -> None:
        """07:G-18: removed by an administrator."""
        driver = GroupDriver()
        tickets = [driver.join(instance_id=name) for name in ("a", "b")]
        driver.advance(6_000)
        parked = driver.sync(tickets[1].reply.member_id)
        assert driver.leave(("", "b")) == [ErrorCode.NONE]
        assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_last_one_that_is_missing(self) -> None:
        """Those who joined need not wait for one who is gone."""
        driver = GroupDriver()
        leader, follower = driver.make_stable(2)
        parked = driver.join(leader)
        driver.leave((follower, None))
        assert parked.reply.generation_id == 2

    def test_a_pending_id_that_leaves_holds_nobody_up(self) -> None:
        driver = GroupDriver()
        (leader,) = driver.make_stable(1)
        pending = driver.join().reply.member_id
        parked = driver.join(leader)
        assert not parked.is_answered
        assert driver.leave((pending, None)) == [ErrorCode.NONE]
        assert parked.reply.generation_id == 2

    def test_a_pending_id_that_leaves_does_not_disturb_a_stable_group(self) -> None:
        driver = GroupDriver()
        driver.make_stable(1)
        pending = driver.join().reply.member_id
        assert driver.leave((pending, None)) == [ErrorCode.NONE]
        assert driver.state() is GroupState.STABLE


def test_an_expired_member_with_a_parked_join_is_told() -> None:
    """07:G-18: by expiry, of a member that is new."""
    driver = GroupDriver()
    driver.make_stable(1, rebalance_timeout_ms=600_000, session_timeout_ms=1_800_000)
    parked = driver.join(version=3, rebalance_timeout_ms=600_000)
    driver.advance(300_000)
    assert parked.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unload_answers_everybody_who_waits() -> None:
    driver = GroupDriver()
    leader, _ = driver.make_stable(2)
    parked_join = driver.join(leader)
    driver.carry_out(sessions.unload(driver.group, driver.now))
    assert parked_join.error is ErrorCode.NOT_COORDINATOR
    assert driver.state() is GroupState.DEAD

    driver = GroupDriver()
    ids = [driver.join_twice()[0] for _ in range(2)]
    driver.advance(6_000)
    parked_sync = driver.sync(ids[1])
    driver.is_holding_writes = True
    leading = driver.sync(ids[0], assignments={ids[0]: b"1", ids[1]: b"2"})
    driver.carry_out(sessions.unload(driver.group, driver.now))
    assert parked_sync.error is leading.error is ErrorCode.NOT_COORDINATOR
    driver.release_writes(ErrorCode.NONE)  # The append that was under way changes nothing.
    assert driver.state() is GroupState.DEAD
    driver.advance(100_000)  # Nor do its timers.
    assert driver.heartbeat(ids[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_after_a_fail_over_members_go_on() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2)
    driver.advance(5_000)
    driver.fail_over()
    assert driver.state() is GroupState.STABLE
    driver.advance(9_999)
    assert driver.heartbeat(leader) is ErrorCode.NONE
    driver.advance(1)
    assert list(driver.group.members) == [leader]
    assert follower not in driver.group.members


def test_a_loaded_group_over_the_limit_rebalances() -> None:
    driver = GroupDriver()
    driver.make_stable(3)
    driver.config = GroupDriver(max_size=2).config
    driver.fail_over()
    assert driver.state() is GroupState.PREPARING_REBALANCE
    ids = list(driver.group.members)
    tickets = [driver.join(member_id) for member_id in ids]
    assert tickets[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [ticket.reply.generation_id for ticket in tickets[:2]] == [2, 2]


@pytest.mark.parametrize("kind", list(TimerKind))
def test_a_timer_that_nobody_waits_for_does_nothing(kind: TimerKind) -> None:
    driver = GroupDriver()
    ids = driver.make_stable(2)
    before = (driver.group.state, driver.group.generation_id, list(driver.group.members))
    for member_id in (*ids, "", "gone"):
        for due_ms in (0, driver.timer_ms, 1 << 40):
            decision = sessions.on_timer(driver.group, (kind, member_id, due_ms), driver.now)
            assert (decision.replies, decision.write, decision.timers) == ([], None, [])
    after = (driver.group.state, driver.group.generation_id, list(driver.group.members))
    assert before == after


def test_a_timer_that_rings_early_rings_again() -> None:
    """The clock of deadlines goes back when the loop stood still; no timer may be lost by that."""
    driver = GroupDriver()
    driver.join(session_timeout_ms=7_000)
    driver.join_twice()
    assert driver.ring_all_early() == {TimerKind.PENDING, TimerKind.SESSION, TimerKind.JOIN}
    driver.advance(6_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    assert driver.ring_all_early() == {TimerKind.PENDING, TimerKind.SESSION, TimerKind.SYNC}
    driver.advance(4_000)
    assert driver.group.pending_members == {}
    (member_id,) = driver.group.members
    for _ in range(19):
        driver.heartbeat(member_id)
        driver.advance(3_000)
    assert driver.state() is GroupState.EMPTY  # It never synced.


def test_a_session_timer_that_rings_early_still_ends_the_session() -> None:
    driver = GroupDriver()
    driver.make_stable(2)
    driver.advance(5_000)
    driver.ring_all_early()
    driver.advance(4_999)
    assert len(driver.group.members) == 2
    driver.advance(1)
    assert driver.group.members == {}
