"""A rebalance: how it begins, and how its first half, the joining, ends. Pure.

It begins when a member joins, leaves, times out or requests it. The others learn of it by their
heartbeats and join again; each JoinGroup is parked. The joining ends when all members have joined
and no id is pending, or when the longest rebalance timeout of the members has passed; members that
have not joined by then are dropped.

The first generation of an Empty group waits instead for `group.initial.rebalance.delay.ms`, so that
consumers started together share it. Worked example with a delay of 3 s and a rebalance timeout of
8 s, A joining at 0, B at 2, C at 7::

    0   deadline 3, 5 s left to prolong it
    3   B joined: deadline 3 + min(3, 5) = 6, 2 s left
    6   no one joined: generation 1 with A and B; C, at 7, causes generation 2

Its second half is in `syncing`. A member that has its JoinGroup answer and does not sync within the
rebalance timeout is dropped; otherwise a leader that is alive and idle would block its group
forever.
"""

import logging

from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    JoinReply,
    Now,
    SyncReply,
    TimerKind,
    WriteKind,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import Member
from odradek.coordinator.group.records import encode_group_key, encode_group_value
from odradek.errors import ErrorCode

__all__ = [
    "current_generation",
    "handle_departures",
    "maybe_complete_join",
    "maybe_prepare_rebalance",
    "on_join_timer",
    "on_sync_timer",
]

logger = logging.getLogger(__name__)


def maybe_prepare_rebalance(group: Group, why: str, now: Now, decision: Decision) -> bool:
    """Begins a rebalance unless one is running; returns whether it did."""
    if not group.can_rebalance:
        return False
    previous = group.state
    if previous is GroupState.COMPLETING_REBALANCE:
        blank_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now, decision)
    group.pending_sync.clear()
    group.sync_deadline_ms = None
    group.is_storing = False
    group.is_initial_join = previous is GroupState.EMPTY
    group.has_new_member = False
    timeout_ms = group.rebalance_timeout_ms
    if group.is_initial_join:
        delay_ms = group.config.initial_rebalance_delay_ms
        group.join_remaining_ms = max(timeout_ms - delay_ms, 0)
        timeout_ms = delay_ms
    group.transition_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
    logger.info(
        "group %s: %s -> PreparingRebalance after generation %d: %s",
        group.group_id, previous.value, group.generation_id, why,
    )  # fmt: skip
    _arm_join(group, now.timer_ms + timeout_ms, decision)
    maybe_complete_join(group, now, decision)
    return True


def maybe_complete_join(group: Group, now: Now, decision: Decision) -> bool:
    """Ends the joining if all members have joined; returns whether it did."""
    if (
        group.state is not GroupState.PREPARING_REBALANCE
        or group.is_initial_join
        or not group.has_all_members_joined
    ):
        return False
    _complete_join(group, now, decision)
    return True


def handle_departures(group: Group, why: str, now: Now, decision: Decision) -> None:
    """Rebalances after members or pending ids were removed."""
    if not maybe_prepare_rebalance(group, why, now, decision):
        maybe_complete_join(group, now, decision)


def on_join_timer(group: Group, due_ms: int, now: Now, decision: Decision) -> None:
    """Ends the joining if its deadline has passed."""
    if due_ms != group.join_timer_due_ms:
        return  # Not the one that counts.
    group.join_timer_due_ms = None
    if group.state is not GroupState.PREPARING_REBALANCE or group.join_deadline_ms is None:
        return
    if now.timer_ms < group.join_deadline_ms:
        _arm_join(group, group.join_deadline_ms, decision)
    elif group.is_initial_join and group.has_new_member and group.join_remaining_ms:
        group.has_new_member = False
        delay_ms = min(group.config.initial_rebalance_delay_ms, group.join_remaining_ms)
        group.join_remaining_ms = max(group.join_remaining_ms - delay_ms, 0)
        _arm_join(group, now.timer_ms + delay_ms, decision)
    else:
        _complete_join(group, now, decision)


def on_sync_timer(group: Group, due_ms: int, now: Now, decision: Decision) -> None:
    """Drops the members that did not sync before the deadline."""
    if due_ms != group.sync_timer_due_ms:
        return  # Not the one that counts.
    group.sync_timer_due_ms = None
    if group.sync_deadline_ms is None:
        return
    if now.timer_ms < group.sync_deadline_ms:
        _arm_sync(group, group.sync_deadline_ms, decision)
        return
    late = list(group.pending_sync)
    for member_id in late:
        group.remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    handle_departures(group, f"{', '.join(late)} joined and did not sync", now, decision)


def blank_assignments(group: Group, error: ErrorCode, now: Now, decision: Decision) -> None:
    """Cancels a generation: clears all assignments and answers parked SyncGroups with `error`."""
    reply = SyncReply(error)
    for member in group.members.values():
        member.assignment = b""
        if member.sync_ticket is not None:
            group.answer_sync(member, reply, now.timer_ms, decision)


def current_generation(group: Group, member: Member, *, with_members: bool) -> JoinReply:
    """The JoinGroup answer about the present generation."""
    return JoinReply(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        group.current_members() if with_members else (),
    )


def _complete_join(group: Group, now: Now, decision: Decision) -> None:
    group.is_initial_join = False
    missing = [m for m in group.members.values() if not m.is_awaiting_join and not m.is_static]
    for member in missing:
        group.remove_member(member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, decision)
    joined = [member for member in group.members.values() if member.is_awaiting_join]
    if group.members and not joined:
        # All members are static and none has joined: they stay members until their sessions end.
        _arm_join(group, now.timer_ms + group.rebalance_timeout_ms, decision)
        return
    group.join_deadline_ms = None
    if joined and not group.members[group.leader_id or ""].is_awaiting_join:
        group.leader_id = joined[0].member_id
    group.init_next_generation(now.wall_ms)
    logger.info(
        "group %s: generation %d with %d members, protocol %s",
        group.group_id, group.generation_id, len(group.members), group.protocol_name,
    )  # fmt: skip
    if not group.members:
        assert decision.write is None
        value = encode_group_value(group.registration({}))
        records = [(encode_group_key(group.group_id), value)]
        decision.write = GroupWrite(WriteKind.EMPTY, list(records), group.generation_id)
        return
    for member in joined:
        reply = current_generation(group, member, with_members=member.member_id == group.leader_id)
        member.is_new = False
        group.pending_sync[member.member_id] = None
        group.answer_join(member, reply, now.timer_ms, decision)
    _arm_sync(group, now.timer_ms + group.rebalance_timeout_ms, decision)


def _arm_join(group: Group, deadline_ms: int, decision: Decision) -> None:
    group.join_deadline_ms = deadline_ms
    if group.join_timer_due_ms is None or deadline_ms < group.join_timer_due_ms:
        group.join_timer_due_ms = deadline_ms
        decision.timers.append(((TimerKind.JOIN, "", deadline_ms), deadline_ms))


def _arm_sync(group: Group, deadline_ms: int, decision: Decision) -> None:
    group.sync_deadline_ms = deadline_ms
    if group.sync_timer_due_ms is None or deadline_ms < group.sync_timer_due_ms:
        group.sync_timer_due_ms = deadline_ms
        decision.timers.append(((TimerKind.SYNC, "", deadline_ms), deadline_ms))
