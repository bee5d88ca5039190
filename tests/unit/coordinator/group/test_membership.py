"""JoinGroup: ids, limits, when a rebalance starts and whom it waits for."""

import pytest

from odradek.coordinator.group import membership
from odradek.coordinator.group.decisions import JoinRequest
from odradek.coordinator.group.group import GroupState
from odradek.coordinator.group.membership import NEW_MEMBER_TIMEOUT_MS
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import RANGE, GroupDriver

OTHER_METADATA = (("range", b"other"),)


def request(**changes: object) -> JoinRequest:
    base = JoinRequest("g", "", None, "c", "/h", 10_000, 60_000, "consumer", RANGE, 9)
    return base._replace(**changes)  # type: ignore[arg-type]  # the test's own fields


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "g" * 32_768}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 6_000}, ErrorCode.NONE),
        ({"session_timeout_ms": 1_800_000}, ErrorCode.NONE),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"instance_id": "i" * 32_768}, ErrorCode.INVALID_REQUEST),
        ({"protocols": (("p" * 32_768, b""),)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_before_there_is_a_group(
    changes: dict[str, object], error: ErrorCode
) -> None:
    config = GroupDriver().config
    assert membership.check_join(config, request(**changes)) is error


def test_an_id_first_then_the_group() -> None:
    driver = GroupDriver()
    first = driver.join(version=4)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.reply.generation_id == -1
    member_id = first.reply.member_id
    assert driver.group.members == {}
    second = driver.join(member_id, version=4)
    assert not second.is_answered
    driver.advance(3_000)
    assert second.error is ErrorCode.NONE
    reply = second.reply
    assert (reply.member_id, reply.generation_id, reply.leader) == (member_id, 1, member_id)
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in reply.members] == [member_id]
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_version_3_joins_at_once() -> None:
    driver = GroupDriver()
    ticket = driver.join(version=3)
    driver.advance(3_000)
    assert ticket.error is ErrorCode.NONE
    assert ticket.reply.generation_id == 1


def test_an_id_that_is_not_used_expires_after_the_session_timeout() -> None:
    driver = GroupDriver()
    member_id = driver.join(session_timeout_ms=10_000).reply.member_id
    driver.advance(9_999)
    assert member_id in driver.group.pending_members
    driver.advance(1)
    assert driver.group.pending_members == {}
    assert driver.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_retries_without_an_id_do_not_add_members() -> None:
    """15:KAFKA-7610: from version 4 on; each retry during a long rebalance only takes an id."""
    driver = GroupDriver()
    ids = driver.make_stable(2)
    for _ in range(50):
        driver.join()
    assert list(driver.group.members) == ids
    driver.advance(10_000)
    assert driver.group.pending_members == {}


def test_old_clients_that_retry_are_dropped_after_a_while() -> None:
    """15:KAFKA-7610: below version 4 each retry is a member, but not for ever."""
    driver = GroupDriver()
    ids = driver.make_stable(2, rebalance_timeout_ms=600_000)
    abandoned = [driver.join(version=3) for _ in range(20)]
    assert len(driver.group.members) == 22
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5_000):
        for member_id in ids:  # Busy with its records, alive, and late to join again.
            assert driver.heartbeat(member_id) is ErrorCode.REBALANCE_IN_PROGRESS
        driver.advance(5_000)
    assert list(driver.group.members) == ids
    assert {ticket.error for ticket in abandoned} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_three_consumers_within_the_initial_delay_share_generation_1() -> None:
    driver = GroupDriver()
    tickets = [driver.join_twice()[1]]
    driver.advance(1_000)
    tickets.append(driver.join_twice()[1])
    driver.advance(1_500)
    tickets.append(driver.join_twice()[1])
    driver.advance(6_000)
    assert [ticket.reply.generation_id for ticket in tickets] == [1, 1, 1]
    leaders = {ticket.reply.leader for ticket in tickets}
    assert len(leaders) == 1
    assert [len(ticket.reply.members) for ticket in tickets] == [3, 0, 0]


def test_the_initial_delay_is_prolonged_up_to_the_rebalance_timeout() -> None:
    driver = GroupDriver()
    tickets = [driver.join(version=3, rebalance_timeout_ms=8_000)]
    driver.advance(2_000)
    tickets.append(driver.join(version=3, rebalance_timeout_ms=8_000))
    driver.advance(3_000)  # 5 s: the first delay was prolonged to 6 s.
    assert not tickets[0].is_answered
    driver.advance(999)
    assert not tickets[0].is_answered
    driver.advance(1)
    assert [ticket.reply.generation_id for ticket in tickets] == [1, 1]


def test_a_group_that_had_members_before_waits_its_delay_once() -> None:
    driver = GroupDriver()
    driver.make_stable(1)
    driver.advance(10_000)
    assert driver.state() is GroupState.EMPTY
    tickets = [driver.join_twice()[1]]
    driver.advance(2_999)
    tickets.append(driver.join_twice()[1])
    assert not tickets[0].is_answered
    driver.advance(1)
    assert [ticket.reply.generation_id for ticket in tickets] == [3, 3]


def test_without_an_initial_delay_the_first_member_starts_at_once() -> None:
    driver = GroupDriver(initial_rebalance_delay_ms=0)
    _, ticket = driver.join_twice()
    driver.advance(0)
    assert ticket.error is ErrorCode.NONE


def test_an_unknown_id_is_refused() -> None:
    driver = GroupDriver()
    assert driver.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.is_vacant
    driver.make_stable(1)
    assert driver.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.state() is GroupState.STABLE
    assert not driver.group.is_vacant


