"""Removal of offsets and groups: by age, with their topic, or by an administrator. Pure.

The time from which an offset's retention counts; the first match wins:

===================================================  ===============================  =============
group                                                since                            never
===================================================  ===============================  =============
has a protocol type and is Empty                     it became Empty, if known, else
                                                     its commit
is of type `consumer`, Stable, subscription known    its commit                       if subscribed
has no protocol type: a simple consumer's            its commit
anything else                                                                         always
===================================================  ===============================  =============

An offset that is being committed, or waits for a transaction, never expires. During a rebalance the
subscription is not reliable (KAFKA-13636), so nothing expires then. The expiry time in the commit
of an old client is obeyed, if the table lets the offset expire at all.

`expire` and `forget_topics` edit the state in memory and return the removal to make durable; a
removal by an administrator changes nothing before it is durable (`apply_removal`).

A tombstone also removes what open transactions have committed before it: their end, later in the
log, does not bring an offset back that an administrator or the deletion of its topic has removed.

One removal is one batch of tombstones. Each tombstone is independent, so a group with more offsets
than fit into a batch is removed by several removals, the last of which includes the group.
"""

from collections.abc import Collection, Iterable, Iterator

from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.group.offsets import GroupOffsets, drop_staged, has_pending_commit
from odradek.coordinator.group.records import (
    NO_TIMESTAMP,
    encode_group_key,
    encode_offset_key,
)
from odradek.coordinator.writing import Record, cut_records

__all__ = [
    "Removal",
    "apply_removal",
    "expire",
    "expired_partitions",
    "fail_removal",
    "forget_topics",
    "make_removal",
]


class Removal:
    """Partitions, and perhaps the group itself, that are to be removed."""

    __slots__ = ("is_group", "keys", "records")

    def __init__(self, keys: list[tuple[str, int]], records: list[Record], is_group: bool) -> None:
        self.keys = keys
        self.records = records  # Tombstones; empty if the log has no record of it.
        self.is_group = is_group  # Whether the group is removed, too.

    @property
    def offset_count(self) -> int:
        """The number of offsets to remove."""
        return len(self.keys)

    def parts(self) -> Iterator["Removal"]:
        """Splits into removals that fit in a batch each; the last includes the group."""
        keys = iter(self.keys)
        left = len(self.records)
        for records in cut_records(self.records):
            left -= len(records)
            # Records first: the last one may be the group's own and has no key.
            part = [key for _, key in zip(records, keys, strict=False)]
            yield Removal(part, records, self.is_group and not left)


def make_removal(
    group: Group, offsets: GroupOffsets, keys: Iterable[tuple[str, int]], *, is_group: bool
) -> Removal:
    """The tombstones for these partitions; nothing is removed yet."""
    keys = list(keys)
    records: list[Record] = [(_record_key(group, offsets, key), None) for key in keys]
    if is_group and group.has_registration:
        records.append((encode_group_key(group.group_id), None))
    return Removal(keys, records, is_group)


def _record_key(group: Group, offsets: GroupOffsets, key: tuple[str, int]) -> bytes:
    slot = offsets.slots.get(key)
    # Without a slot if only an open transaction has committed.
    return encode_offset_key(group.group_id, *key) if slot is None else slot.key


def apply_removal(group: Group, offsets: GroupOffsets, removal: Removal, base_offset: int) -> None:
    """Applies tombstones that are durable at `base_offset`; a commit after them stays."""
    for key in removal.keys:
        if offsets.transactional:
            drop_staged(offsets, key, base_offset)
        slot = offsets.slots.get(key)
        if slot is None or slot.record_offset > base_offset:
            continue
        if slot.pending_count:
            slot.committed = None
            slot.record_offset = base_offset
        else:
            del offsets.slots[key]
    if removal.is_group:
        group.bury()


def fail_removal(group: Group, removal: Removal) -> None:
    """Restores the state after the tombstones could not be written."""
    if removal.is_group:
        group.is_being_deleted = False


def expire(group: Group, offsets: GroupOffsets, wall_ms: int) -> Removal:
    """Removes expired offsets, and a group that is Empty without any other.

    They are removed from memory at once. A tombstone that is lost is written again in the next
    round of the broker that coordinates the group by then.
    """
    if group.is_dead:
        return Removal([], [], False)
    return _remove(group, offsets, expired_partitions(group, offsets, wall_ms))


def forget_topics(group: Group, offsets: GroupOffsets, topics: Collection[str]) -> Removal:
    """Removes the offsets of deleted topics, and a group that had no others, as `expire` does."""
    keys = [
        key for key in dict.fromkeys((*offsets.slots, *offsets.staged_keys())) if key[0] in topics
    ]
    if group.is_dead or not keys:
        return Removal([], [], False)
    return _remove(group, offsets, keys)


def expired_partitions(group: Group, offsets: GroupOffsets, wall_ms: int) -> list[tuple[str, int]]:
    """The partitions whose offsets have expired."""
    return list(_iter_expired(group, offsets, wall_ms))


def _iter_expired(group: Group, offsets: GroupOffsets, wall_ms: int) -> Iterator[tuple[str, int]]:
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
    for key, slot in offsets.slots.items():
        committed = slot.committed
        if committed is None or key[0] in subscribed or has_pending_commit(offsets, key):
            continue
        if committed.expire_ms != NO_TIMESTAMP:
            is_expired = wall_ms >= committed.expire_ms
        else:
            base_ms = committed.commit_ms if since_ms is None else since_ms
            is_expired = wall_ms - base_ms >= retention_ms
        if is_expired:
            yield key


def _remove(group: Group, offsets: GroupOffsets, keys: list[tuple[str, int]]) -> Removal:
    slots = [slot for key in keys if (slot := offsets.slots.get(key)) is not None]
    staged_elsewhere = set(offsets.staged_keys()).difference(keys)
    is_group = (
        group.state is GroupState.EMPTY
        and len(slots) == len(offsets.slots)
        and not any(slot.pending_count for slot in slots)
        and not staged_elsewhere
        and not group.pending_members
    )
    removal = make_removal(group, offsets, keys, is_group=is_group)
    for key in keys:
        if offsets.transactional:
            drop_staged(offsets, key)
        slot = offsets.slots.get(key)
        if slot is None:
            continue
        if slot.pending_count:
            # Only for a deleted topic. The pending commit precedes the tombstone in the log, so
            # `apply_removal` removes it.
            slot.committed = None
        else:
            del offsets.slots[key]
    if is_group:
        group.bury()
    return removal
