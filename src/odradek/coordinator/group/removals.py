"""Offsets and groups that go: the tombstones to append, and what follows when they are durable."""

from collections.abc import Iterable

from odradek.coordinator.group.decisions import Record
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.records import encode_group_key

__all__ = ["Removal", "apply_removal", "fail_removal", "make_removal"]


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


def make_removal(group: Group, keys: Iterable[tuple[str, int]], *, is_group: bool) -> Removal:
    """The tombstones for these partitions; nothing is removed yet."""
    keys = list(keys)
    records: list[Record] = [(group.offsets[key].key, None) for key in keys]
    if is_group and group.has_registration:
        records.append((encode_group_key(group.group_id), None))
    return Removal(keys, records, is_group)


def apply_removal(group: Group, removal: Removal, base_offset: int) -> None:
    """The tombstones are durable at `base_offset`; a commit behind them in the log stays."""
    for key in removal.keys:
        slot = group.offsets.get(key)
        if slot is None or slot.record_offset > base_offset:
            continue
        if slot.pending_count:
            slot.committed = None
            slot.record_offset = base_offset
        else:
            del group.offsets[key]
    if removal.is_group:
        group.bury()


def fail_removal(group: Group, removal: Removal) -> None:
    """The tombstones were not written: everything is as before."""
    if removal.is_group:
        group.is_being_deleted = False
