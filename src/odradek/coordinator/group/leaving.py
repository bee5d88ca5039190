"""LeaveGroup: members go, one by one or several at once."""

from collections.abc import Sequence

from odradek.coordinator.group.decisions import Decision, Now
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.joining import check_member
from odradek.coordinator.group.rebalance import handle_departures, maybe_complete_join
from odradek.errors import ErrorCode

__all__ = ["decide_leave"]


def decide_leave(
    group: Group, identities: Sequence[tuple[str, str | None]], now: Now
) -> tuple[list[ErrorCode], Decision]:
    """Take members out, each named by member id, instance id or both.

    An administrator removes a static member with its instance id and an empty member id.

    Returns:
        The outcome per identity, and what follows for the others.
    """
    decision = Decision()
    if group.is_dead:
        return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(identities), decision
    gone: list[str] = []
    errors = [_leave(group, *identity, gone, decision) for identity in identities]
    if gone:
        handle_departures(group, f"{', '.join(gone)} left", now, decision)
    else:
        maybe_complete_join(group, now, decision)  # A pending id may be all that was missing.
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
