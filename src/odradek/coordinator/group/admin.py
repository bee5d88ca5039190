"""Requests of administrators: describe, list and delete groups, delete offsets. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.coordinator.group.expiry import Removal, make_removal
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import CONSUMER_PROTOCOL_TYPE, MemberSummary
from odradek.coordinator.group.offsets import GroupOffsets
from odradek.errors import ErrorCode

__all__ = [
    "GROUP_TYPE",
    "GroupOverview",
    "GroupSummary",
    "delete_group",
    "delete_offsets",
    "describe",
    "matches_filters",
    "overview",
]

GROUP_TYPE: Final = "classic"


class GroupSummary(NamedTuple):
    """A group in the result of `describe`."""

    state: str
    protocol_type: str
    protocol: str
    members: Sequence[MemberSummary]


class GroupOverview(NamedTuple):
    """A group in the result of a list."""

    group_id: str
    protocol_type: str
    state: str


def describe(group: Group) -> GroupSummary:
    """State and members; protocol, subscriptions and assignments only of a Stable group."""
    protocol = group.protocol_name if group.state is GroupState.STABLE else None
    return GroupSummary(
        group.state.value,
        group.protocol_type or "",
        protocol or "",
        [member.summary(protocol) for member in group.members.values()],
    )


def overview(group: Group) -> GroupOverview:
    """One line of a list."""
    return GroupOverview(group.group_id, group.protocol_type or "", group.state.value)


def matches_filters(group: Group, states: Sequence[str], types: Sequence[str]) -> bool:
    """Whether a list with these filters includes the group; an empty filter includes all."""
    if states and group.state.value.lower() not in map(str.lower, states):
        return False
    return not types or GROUP_TYPE in map(str.lower, types)


def delete_group(group: Group, offsets: GroupOffsets) -> ErrorCode | Removal:
    """Removes an Empty group and its offsets.

    Until the tombstones are written (`apply_removal`) or have failed (`fail_removal`), the group
    refuses requests.
    """
    if group.is_dead:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY:
        return ErrorCode.NON_EMPTY_GROUP
    group.is_being_deleted = True
    group.pending_members.clear()
    keys = dict.fromkeys((*offsets.slots, *offsets.staged_keys()))
    return make_removal(group, offsets, keys, is_group=True)


def delete_offsets(
    group: Group, offsets: GroupOffsets, partitions: Iterable[tuple[str, int]]
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode], Removal]:
    """The tombstones for offsets of partitions that no member is subscribed to.

    Returns:
        The error of the request, those of the partitions, and the removal to write.
    """
    nothing = Removal([], [], False)
    if group.is_dead:
        return ErrorCode.GROUP_ID_NOT_FOUND, {}, nothing
    is_empty = group.state is GroupState.EMPTY
    if not is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP, {}, nothing
    errors = {}
    removed = []
    staged = set(offsets.staged_keys())
    for key in dict.fromkeys(partitions):
        topics = group.subscribed_topics
        if not is_empty and (topics is None or key[0] in topics):
            errors[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            continue
        errors[key] = ErrorCode.NONE
        slot = offsets.slots.get(key)
        if key in staged or (
            slot is not None and (slot.committed is not None or slot.pending_count)
        ):
            removed.append(key)
    return ErrorCode.NONE, errors, make_removal(group, offsets, removed, is_group=False)
