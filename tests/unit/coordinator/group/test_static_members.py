"""Static members: they come back to their old place under a new id."""

import pytest

from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.records import parse_group_value
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver, sync_reply


@pytest.mark.parametrize("version", [5, 9])
@pytest.mark.parametrize("instance", ["a", "b"])
def test_a_restart_in_a_stable_group_does_not_rebalance(version: int, instance: str) -> None:
    """07:G-4."""
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    old_id = {"a": a, "b": b}[instance]
    ticket = driver.join(instance_id=instance, version=version)
    reply = ticket.reply
    assert ticket.error is ErrorCode.NONE
    assert reply.member_id != old_id
    assert reply.generation_id == driver.group.generation_id == 1
    assert driver.state() is GroupState.STABLE
    new_leader = reply.member_id if instance == "a" else a
    assert driver.group.leader_id == new_leader
    if version >= 9:
        assert reply.leader == new_leader
        assert reply.skip_assignment is (instance == "a")
        assert len(reply.members) == (2 if instance == "a" else 0)
    else:
        # Not its own id, so that it does not think it has to assign.
        assert reply.leader == a
        assert reply.leader != reply.member_id
        assert reply.members == ()
        assert reply.skip_assignment is False
    synced = driver.sync(reply.member_id, instance_id=instance)
    assert sync_reply(synced).assignment == old_id.encode()


