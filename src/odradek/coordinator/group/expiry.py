"""Offsets nobody needs any more.

When an offset's time starts to run, first match wins:

===================================================  ===============================  =============
group                                                since                            never
===================================================  ===============================  =============
has a protocol type and is Empty                     it became Empty, if known, else
                                                     its commit
is of type `consumer`, Stable, subscription known    its commit                       if subscribed
has no protocol type: a simple consumer's            its commit
anything else                                                                         always
===================================================  ===============================  =============

An offset that is being committed, or waits for a transaction, never expires. Mid-rebalance the
subscription says nothing (KAFKA-13636), so nothing expires then. A commit of an old client that
says when it expires is taken at its word, where the table lets it expire at all.
"""

from collections.abc import Collection, Iterator

from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import has_pending_commit
from odradek.coordinator.group.records import NO_TIMESTAMP
from odradek.coordinator.group.removals import Removal, make_removal
from odradek.coordinator.group.states import GroupState
from odradek.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE

__all__ = ["decide_cleanup", "decide_topic_deletion", "expired_partitions"]


def decide_cleanup(group: Group, wall_ms: int) -> Removal:
    """Forget what has expired, and a group that is Empty with nothing left.

    It is done at once. A tombstone that is lost is written again in the next round of whoever then
    coordinates the group.
    """
    if group.is_dead:
        return Removal([], [], False)
    return _remove(group, expired_partitions(group, wall_ms))


def decide_topic_deletion(group: Group, topics: Collection[str]) -> Removal:
    """Forget the offsets of topics that were deleted, at once, and a group that had no others."""
    keys = [key for key in group.offsets if key[0] in topics]
    if group.is_dead or not keys:
        return Removal([], [], False)
    return _remove(group, keys)


def expired_partitions(group: Group, wall_ms: int) -> list[tuple[str, int]]:
    """The partitions whose offsets have expired."""
    return list(_iter_expired(group, wall_ms))


def _iter_expired(group: Group, wall_ms: int) -> Iterator[tuple[str, int]]:
    since_ms: int | None = None
    subscribed: Collection[str] = ()
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms
        elif (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE
            and group.state is GroupState.STABLE
            and group.subscribed_topics is not None
        ):
            subscribed = group.subscribed_topics
        else:
            return
    retention_ms = group.config.retention_ms
    for key, slot in group.offsets.items():
        committed = slot.committed
        if committed is None or key[0] in subscribed or has_pending_commit(group, key):
            continue
        if committed.expire_ms != NO_TIMESTAMP:
            is_expired = wall_ms >= committed.expire_ms
        else:
            base_ms = committed.commit_ms if since_ms is None else since_ms
            is_expired = wall_ms - base_ms >= retention_ms
        if is_expired:
            yield key


def _remove(group: Group, keys: list[tuple[str, int]]) -> Removal:
    is_group = (
        group.state is GroupState.EMPTY
        and len(keys) == len(group.offsets)
        and not any(group.offsets[key].pending_count for key in keys)
        and not group.transactional
        and not group.pending_members
    )
    removal = make_removal(group, keys, is_group=is_group)
    for key in keys:
        slot = group.offsets[key]
        if slot.pending_count:
            # Only of a deleted topic. The commit stands before the tombstone in the log, and goes
            # with it: `apply_removal`.
            slot.committed = None
        else:
            del group.offsets[key]
    if is_group:
        group.bury()
    return removal
