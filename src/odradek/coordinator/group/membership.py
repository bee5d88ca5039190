"""JoinGroup and LeaveGroup: which clients become members, under which id. Pure.

A client's first JoinGroup has no member id. From version 4 on the answer is an id with
MEMBER_ID_REQUIRED, and the client joins with its second request: a client that gives up and tries
again does not leave a dead member each time. A static member is identified by its instance id; when
it returns with the same one, it replaces its former self, and a client that still uses the old
member id is fenced.

`join` and `leave` edit the volatile state and return the changes that must be durable, see
`decisions`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    JoinReply,
    JoinRequest,
    Now,
    SyncReply,
    Ticket,
    TimerKind,
    WriteKind,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import Member, protocol_names
from odradek.coordinator.group.rebalance import (
    current_generation,
    handle_departures,
    maybe_complete_join,
    maybe_prepare_rebalance,
)
from odradek.coordinator.group.records import encode_group_key, encode_group_value, fits_string
from odradek.errors import ErrorCode

__all__ = [
    "NEW_MEMBER_TIMEOUT_MS",
    "PreviousMember",
    "check_join",
    "check_member",
    "join",
    "leave",
    "make_member_id",
    "refuse",
]

logger = logging.getLogger(__name__)

# Time after which a client is removed whose first JoinGroup is parked: it sends no heartbeats yet.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000

# Of a client or instance id in a member id, in characters. Member ids are kept for clients that may
# never come back, so they must be short; this is longer than any id that a person reads.
_MAX_PREFIX: Final = 255

_STATIC_SKIP_VERSION: Final = 9


class PreviousMember(NamedTuple):
    """A static member before it returned, to be restored if its new id cannot be written."""

    old_id: str
    new_id: str
    protocols: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    leader_id: str | None
    version: int  # Of the JoinGroup request that waits.


def check_join(config: GroupCoordinatorConfig, request: JoinRequest) -> ErrorCode:
    """Checks a JoinGroup without its group."""
    if not request.group_id or not fits_string(request.group_id):
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    texts = (request.instance_id, request.protocol_type, *protocol_names(request.protocols))
    if not all(map(fits_string, texts)):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def refuse(member_id: str, error: ErrorCode) -> JoinReply:
    """The answer to a JoinGroup that is refused."""
    return JoinReply(error, member_id)


def make_member_id(request: JoinRequest, uuid: str) -> str:
    """`<client id>-<uuid>`, or `<instance id>-<uuid>` for a static member."""
    prefix = request.client_id if request.instance_id is None else request.instance_id
    return f"{prefix[:_MAX_PREFIX]}-{uuid}"


def join(
    group: Group, request: JoinRequest, ticket: Ticket, now: Now, new_id: Callable[[], str]
) -> Decision:
    """Lets a client join, or join again; this or a later decision has its answer."""
    decision = Decision()
    member_id = request.member_id
    if not _accepts(group, member_id):
        if member_id in group.members:
            group.remove_member(member_id, ErrorCode.GROUP_MAX_SIZE_REACHED, decision)
        group.pending_members.pop(member_id, None)
        reply = refuse("", ErrorCode.GROUP_MAX_SIZE_REACHED)
        decision.replies.append((ticket, reply))
    else:
        error = _check_fit(group, request)
        if error is ErrorCode.NONE:
            if member_id:
                error = _join(group, request, ticket, now, decision)
            else:
                _join_without_id(group, request, ticket, now, decision, new_id)
        if error is not ErrorCode.NONE:
            decision.replies.append((ticket, refuse(member_id, error)))
    maybe_complete_join(group, now, decision)
    return decision


def _accepts(group: Group, member_id: str) -> bool:
    """Whether `group.max.size` permits the member."""
    member = group.members.get(member_id)
    if group.state in (GroupState.EMPTY, GroupState.DEAD):
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and member.is_awaiting_join:
            return True
        return group.awaiting_join_count < group.config.max_size
    # Members that did not join this generation were removed, so the size decides.
    return member is not None or len(group.members) < group.config.max_size


def _check_fit(group: Group, request: JoinRequest) -> ErrorCode:
    if group.is_dead:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports_protocols(request.protocol_type, protocol_names(request.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _join_without_id(
    group: Group,
    request: JoinRequest,
    ticket: Ticket,
    now: Now,
    decision: Decision,
    new_id: Callable[[], str],
) -> None:
    member_id = make_member_id(request, new_id())
    if request.instance_id is not None and request.instance_id in group.static_members:
        _rejoin_static(group, request, member_id, ticket, now, decision)
    elif request.version >= 4 and request.instance_id is None:
        due_ms = now.timer_ms + request.session_timeout_ms
        group.pending_members[member_id] = due_ms
        decision.timers.append(((TimerKind.PENDING, member_id, due_ms), due_ms))
        decision.replies.append((ticket, refuse(member_id, ErrorCode.MEMBER_ID_REQUIRED)))
    else:
        _add_member(group, request, member_id, ticket, now, decision)


def _join(
    group: Group, request: JoinRequest, ticket: Ticket, now: Now, decision: Decision
) -> ErrorCode:
    """Joins with an id; returns an error if no answer was added."""
    member_id = request.member_id
    if member_id in group.pending_members:
        if request.instance_id is not None:
            logger.warning(
                "group %s: pending member %s joined as instance %s, though pending ids are given "
                "to dynamic members only",
                group.group_id, member_id, request.instance_id,
            )  # fmt: skip
            return ErrorCode.UNKNOWN_MEMBER_ID
        _add_member(group, request, member_id, ticket, now, decision)
        return ErrorCode.NONE
    error = check_member(group, member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    member = group.members[member_id]
    is_leader = member_id == group.leader_id
    is_same = member.matches(request.protocols)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            _update_member(group, member, request, ticket, now, decision)
        case GroupState.COMPLETING_REBALANCE if is_same:
            # The answer to the first JoinGroup was lost.
            _repeat_generation(group, member, ticket, now, decision, with_members=is_leader)
        case GroupState.STABLE if is_same and not is_leader:
            _repeat_generation(group, member, ticket, now, decision, with_members=False)
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            # A leader may request a rebalance, because topics changed for example.
            _update_member(group, member, request, ticket, now, decision)
        case _:
            return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if the sender is the member it claims to be."""
    if instance_id is not None:
        current_id = group.static_members.get(instance_id)
        if current_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _repeat_generation(
    group: Group,
    member: Member,
    ticket: Ticket,
    now: Now,
    decision: Decision,
    *,
    with_members: bool,
) -> None:
    reply = current_generation(group, member, with_members=with_members)
    decision.replies.append((ticket, reply))
    group.arm_session(member, now.timer_ms + member.session_timeout_ms, decision)