def test_the_new_id_survives_a_fail_over() -> None:
    """15:KAFKA-10284: what the log says is what the next coordinator believes."""
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    new_id = driver.join(instance_id="b").reply.member_id
    driver.fail_over()
    assert driver.heartbeat(new_id, instance_id="b") is ErrorCode.NONE
    assert driver.heartbeat(b, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(a, instance_id="a") is ErrorCode.NONE
    assert sync_reply(driver.sync(new_id, instance_id="b")).assignment == b.encode()


def test_a_new_id_that_is_not_written_does_not_count() -> None:
    """07:G-6."""
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    driver.append_errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    ticket = driver.join(instance_id="a", session_timeout_ms=20_000, protocols=(("range", b"x"),))
    assert ticket.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ticket.reply.member_id == ""
    assert list(driver.group.members) == [a, b]
    assert driver.group.static_members == {"a": a, "b": b}
    assert driver.group.leader_id == a
    assert driver.group.members[a].session_timeout_ms == 10_000
    assert driver.group.members[a].protocols == (("range", b"range metadata"),)
    assert driver.group.awaiting_join_count == 0
    assert driver.heartbeat(a, instance_id="a") is ErrorCode.NONE
    # It lives on by its heartbeats, and dies without.
    driver.advance(9_999)
    driver.heartbeat(b, instance_id="b")
    driver.advance(1)
    assert list(driver.group.members) == [b]


def test_a_rebalance_during_the_write_takes_the_join_over() -> None:
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    driver.is_holding_writes = True
    ticket = driver.join(instance_id="b")
    assert not ticket.is_answered
    driver.join(a, instance_id="a")
    assert ticket.reply.generation_id == 2
    driver.release_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert ticket.reply.member_id in driver.group.members
    assert b not in driver.group.members


def test_a_second_restart_during_the_write_fences_the_first() -> None:
    driver = GroupDriver()
    driver.make_static_pair()
    driver.is_holding_writes = True
    first = driver.join(instance_id="b")
    second = driver.join(instance_id="b")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    driver.release_writes(ErrorCode.NONE)
    assert second.error is ErrorCode.NONE
    assert driver.group.static_members["b"] == second.reply.member_id
    assert len(driver.group.members) == 2


def test_a_restart_while_completing_starts_over() -> None:
    """07:G-7 and 15:KAFKA-9801: an assignment under the old id would give it nothing."""
    driver = GroupDriver()
    tickets = [driver.join(instance_id=name) for name in ("a", "b")]
    driver.advance(6_000)
    a, b = (ticket.reply.member_id for ticket in tickets)
    driver.is_holding_writes = True
    leading = driver.sync(a, assignments={a: b"1", b: b"2"}, instance_id="a")
    restarted = driver.join(instance_id="b")
    driver.is_holding_writes = False
    driver.release_writes()
    assert leading.error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(a, instance_id="a")
    assert restarted.reply.generation_id == 2
    new_b = restarted.reply.member_id
    driver.sync_all([a, new_b])
    assert driver.group.members[new_b].assignment == new_b.encode()


def test_a_restart_while_preparing_waits_with_the_others() -> None:
    driver = GroupDriver()
    a, _ = driver.make_static_pair()
    driver.join(a, instance_id="a")
    assert driver.state() is GroupState.PREPARING_REBALANCE
    restarted = driver.join(instance_id="b")
    assert restarted.reply.generation_id == 2
    assert len(driver.group.members) == 2


def test_a_restart_with_another_favourite_strategy_rebalances() -> None:
    driver = GroupDriver()
    both = (("range", b""), ("sticky", b""))
    tickets = [driver.join(instance_id=name, protocols=both) for name in ("a", "b")]
    driver.advance(6_000)
    a, b = (ticket.reply.member_id for ticket in tickets)
    driver.sync_all([a, b])
    restarted = driver.join(instance_id="a", protocols=(("sticky", b""),))
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.join(b, instance_id="b", protocols=both)
    assert restarted.reply.protocol_name == "sticky"


def test_two_processes_with_one_instance_id() -> None:
    """07:G-8."""
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    driver.join(instance_id="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert driver.heartbeat(b, instance_id="b") is fenced
    assert driver.sync(b, instance_id="b").error is fenced
    assert driver.join(b, instance_id="b").error is fenced
    assert driver.leave((b, "b")) == [fenced]
    assert driver.heartbeat(a, instance_id="a") is ErrorCode.NONE


def test_parked_requests_of_the_older_process_are_fenced() -> None:
    """07:G-8."""
    driver = GroupDriver()
    _, b = driver.make_static_pair()
    parked_join = driver.join(b, instance_id="b", protocols=(("range", b"other"),))
    newer = driver.join(instance_id="b")
    assert parked_join.error is ErrorCode.FENCED_INSTANCE_ID
    assert not newer.is_answered

    driver = GroupDriver()
    tickets = [driver.join(instance_id=name) for name in ("a", "b")]
    driver.advance(6_000)
    parked_sync = driver.sync(tickets[1].reply.member_id, instance_id="b")
    driver.join(instance_id="b")
    assert parked_sync.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_is_away_keeps_its_place() -> None:
    """It did not join again; it is dropped when its session ends, not with the rebalance."""
    driver = GroupDriver()
    arguments = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 20_000}
    tickets = [driver.join(instance_id=name, **arguments) for name in ("a", "b")]  # type: ignore[arg-type]  # keywords of join
    driver.advance(6_000)
    a, b = (ticket.reply.member_id for ticket in tickets)
    driver.sync_all([a, b])
    rejoined = driver.join(a, instance_id="a", **arguments)  # type: ignore[arg-type]  # keywords of join
    driver.advance(20_000)
    assert rejoined.reply.generation_id == 2
    assert [m.member_id for m in rejoined.reply.members] == [a, b]
    assert list(driver.group.pending_sync) == [a]
    driver.sync_all([a])
    driver.advance(25_000)  # Its place is not lost to the timer for those who do not sync, either.
    driver.heartbeat(a, instance_id="a")
    assert list(driver.group.members) == [a, b]
    driver.advance(15_000)
    assert list(driver.group.members) == [a]


def test_a_leader_that_is_away_hands_over() -> None:
    driver = GroupDriver()
    arguments = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 20_000}
    tickets = [driver.join(instance_id=name, **arguments) for name in ("a", "b")]  # type: ignore[arg-type]  # keywords of join
    driver.advance(6_000)
    a, b = (ticket.reply.member_id for ticket in tickets)
    driver.sync_all([a, b])
    rejoined = driver.join(
        b,
        instance_id="b",
        protocols=(("range", b"new"),),
        **arguments,  # type: ignore[arg-type]  # keywords of join
    )
    driver.advance(20_000)
    assert rejoined.reply.leader == b
    assert len(rejoined.reply.members) == 2


def test_with_all_static_members_away_the_rebalance_waits() -> None:
    driver = GroupDriver()
    arguments = {"session_timeout_ms": 100_000, "rebalance_timeout_ms": 20_000}
    tickets = [driver.join(instance_id=name, **arguments) for name in ("a", "b")]  # type: ignore[arg-type]  # keywords of join
    driver.advance(6_000)
    a, b = (ticket.reply.member_id for ticket in tickets)
    driver.sync_all([a, b])
    newcomer, joined = driver.join_twice()
    assert driver.leave((newcomer, None)) == [ErrorCode.NONE]
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    driver.advance(60_000)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert driver.group.generation_id == 1
    rejoined = driver.join(instance_id="a", **arguments)  # type: ignore[arg-type]  # keywords of join
    driver.advance(20_000)
    assert rejoined.reply.generation_id == 2
    assert driver.log[-1][1] is not None


def test_the_written_registration_has_the_new_id() -> None:
    driver = GroupDriver()
    _, b = driver.make_static_pair()
    new_id = driver.join(instance_id="b").reply.member_id
    value = driver.log[-1][1]
    assert value is not None
    stored = {m.instance_id: m for m in parse_group_value(value).members}
    assert stored["b"].member_id == new_id
    assert stored["b"].assignment == b.encode()
