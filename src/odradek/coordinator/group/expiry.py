"""Offsets and groups that go: by age, with their topic, or because an administrator says so. Pure.

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

`expire` and `forget_topics` edit what is volatile and return what must be durable; of the removals
that an administrator asks for nothing changes before they are durable (`apply_removal`).

One removal is one batch of tombstones. Each partition's stands for itself, so a group with more
offsets than a batch may hold goes in several removals, the last one of which takes the group.
"""

from collections.abc import Collection, Iterable, Iterator

from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.group.offsets import GroupOffsets, has_pending_commit
from odradek.coordinator.group.records import NO_TIMESTAMP, encode_group_key
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
    """Partitions, and perhaps the group itself, that are to be forgotten."""

    __slots__ = ("is_group", "keys", "records")

    def __init__(self, keys: list[tuple[str, int]], records: list[Record], is_group: bool) -> None:
        self.keys = keys
        self.records = records  # Tombstones; empty if the log knows nothing of it.
        self.is_group = is_group  # The group goes, too.

    @property
    def offset_count(self) -> int:
        """Offsets that go."""
        return len(self.keys)

    def parts(self) -> Iterator["Removal"]:
        """Removals that fit in a batch each and together do the same; the last takes the group."""
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
    records: list[Record] = [(offsets.slots[key].key, None) for key in keys]
    if is_group and group.has_registration:
        records.append((encode_group_key(group.group_id), None))
    return Removal(keys, records, is_group)


def apply_removal(group: Group, offsets: GroupOffsets, removal: Removal, base_offset: int) -> None:
    """The tombstones are durable at `base_offset`; a commit behind them in the log stays."""
    for key in removal.keys:
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
    """The tombstones were not written: everything is as before."""
    if removal.is_group:
        group.is_being_deleted = False


def expire(group: Group, offsets: GroupOffsets, wall_ms: int) -> Removal:
    """Forgets what has expired, and a group that is Empty with nothing left.

    It is gone from memory at once. A tombstone that is lost is written again in the next round of
    the broker that coordinates the group by then.
    """
    if group.is_dead:
        return Removal([], [], False)
    return _remove(group, offsets, expired_partitions(group, offsets, wall_ms))


def forget_topics(group: Group, offsets: GroupOffsets, topics: Collection[str]) -> Removal:
    """Forgets the offsets of topics that were deleted, and a group that had no others, likewise."""
    keys = [key for key in offsets.slots if key[0] in topics]
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
    is_group = (
        group.state is GroupState.EMPTY
        and len(keys) == len(offsets.slots)
        and not any(offsets.slots[key].pending_count for key in keys)
        and not offsets.transactional
        and not group.pending_members
    )
    removal = make_removal(group, offsets, keys, is_group=is_group)
    for key in keys:
        slot = offsets.slots[key]
        if slot.pending_count:
            # Only of a deleted topic. The commit stands before the tombstone in the log, and goes
            # with it: `apply_removal`.
            slot.committed = None
        else:
            del offsets.slots[key]
    if is_group:
        group.bury()
    return removal
