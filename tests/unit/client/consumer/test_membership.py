"""What a member of a group does after each answer, and what an assignment changes."""

import pytest

from odradek.client.consumer.membership import (
    Membership,
    Next,
    Phase,
    decide_next,
    decide_transfer,
)
from odradek.errors import ErrorCode
from odradek.model import TopicPartition


def partitions(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, Next.GO_ON),
        (ErrorCode.REBALANCE_IN_PROGRESS, Next.JOIN_AGAIN),
        (ErrorCode.MEMBER_ID_REQUIRED, Next.JOIN_WITH_ID),
        (ErrorCode.UNKNOWN_MEMBER_ID, Next.LOST),
        (ErrorCode.ILLEGAL_GENERATION, Next.LOST),
        (ErrorCode.FENCED_INSTANCE_ID, Next.FENCED),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Next.SAME_AGAIN),
        (ErrorCode.NOT_COORDINATOR, Next.SAME_AGAIN),
        (ErrorCode.NETWORK_EXCEPTION, Next.SAME_AGAIN),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Next.RAISE),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, Next.RAISE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Next.RAISE),
    ],
)
def test_answers(code: ErrorCode, expected: Next) -> None:
    assert decide_next(code) is expected


def test_a_cooperative_member_gives_up_and_gets_differences_only() -> None:
    """09:CL-23."""
    transfer = decide_transfer(partitions(0, 1, 2), partitions(1, 3), is_cooperative=True)
    assert transfer.revoked == partitions(0, 2)
    assert transfer.added == partitions(3)
    assert transfer.assigned == partitions(1, 3)
    assert transfer.rejoins


def test_a_cooperative_member_that_gives_nothing_up_does_not_join_again() -> None:
    transfer = decide_transfer(partitions(0), partitions(0, 1), is_cooperative=True)
    assert not transfer.rejoins
    assert transfer.added == partitions(1)


def test_an_eager_member_let_go_of_everything_before() -> None:
    """09:CL-23."""
    transfer = decide_transfer((), partitions(0, 1), is_cooperative=False)
    assert transfer.revoked == ()
    assert transfer.added == partitions(0, 1)
    assert not transfer.rejoins


def joined() -> Membership:
    membership = Membership(None)
    membership.wants_join = False
    membership.on_joined("m-1", 4)
    membership.on_synced()
    membership.on_applied()
    return membership


def test_the_way_into_the_group() -> None:
    membership = Membership("i")
    assert membership.identity == ("", -1, "i")
    assert not membership.is_in_group
    membership.on_joined("m-1", 4)
    membership.on_synced()
    phases = [membership.phase]
    membership.on_applied()
    assert [*phases, membership.phase] == [Phase.ASSIGNED, Phase.STABLE]
    assert membership.identity == ("m-1", 4, "i")


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m-1"), (None, "")],
)
def test_a_lost_member_joins_as_a_newcomer(code: ErrorCode | None, member_id: str) -> None:
    membership = joined()
    membership.on_lost(code)
    assert membership.phase is Phase.OUTSIDE
    assert membership.has_lost
    assert membership.wants_join
    assert membership.identity == (member_id, -1, None)


def test_a_fenced_member_stays_so() -> None:
    membership = joined()
    membership.on_fenced()
    membership.on_lost(ErrorCode.UNKNOWN_MEMBER_ID)
    assert membership.phase is Phase.FENCED


def test_what_is_lost_while_it_is_taken_over_stays_lost() -> None:
    """A listener may take its time, and heartbeats go on meanwhile."""
    fenced, lost = Membership("i"), Membership(None)
    for membership in (fenced, lost):
        membership.on_joined("m-1", 4)
        membership.on_synced()
    fenced.on_fenced()
    fenced.on_applied()
    assert fenced.phase is Phase.FENCED
    lost.on_lost(ErrorCode.UNKNOWN_MEMBER_ID)
    lost.on_applied()
    assert lost.phase is Phase.OUTSIDE
