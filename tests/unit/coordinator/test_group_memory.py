"""What groups keep of clients that never come back: bounded, whatever they send."""

import pytest

from odradek.coordinator.group.coordinator import MAX_PENDING_MEMBERS
from odradek.coordinator.group.decisions import JoinReply, JoinRequest
from odradek.errors import ErrorCode
from odradek.protocol.hot.offset_commit import OffsetCommitView
from tests.unit.coordinator.coordinator_fakes import Coordination

SESSION_MS = 10_000


def ask_for_id(
    made: Coordination, group_id: str = "g", client_id: str = "c", member_id: str = ""
) -> JoinReply:
    answers: list[JoinReply] = []
    protocols = [("range", b"")]
    request = JoinRequest(
        group_id, member_id, None, client_id, "/h", SESSION_MS, 60_000, "consumer", protocols, 5
    )
    made.groups.join(request, answers.append)
    return answers[0] if answers else JoinReply(ErrorCode.NONE, member_id)


def commit(made: Coordination, view: OffsetCommitView) -> ErrorCode:
    outcome = made.groups.commit(view, 8, lambda _error, _rejected: None)
    assert outcome is not None
    return outcome[0]


@pytest.fixture
def made() -> Coordination:
    coordination = Coordination()
    coordination.lead_all()
    return coordination


def test_ids_that_are_not_used_are_bounded_with_their_timers(made: Coordination) -> None:
    """15:KAFKA-7610: clients that time out and ask again do not make the broker grow."""
    first = ask_for_id(made)
    for _ in range(MAX_PENDING_MEMBERS + 10):
        last = ask_for_id(made)
    group = made.registry.groups["g"]
    assert len(group.pending_members) == MAX_PENDING_MEMBERS
    assert made.timer.size == MAX_PENDING_MEMBERS
    assert first.member_id not in group.pending_members
    assert last.member_id in group.pending_members
    assert ask_for_id(made, member_id=first.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_are_bounded_over_all_groups(made: Coordination) -> None:
    for number in range(MAX_PENDING_MEMBERS + 10):
        ask_for_id(made, f"g{number}")
    assert made.timer.size == MAX_PENDING_MEMBERS
    # A group that was nothing but an id goes with it.
    assert len(made.registry) == MAX_PENDING_MEMBERS
    assert "g0" not in made.registry.groups


def test_an_id_is_no_longer_than_people_read(made: Coordination) -> None:
    reply = ask_for_id(made, client_id="c" * 30_000)
    assert len(reply.member_id) == 255 + 1 + 36


def test_an_id_that_is_used_leaves_no_timer_of_its_own(made: Coordination) -> None:
    reply = ask_for_id(made)
    assert made.timer.size == 1
    ask_for_id(made, member_id=reply.member_id)
    # The session of the new member and the delay of the first generation.
    assert made.timer.size == 2


def test_an_id_that_leaves_leaves_nothing(made: Coordination) -> None:
    reply = ask_for_id(made)
    assert made.groups.leave("g", [(reply.member_id, None)]) == (
        ErrorCode.NONE,
        [ErrorCode.NONE],
    )
    assert made.timer.size == 0
    assert len(made.registry) == 0


def test_an_id_that_is_refused_as_an_instance_expires_all_the_same(made: Coordination) -> None:
    reply = ask_for_id(made)
    request = JoinRequest(
        "g", reply.member_id, "i", "c", "/h", SESSION_MS, 60_000, "consumer", [("range", b"")], 5
    )
    answers: list[JoinReply] = []
    made.groups.join(request, answers.append)
    assert answers[0].error is ErrorCode.UNKNOWN_MEMBER_ID
    made.advance(SESSION_MS)
    assert len(made.registry) == 0


@pytest.mark.parametrize("group_id", ["g" * 32_768, "\u20ac" * 10_923])
def test_a_group_that_cannot_be_stored_is_not_made(made: Coordination, group_id: str) -> None:
    """07:4.1: a compact string can be longer than the string of a record's key."""
    view = OffsetCommitView(group_id, -1, "", None, -1, [("t", [(0, 1, -1, None)])])
    assert commit(made, view) is ErrorCode.INVALID_GROUP_ID
    assert ask_for_id(made, group_id).error is ErrorCode.INVALID_GROUP_ID
    assert len(made.registry) == 0


@pytest.mark.parametrize(
    ("view", "error"),
    [
        (
            OffsetCommitView("g", -1, "", None, -1, [("t", [(0, 1, -1, "x" * 5_000)])]),
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ),
        (
            OffsetCommitView("g", -1, "somebody", None, -1, [("t", [(0, 1, -1, None)])]),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_a_commit_that_is_refused_leaves_no_group(
    made: Coordination, view: OffsetCommitView, error: ErrorCode
) -> None:
    assert commit(made, view) is error
    assert len(made.registry) == 0


def test_a_commit_that_is_not_written_leaves_no_group(made: Coordination) -> None:
    made.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    view = OffsetCommitView("g", -1, "", None, -1, [("t", [(0, 1, -1, None)])])
    assert commit(made, view) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(made.registry) == 0