def _add_member(
    group: Group,
    request: JoinRequest,
    member_id: str,
    ticket: Ticket,
    now: Now,
    decision: Decision,
) -> None:
    member = Member(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and not group.generation_id:
        group.has_new_member = True  # Prolongs the delay of its first generation only.
    group.add_member(member, ticket)
    group.pending_members.pop(member_id, None)
    group.arm_session(member, now.timer_ms + NEW_MEMBER_TIMEOUT_MS, decision)
    maybe_prepare_rebalance(group, f"member {member_id} joined", now, decision)


def _update_member(
    group: Group,
    member: Member,
    request: JoinRequest,
    ticket: Ticket,
    now: Now,
    decision: Decision,
) -> None:
    group.update_member(
        member,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    group.park_join(member, ticket, decision)
    why = f"member {member.member_id} joined again"
    maybe_prepare_rebalance(group, why, now, decision)


def _rejoin_static(
    group: Group,
    request: JoinRequest,
    new_id: str,
    ticket: Ticket,
    now: Now,
    decision: Decision,
) -> None:
    assert request.instance_id is not None
    old_id = group.static_members[request.instance_id]
    member = group.members[old_id]
    logger.info(
        "group %s: static member %s is back: %s replaces %s",
        group.group_id, request.instance_id, new_id, old_id,
    )  # fmt: skip
    fenced = ErrorCode.FENCED_INSTANCE_ID
    if member.join_ticket is not None:
        group.answer_join(member, refuse(old_id, fenced), now.timer_ms, decision)
    if member.sync_ticket is not None:
        group.answer_sync(member, SyncReply(fenced), now.timer_ms, decision)
    previous = PreviousMember(
        old_id,
        new_id,
        member.protocols,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        group.leader_id,
        request.version,
    )
    group.replace_static_member(old_id, new_id)
    member.is_new = False
    group.update_member(
        member,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
    )
    group.arm_session(member, now.timer_ms + member.session_timeout_ms, decision)
    group.park_join(member, ticket, decision)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
        assert decision.write is None
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        value = encode_group_value(group.registration(assignments))
        decision.write = GroupWrite(
            WriteKind.STATIC_MEMBER,
            [(encode_group_key(group.group_id), value)],
            group.generation_id,
            previous=previous,
            ticket=ticket,
        )
    else:
        # In CompletingRebalance the leader may be assigning to the old id.
        maybe_prepare_rebalance(group, f"static member {new_id} is back", now, decision)


def leave(
    group: Group, identities: Sequence[tuple[str, str | None]], now: Now
) -> tuple[list[ErrorCode], Decision]:
    """Removes members, each named by member id, instance id or both.

    An administrator removes a static member with its instance id and an empty member id.

    Returns:
        The error of each identity, and the decision for the other members.
    """
    decision = Decision()
    if group.is_dead:
        return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(identities), decision
    gone: list[str] = []
    errors = [_leave(group, *identity, gone, decision) for identity in identities]
    if gone:
        handle_departures(group, f"{', '.join(gone)} left", now, decision)
    else:
        maybe_complete_join(group, now, decision)  # It may have waited for a pending id only.
    return errors, decision


def _leave(
    group: Group, member_id: str, instance_id: str | None, gone: list[str], decision: Decision
) -> ErrorCode:
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    if instance_id is None and member_id in group.pending_members:
        del group.pending_members[member_id]
        return ErrorCode.NONE
    error = check_member(group, member_id, instance_id)
    if error is ErrorCode.NONE:
        group.remove_member(member_id, ErrorCode.UNKNOWN_MEMBER_ID, decision)
        gone.append(member_id)
    return error
