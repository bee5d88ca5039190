"""States, members and votes of a group."""

import itertools
import re

import pytest

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.decisions import Decision
from odradek.coordinator.group.group import VALID_PREVIOUS, Group, GroupState
from odradek.coordinator.group.member import (
    Member,
    parse_subscribed_topics,
    protocol_names,
    subscribed_topics,
)
from odradek.errors import ErrorCode, InvariantViolation
from tests.unit.coordinator.group.group_driver import GroupDriver, Ticket

E, P, C, S, D = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)
VALID = {(E, P), (P, C), (C, S), (S, P), (C, P), (P, E), (E, D), (P, D), (C, D), (S, D), (D, D)}


def make_group() -> Group:
    return Group("g", GroupCoordinatorConfig(), wall_ms=100)


def make_member(member_id: str, *names: str, instance_id: str | None = None) -> Member:
    return Member(
        member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[(name, f"{member_id} {name}".encode()) for name in names],
    )


def leader_of(group: Group) -> str | None:
    return group.leader_id


def check_counters(group: Group) -> None:
    names = [name for m in group.members.values() for name in protocol_names(m.protocols)]
    assert group.votes == {name: names.count(name) for name in names}
    parked = [m for m in group.members.values() if m.join_ticket is not None]
    assert group.awaiting_join_count == len(parked)


@pytest.mark.parametrize(("current", "target"), list(itertools.product(GroupState, GroupState)))
def test_state_pairs(current: GroupState, target: GroupState) -> None:
    group = make_group()
    group.state = current
    if (current, target) in VALID:
        group.transition_to(target, 200)
        assert (group.state, group.state_timestamp_ms) == (target, 200)
    else:
        with pytest.raises(InvariantViolation, match=f"is {current.value}: {target.value}"):
            group.transition_to(target, 200)
        assert (group.state, group.state_timestamp_ms) == (current, 100)
    assert make_group().can_rebalance
    assert {s for s in GroupState if s in VALID_PREVIOUS[P]} == {S, C, E}


def test_plain_protocol_names() -> None:
    """07:T1."""
    strategies = [("Range", b""), ("Range", b"x"), ("RoundRobin", b"")]
    assert set(protocol_names(strategies)) == {"Range", "RoundRobin"}


def test_votes_without_a_common_strategy() -> None:
    """07:T2: the counters alone; a join would refuse C."""
    group = make_group()
    group.add_member(make_member("A", "range", "round-robin"))
    group.add_member(make_member("B", "range"))
    group.add_member(make_member("C", "round-robin", "sticky"))
    assert group.votes == {"range": 2, "round-robin": 2, "sticky": 1}
    assert group.candidate_protocols() == set()
    group.state = P
    with pytest.raises(InvariantViolation, match="does not fit"):
        group.add_member(make_member("X", "sticky"))


def test_the_strategy_most_members_prefer_is_selected() -> None:
    """07:T3."""
    group = make_group()
    group.add_member(make_member("m1", "B", "A"))
    group.add_member(make_member("m2", "A", "B", "C"))
    group.add_member(make_member("m3", "D", "B", "A"))
    assert group.candidate_protocols() == {"A", "B"}
    assert [m.vote({"A", "B"}) for m in group.members.values()] == ["B", "A", "B"]
    assert group.select_protocol() == "B"


def test_a_tie_goes_to_the_strategy_voted_for_first() -> None:
    group = make_group()
    group.add_member(make_member("m1", "zebra", "ant"))
    group.add_member(make_member("m2", "ant", "zebra"))
    assert group.select_protocol() == "zebra"


def test_without_members_nothing_is_selected() -> None:
    with pytest.raises(InvariantViolation, match="no members"):
        make_group().select_protocol()


def test_members_come_and_go() -> None:
    group = make_group()
    decision = Decision()
    tickets = [Ticket("A"), None, Ticket("C")]
    for name, ticket in zip("ABC", tickets, strict=True):
        group.add_member(make_member(name, "range", "range", "sticky"), ticket)
        check_counters(group)
    assert leader_of(group) == "A"
    group.remove_member("A", ErrorCode.UNKNOWN_MEMBER_ID, decision)
    check_counters(group)
    assert leader_of(group) == "B"
    assert [(ticket, reply.error) for ticket, reply in decision.replies] == [
        (tickets[0], ErrorCode.UNKNOWN_MEMBER_ID)
    ]
    group.remove_member("C", ErrorCode.UNKNOWN_MEMBER_ID, decision)
    group.remove_member("B", ErrorCode.UNKNOWN_MEMBER_ID, decision)
    check_counters(group)
    assert leader_of(group) is None
    assert group.votes == {}


