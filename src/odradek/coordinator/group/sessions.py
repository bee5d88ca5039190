"""Heartbeats, session timeouts, and the loading and unloading of a group. Pure.

A heartbeat moves the member's deadline and changes nothing else. The timer that was armed before
fires at its old time, finds the deadline moved and is armed for the new one: one timer per member
and session timeout instead of one per heartbeat.
"""

from odradek.coordinator.group.decisions import (
    Decision,
    JoinReply,
    Now,
    SyncReply,
    TimerKey,
    TimerKind,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.membership import check_member
from odradek.coordinator.group.rebalance import (
    handle_departures,
    maybe_complete_join,
    maybe_prepare_rebalance,
    on_join_timer,
    on_sync_timer,
)
from odradek.errors import ErrorCode

__all__ = ["check_commit", "drop_pending", "heartbeat", "on_loaded", "on_timer", "unload"]

_NONE = ErrorCode.NONE


def check_commit(
    group: Group, member_id: str, generation_id: int, instance_id: str | None, timer_ms: int
) -> ErrorCode:
    """Checks whether the sender may commit offsets; a member's session is renewed by it."""
    member = group.members.get(member_id)
    if member is None or instance_id is not None or group.is_being_deleted:
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and not member_id and instance_id is None:
            # A client outside of the group, which must not overwrite its members' commits.
            return _NONE if group.state is GroupState.EMPTY else ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, member_id, instance_id)
        if error is not _NONE:
            return error
        assert member is not None
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    member.deadline_ms = timer_ms + member.session_timeout_ms
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _NONE


def heartbeat(
    group: Group, member_id: str, generation_id: int, instance_id: str | None, timer_ms: int
) -> ErrorCode:
    """Renews a member's session."""
    member = group.members.get(member_id)
    if member is None or instance_id is not None or group.is_being_deleted:
        if group.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = check_member(group, member_id, instance_id)
        if error is not _NONE:
            return error
        assert member is not None
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    member.deadline_ms = timer_ms + member.session_timeout_ms
    # Not in CompletingRebalance: REBALANCE_IN_PROGRESS would restart a rebalance that is about to
    # end.
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _NONE


def on_timer(group: Group, key: TimerKey, now: Now) -> Decision:
    """Handles a timer, which may no longer be needed."""
    decision = Decision()
    if group.is_dead:
        return decision
    kind, member_id, due_ms = key
    match kind:
        case TimerKind.SESSION:
            _on_session_timer(group, member_id, due_ms, now, decision)
        case TimerKind.PENDING:
            _on_pending_timer(group, member_id, now, decision)
        case TimerKind.JOIN:
            on_join_timer(group, due_ms, now, decision)
        case TimerKind.SYNC:
            on_sync_timer(group, due_ms, now, decision)
    return decision


def on_loaded(group: Group, now: Now) -> Decision:
    """Starts the sessions of a loaded group: its members have one session timeout to report."""
    decision = Decision()
    for member in group.members.values():
        group.arm_session(member, now.timer_ms + member.session_timeout_ms, decision)
    if len(group.members) > group.config.max_size:
        why = f"{len(group.members)} members, group.max.size is {group.config.max_size}"
        maybe_prepare_rebalance(group, why, now, decision)
    return decision


def unload(group: Group, now: Now) -> Decision:
    """Ends a group that is coordinated elsewhere: waiting clients look for its coordinator."""
    decision = Decision()
    error = ErrorCode.NOT_COORDINATOR
    for member in group.members.values():
        if member.join_ticket is not None:
            decision.replies.append((member.join_ticket, JoinReply(error, member.member_id)))
            member.join_ticket = None
        if member.sync_ticket is not None:
            decision.replies.append((member.sync_ticket, SyncReply(error)))
            member.sync_ticket = None
    # So that writes and timers still under way find no member.
    group.members = {}
    group.static_members = {}
    group.pending_members = {}
    group.awaiting_join_count = 0
    group.transition_to(GroupState.DEAD, now.wall_ms)
    return decision


def drop_pending(group: Group, member_id: str, now: Now) -> Decision:
    """Drops an unused id that was handed out, to make room for others."""
    decision = Decision()
    if group.pending_members.pop(member_id, None) is not None and not group.is_dead:
        maybe_complete_join(group, now, decision)
    return decision


def _on_pending_timer(group: Group, member_id: str, now: Now, decision: Decision) -> None:
    due_ms = group.pending_members.get(member_id)
    if due_ms is None:
        return
    if now.timer_ms < due_ms:
        decision.timers.append(((TimerKind.PENDING, member_id, due_ms), due_ms))
        return
    del group.pending_members[member_id]
    maybe_complete_join(group, now, decision)


def _on_session_timer(
    group: Group, member_id: str, due_ms: int, now: Now, decision: Decision
) -> None:
    member = group.members.get(member_id)
    if member is None or due_ms != member.timer_due_ms:
        return  # The member is gone, or the timer is outdated.
    member.timer_due_ms = None
    if now.timer_ms < member.deadline_ms:
        group.arm_session(member, member.deadline_ms, decision)
    elif member.is_new or not (member.is_awaiting_join or member.is_awaiting_sync):
        group.remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID, decision)
        handle_departures(group, f"member {member_id} was silent too long", now, decision)
    # Otherwise a request of the member is parked. Its answer arms the timer again.
