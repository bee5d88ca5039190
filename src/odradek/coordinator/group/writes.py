"""The decision that follows the append of a group's registration, or its failure. Pure."""

import logging

from odradek.coordinator.group.decisions import Decision, GroupWrite, JoinReply, Now, WriteKind
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.membership import PreviousMember
from odradek.coordinator.group.rebalance import (
    blank_assignments,
    current_generation,
    maybe_prepare_rebalance,
)
from odradek.coordinator.group.syncing import own_assignment
from odradek.coordinator.writing import Asked, append_error
from odradek.errors import ErrorCode

__all__ = ["complete_write"]

logger = logging.getLogger(__name__)


def complete_write(group: Group, write: GroupWrite, error: ErrorCode, now: Now) -> Decision:
    """Decides what follows when the append of `write` ended with `error`, the log's error."""
    decision = Decision()
    if error is ErrorCode.NONE:
        group.has_registration = True
    else:
        logger.warning(
            "group %s: its registration in generation %d (%s) was not written: %s",
            group.group_id, write.generation_id, write.kind.value, error.name,
        )  # fmt: skip
    if write.kind is WriteKind.ASSIGNMENT:
        _complete_assignment(group, write, append_error(error, Asked.MEMBERSHIP), now, decision)
    elif write.kind is WriteKind.STATIC_MEMBER:
        _complete_static_member(group, write, append_error(error, Asked.MEMBERSHIP), now, decision)
    # EMPTY: the next registration covers it.
    return decision


def _complete_assignment(
    group: Group, write: GroupWrite, error: ErrorCode, now: Now, decision: Decision
) -> None:
    if (
        group.state is not GroupState.COMPLETING_REBALANCE
        or group.generation_id != write.generation_id
    ):
        return  # Another rebalance began, which answers every member.
    group.is_storing = False
    if error is not ErrorCode.NONE:
        blank_assignments(group, error, now, decision)
        why = f"the assignment could not be written: {error.name}"
        maybe_prepare_rebalance(group, why, now, decision)
        return
    for member in group.members.values():
        member.assignment = write.assignments[member.member_id]
        if member.sync_ticket is not None:
            group.answer_sync(member, own_assignment(group, member), now.timer_ms, decision)
    group.transition_to(GroupState.STABLE, now.wall_ms)


def _complete_static_member(
    group: Group, write: GroupWrite, error: ErrorCode, now: Now, decision: Decision
) -> None:
    previous = write.previous
    assert isinstance(previous, PreviousMember)
    member = group.members.get(previous.new_id)
    if (
        member is None
        or member.join_ticket is not write.ticket
        or group.state is not GroupState.STABLE
        or group.generation_id != write.generation_id
    ):
        return  # A rebalance took over this JoinGroup, or the member is gone, or the group is Dead.
    if error is not ErrorCode.NONE:
        reply = JoinReply(error, "")
        group.answer_join(member, reply, now.timer_ms, decision)
        group.replace_static_member(previous.new_id, previous.old_id)
        group.update_member(
            member,
            protocols=previous.protocols,
            rebalance_timeout_ms=previous.rebalance_timeout_ms,
            session_timeout_ms=previous.session_timeout_ms,
        )
        group.arm_session(member, now.timer_ms + member.session_timeout_ms, decision)
        return
    if previous.version >= 9:
        is_leader = member.member_id == group.leader_id
        reply = current_generation(group, member, with_members=is_leader)
        reply = reply._replace(skip_assignment=is_leader)
    else:
        # Under its old id, so that a leader that has returned does not assign again.
        reply = current_generation(group, member, with_members=False)
        reply = reply._replace(leader=previous.leader_id or "")
    group.answer_join(member, reply, now.timer_ms, decision)
