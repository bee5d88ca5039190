"""SyncGroup: the leader's assignment becomes durable, and each member gets its part of it. Pure.

`sync` edits the volatile state and returns the changes that must be durable, see `decisions`.
"""

import logging

from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    Now,
    SyncReply,
    SyncRequest,
    Ticket,
    WriteKind,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import Member
from odradek.coordinator.group.membership import check_member
from odradek.coordinator.group.records import encode_group_key, encode_group_value
from odradek.errors import ErrorCode, InvariantViolation

__all__ = ["own_assignment", "sync"]

logger = logging.getLogger(__name__)


def sync(group: Group, request: SyncRequest, ticket: Ticket, now: Now) -> Decision:
    """Returns a member's assignment, or parks the request until the leader has assigned."""
    decision = Decision()
    error = _check_sync(group, request)
    if error is not ErrorCode.NONE:
        decision.replies.append((ticket, SyncReply(error)))
        return decision
    member = group.members[request.member_id]
    group.discard_pending_sync(member.member_id)
    if group.state is GroupState.STABLE:
        decision.replies.append((ticket, own_assignment(group, member)))
        group.arm_session(member, now.timer_ms + member.session_timeout_ms, decision)
        return decision
    if member.sync_ticket is not None:  # An earlier attempt, which the client gave up.
        decision.replies.append((member.sync_ticket, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)))
    member.sync_ticket = ticket
    if member.member_id == group.leader_id and not group.is_storing:
        decision.write = _write_assignment(group, request)
        group.is_storing = True
    return decision


def own_assignment(group: Group, member: Member) -> SyncReply:
    """The answer to a member: its own assignment only."""
    return SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def _check_sync(group: Group, request: SyncRequest) -> ErrorCode:
    """Checks a SyncGroup. The order matters: the first error that applies is the answer."""
    if group.is_dead:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = check_member(group, request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    match group.state:
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return ErrorCode.NONE
        case GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        case _:
            raise InvariantViolation(
                f"group {group.group_id!r} is {group.state.value} and has members"
            )


def _write_assignment(group: Group, request: SyncRequest) -> GroupWrite:
    assignments = {
        member_id: request.assignments.get(member_id, b"") for member_id in group.members
    }
    missing = [member_id for member_id in group.members if member_id not in request.assignments]
    if missing:
        logger.warning(
            "group %s: leader %s assigned nothing to %s in generation %d",
            group.group_id, group.leader_id, ", ".join(missing), group.generation_id,
        )  # fmt: skip
    value = encode_group_value(group.registration(assignments))
    return GroupWrite(
        WriteKind.ASSIGNMENT,
        [(encode_group_key(group.group_id), value)],
        group.generation_id,
        assignments=assignments,
    )
