"""SyncGroup: from the leader's plan to everybody's own assignment."""

import pytest

from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.records import parse_group_value
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver, sync_reply


def completing(driver: GroupDriver, count: int = 2, **arguments: int) -> list[str]:
    """A group that waits for its leader's assignment; the first one leads."""
    ids = [driver.join_twice(**arguments)[0] for _ in range(count)]
    driver.advance(6_000)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    return ids


def test_a_follower_waits_for_the_leader() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    assert not waiting.is_answered
    leading = driver.sync(leader, assignments={leader: b"first", follower: b"second"})
    assert sync_reply(leading).assignment == b"first"
    # Each member sees its own bytes, never another's.
    assert sync_reply(waiting).assignment == b"second"
    assert sync_reply(waiting)[1:3] == ("consumer", "range")
    assert driver.state() is GroupState.STABLE
    assert sync_reply(driver.sync(follower)).assignment == b"second"


def test_what_is_written() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    driver.sync(leader, assignments={leader: b"first", follower: b"second"})
    ((key, value),) = driver.log
    assert key == b"\0\2\0\1g"
    assert value is not None
    stored = parse_group_value(value)
    assert (stored.protocol_type, stored.protocol_name) == ("consumer", "range")
    assert (stored.generation_id, stored.leader) == (1, leader)
    assert {m.member_id: m.assignment for m in stored.members} == {
        leader: b"first",
        follower: b"second",
    }


def test_no_record_with_blank_assignments_is_ever_written() -> None:
    """A coordinator that loaded one would tell every member that it has no partitions."""
    driver = GroupDriver()
    completing(driver)
    assert driver.log == []


def test_whom_the_leader_leaves_out_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.sync(leader, assignments={leader: b"all", "stranger": b"x"})
    assert sync_reply(waiting) == (ErrorCode.NONE, "consumer", "range", b"")
    assert f"assigned nothing to {follower}" in caplog.text
    value = driver.log[-1][1]
    assert value is not None
    assert len(parse_group_value(value).members) == 2