def test_update_counts_votes_and_parked_joins_once() -> None:
    group = make_group()
    group.add_member(make_member("A", "range"), Ticket("first"))
    member = group.members["A"]
    group.update_member(
        member, protocols=[("sticky", b"")], rebalance_timeout_ms=1, session_timeout_ms=2
    )
    decision = Decision()
    second = Ticket("second")
    group.park_join(member, second, decision)
    check_counters(group)
    assert group.votes == {"sticky": 1}
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (1, 2)
    # The request that was parked before is answered, not forgotten.
    assert [reply.error for _, reply in decision.replies] == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_a_members_metadata_vote_and_match() -> None:
    member = make_member("A", "range", "sticky")
    assert member.metadata("sticky") == b"A sticky"
    with pytest.raises(InvariantViolation, match="does not support protocol 'other'"):
        member.metadata("other")
    with pytest.raises(InvariantViolation, match="supports none"):
        member.vote({"other"})
    assert member.matches([("range", b"A range"), ("sticky", b"A sticky")])
    assert not member.matches([("sticky", b"A sticky"), ("range", b"A range")])
    assert not member.matches([("range", b"A range")])


def test_the_slowest_member_sets_the_rebalance_timeout() -> None:
    group = make_group()
    assert group.rebalance_timeout_ms == 0
    group.add_member(make_member("A", "range"))
    group.add_member(make_member("B", "range"))
    group.members["B"].rebalance_timeout_ms = 90_000
    assert group.rebalance_timeout_ms == 90_000


def test_default_member_id() -> None:
    """07:T6."""
    driver = GroupDriver("mygroup")
    ticket = driver.join(client_id="consumer-mygroup-1")
    assert re.fullmatch(r"consumer-mygroup-1-[0-9a-f-]{36}", ticket.reply.member_id)


def test_a_static_members_id_begins_with_its_instance() -> None:
    driver = GroupDriver()
    driver.join(instance_id="worker-7")
    assert re.fullmatch(r"worker-7-[0-9a-f-]{36}", next(iter(driver.group.members)))


def test_a_member_id_fits_a_string_whatever_the_client_is_called() -> None:
    driver = GroupDriver()
    ticket = driver.join(client_id="\u20ac" * 10_922)
    assert len(ticket.reply.member_id.encode()) <= 32_767


def test_group_summary_needs_a_protocol() -> None:
    group = make_group()
    with pytest.raises(InvariantViolation, match="no protocol"):
        group.current_members()
    group.add_member(make_member("A", "range"))
    with pytest.raises(InvariantViolation, match="no protocol"):
        group.registration({"A": b""})
    group.protocol_name = "range"
    with pytest.raises(KeyError):
        group.registration({})


SUBSCRIPTION = bytes.fromhex("0003 00000002 0001 61 0002 6262 ffffffff 00000000")


def test_topics_of_a_subscription() -> None:
    assert parse_subscribed_topics(SUBSCRIPTION) == ["a", "bb"]
    assert parse_subscribed_topics(b"\0\0\0\0\0\0") == []
    union = subscribed_topics([SUBSCRIPTION, b"\0\1\0\0\0\1\0\1c"])
    assert union == frozenset({"a", "bb", "c"})
    assert subscribed_topics([]) == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0", SUBSCRIPTION[:9], b"\xff\xff" + SUBSCRIPTION[2:], b"\0\1\0\0\0\1\0\1\xff",
     b"\0\1\xff\xff\xff\xff", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\xff\xff"],
)  # fmt: skip
def test_a_subscription_that_cannot_be_read_protects_everything(metadata: bytes) -> None:
    assert parse_subscribed_topics(metadata) is None
    assert subscribed_topics([SUBSCRIPTION, metadata]) is None