def test_a_pending_id_with_an_instance_is_refused() -> None:
    driver = GroupDriver()
    member_id = driver.join().reply.member_id
    ticket = driver.join(member_id, instance_id="i")
    assert ticket.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "arguments",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ],
)
def test_protocols_that_do_not_fit_are_refused(arguments: dict[str, object]) -> None:
    driver = GroupDriver()
    (member_id,) = driver.make_stable(1)
    for known in ("", member_id):
        ticket = driver.join(known, **arguments)  # type: ignore[arg-type]  # keywords of join
        assert ticket.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.state() is GroupState.STABLE


@pytest.mark.parametrize("arguments", [{"protocols": ()}, {"protocol_type": ""}])
def test_an_empty_group_wants_a_type_and_a_protocol(arguments: dict[str, object]) -> None:
    driver = GroupDriver()
    ticket = driver.join(**arguments)  # type: ignore[arg-type]  # keywords of join
    assert ticket.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.group.is_vacant


def test_any_protocol_type_is_as_good() -> None:
    driver = GroupDriver("connect-cluster")
    protocols = (("sessioned", b"\xff\xfe"), ("compatible", b"\x00"))
    ids = driver.make_stable(2, protocol_type="connect", protocols=protocols)
    assert driver.group.protocol_type == "connect"
    assert driver.group.protocol_name == "sessioned"
    assert driver.group.members[ids[1]].assignment == ids[1].encode()
    assert driver.group.subscribed_topics is None


def test_a_repeated_join_while_completing_gets_the_same_generation() -> None:
    driver = GroupDriver()
    joined = [driver.join_twice() for _ in range(2)]
    driver.advance(6_000)
    (leader, _), (follower, _) = joined
    again = driver.join(leader)
    assert again.reply.generation_id == 1
    assert len(again.reply.members) == 2
    again = driver.join(follower)
    assert again.reply.generation_id == 1
    assert again.reply.members == ()
    assert driver.state() is GroupState.COMPLETING_REBALANCE


def test_changed_metadata_while_completing_starts_a_new_generation() -> None:
    driver = GroupDriver()
    joined = [driver.join_twice() for _ in range(2)]
    driver.advance(6_000)
    (leader, _), (follower, _) = joined
    parked_sync = driver.sync(leader)
    driver.is_holding_writes = True
    changed = driver.join(follower, protocols=OTHER_METADATA)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    driver.join(leader)
    assert changed.reply.generation_id == 2
    assert parked_sync.replies


def test_a_follower_that_joins_unchanged_does_not_disturb_a_stable_group() -> None:
    driver = GroupDriver()
    _, follower = driver.make_stable(2)
    ticket = driver.join(follower)
    assert (ticket.error, ticket.reply.generation_id) == (ErrorCode.NONE, 1)
    assert ticket.reply.members == ()
    assert driver.state() is GroupState.STABLE
    changed = driver.join(follower, protocols=OTHER_METADATA)
    assert not changed.is_answered
    assert driver.state() is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2)
    ticket = driver.join(leader)
    assert driver.state() is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert ticket.reply.generation_id == 2


def test_timeouts_follow_the_newest_join() -> None:
    driver = GroupDriver()
    leader, follower = driver.make_stable(2)
    driver.join(leader, session_timeout_ms=20_000, rebalance_timeout_ms=90_000)
    driver.join(follower)
    member = driver.group.members[leader]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 90_000)
    assert driver.group.rebalance_timeout_ms == 90_000


def test_a_repeated_join_while_preparing_answers_the_one_before() -> None:
    driver = GroupDriver()
    leader, _ = driver.make_stable(2)
    lost = driver.join(leader)
    repeated = driver.join(leader)
    assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not repeated.is_answered
    assert driver.group.awaiting_join_count == 1


def test_a_pending_id_holds_the_rebalance_until_it_expires() -> None:
    driver = GroupDriver()
    (leader,) = driver.make_stable(1, rebalance_timeout_ms=300_000)
    driver.join(session_timeout_ms=6_000)
    ticket = driver.join(leader)
    assert not ticket.is_answered
    driver.advance(6_000)
    assert ticket.reply.generation_id == 2


class TestSizeLimit:
    def test_a_third_member_is_refused_in_a_stable_group_of_two(self) -> None:
        driver = GroupDriver(max_size=2)
        leader, follower = driver.make_stable(2)
        refused = driver.join()
        assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert refused.reply.member_id == ""
        assert driver.join(follower).error is ErrorCode.NONE
        assert driver.state() is GroupState.STABLE
        assert list(driver.group.members) == [leader, follower]

    def test_while_completing_the_size_counts(self) -> None:
        driver = GroupDriver(max_size=1)
        member_id, _ = driver.join_twice()
        driver.advance(6_000)
        assert driver.state() is GroupState.COMPLETING_REBALANCE
        assert driver.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert driver.join(member_id).error is ErrorCode.NONE

    def test_while_preparing_those_who_joined_count(self) -> None:
        driver = GroupDriver(max_size=2)
        ids = [driver.join_twice()[0] for _ in range(2)]
        assert driver.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert not driver.join(ids[0]).is_answered
        assert driver.group.awaiting_join_count == 2

    def test_a_late_member_makes_room_for_those_who_were_faster(self) -> None:
        driver = GroupDriver(max_size=2)
        leader, follower = driver.make_stable(2)
        ticket = driver.join(leader)
        joined = driver.join_twice()[1]
        late = driver.join(follower)
        assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert ticket.reply.generation_id == joined.reply.generation_id == 2
        assert follower not in driver.group.members


def test_a_group_that_is_gone_sends_clients_to_look_again() -> None:
    driver = GroupDriver()
    driver.group.bury()
    assert driver.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.join("x").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.sync("x").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.heartbeat("x") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.leave(("x", None)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