def test_checks_in_their_order() -> None:
    driver = GroupDriver()
    a, b = driver.make_static_pair()
    sync = driver.sync
    assert sync(a, 9, instance_id="b", protocol_name="x").error is ErrorCode.FENCED_INSTANCE_ID
    assert sync(a, 9, instance_id="?", protocol_name="x").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync("?", 9, protocol_name="x").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(a, 9, instance_id="a", protocol_name="x").error is ErrorCode.ILLEGAL_GENERATION
    assert sync(a, 1, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(b, 1, protocol_name="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    fitting = sync(b, 1, protocol_type="consumer", protocol_name="range", instance_id="b")
    assert fitting.error is ErrorCode.NONE
    driver.group.bury()
    assert (
        sync(a, 9, instance_id="b", protocol_name="x").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


def test_in_other_states() -> None:
    driver = GroupDriver()
    assert driver.sync("x").error is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = driver.make_stable(2)
    driver.join(leader)
    assert driver.sync(follower).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.sync(follower, 7).error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_an_assignment_that_is_not_written_reaches_nobody(
    append_error: ErrorCode, told: ErrorCode
) -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.append_errors = [append_error]
    leading = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    for ticket in (leading, waiting):
        assert sync_reply(ticket) == (told, None, None, b"")
    assert driver.state() is GroupState.PREPARING_REBALANCE
    # All join again: the group recovers.
    driver.join(leader)
    driver.join(follower)
    driver.sync_all([leader, follower])
    assert driver.group.generation_id == 2


def test_a_rebalance_during_the_write_wins() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    waiting = driver.sync(follower)
    driver.is_holding_writes = True
    leading = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    assert not leading.is_answered
    driver.join_twice()
    driver.is_holding_writes = False
    driver.release_writes()
    # Nobody is told an assignment of a generation that is over.
    assert waiting.error is leading.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert {member.assignment for member in driver.group.members.values()} == {b""}


def test_a_write_of_an_older_generation_does_not_end_this_one() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    driver.is_holding_writes = True
    driver.sync(leader, assignments={leader: b"old", follower: b"old"})
    held = driver.held[:]
    changed = (("range", b"changed"),)
    driver.join(follower, protocols=changed)
    driver.join(leader)
    assert driver.group.generation_id == 2
    driver.release_writes(ErrorCode.NONE)
    assert held
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_a_leader_that_repeats_its_sync_does_not_write_twice() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver)
    driver.is_holding_writes = True
    lost = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    repeated = driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(driver.held) == 1
    driver.release_writes()
    assert sync_reply(repeated).assignment == b"1"


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    """07:G-1."""
    driver = GroupDriver()
    leader, follower = completing(driver)
    driver.advance(9_000)
    for member_id in (leader, follower):
        assert driver.heartbeat(member_id) is ErrorCode.NONE
    driver.advance(9_999)  # Past the first session deadline: the heartbeats moved it.
    assert list(driver.group.members) == [leader, follower]
    assert (driver.group.state, driver.group.generation_id) == (
        GroupState.COMPLETING_REBALANCE,
        1,
    )
    driver.advance(1)
    assert driver.group.members == {}


def heartbeat_for(driver: GroupDriver, duration_ms: int, *ids: str) -> None:
    for _ in range(duration_ms // 3_000):
        driver.advance(3_000)
        for member_id in ids:
            driver.heartbeat(member_id)


def test_a_leader_that_is_alive_and_never_syncs_is_removed() -> None:
    """07:G-2: the rebalance timeout bounds the second half of a rebalance, too."""
    driver = GroupDriver()
    leader, second, third = completing(driver, 3, rebalance_timeout_ms=30_000)
    waiting = [driver.sync(second), driver.sync(third)]
    heartbeat_for(driver, 27_000, leader)
    assert driver.state() is GroupState.COMPLETING_REBALANCE
    heartbeat_for(driver, 3_000, leader)
    assert leader not in driver.group.members
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert {ticket.error for ticket in waiting} == {ErrorCode.REBALANCE_IN_PROGRESS}
    driver.join(second)
    driver.join(third)
    assert driver.group.generation_id == 2
    driver.sync_all([second, third])
    assert driver.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_may_sync_late() -> None:
    """07:G-3: the group is Stable already."""
    driver = GroupDriver()
    leader, follower = completing(driver, rebalance_timeout_ms=30_000)
    driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    assert list(driver.group.pending_sync) == [follower]
    heartbeat_for(driver, 27_000, leader, follower)
    assert sync_reply(driver.sync(follower)).assignment == b"2"
    assert driver.group.pending_sync == {}
    heartbeat_for(driver, 60_000, leader, follower)
    assert driver.state() is GroupState.STABLE
    assert driver.group.generation_id == 1


def test_a_follower_that_never_syncs_is_removed_from_a_stable_group() -> None:
    """07:G-3."""
    driver = GroupDriver()
    leader, follower = completing(driver, rebalance_timeout_ms=30_000)
    driver.sync(leader, assignments={leader: b"1", follower: b"2"})
    heartbeat_for(driver, 30_000, leader, follower)
    assert list(driver.group.members) == [leader]
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_the_sync_timer_of_one_generation_does_not_hit_the_next() -> None:
    driver = GroupDriver()
    leader, follower = completing(driver, rebalance_timeout_ms=30_000)
    driver.sync_all([leader, follower])
    heartbeat_for(driver, 24_000, leader, follower)
    driver.join(leader, rebalance_timeout_ms=30_000)
    driver.join(follower, rebalance_timeout_ms=30_000)
    assert driver.group.generation_id == 2
    heartbeat_for(driver, 27_000, leader, follower)  # The first timer rings in between.
    assert list(driver.group.members) == [leader, follower]
    heartbeat_for(driver, 3_000, leader, follower)
    assert driver.group.members == {}
