"""Replay of a partition of the offsets topic: from its records to groups and offsets. Pure.

The caller reads the log from its start and passes every record, and every end of a transaction, in
order; then `finish` makes the groups. A record that cannot be parsed is refused with `ReplayError`
and changes nothing, so that the value before it stays: it is better that a consumer reads some
records again than that its partition is never served. Keys of versions that newer brokers use are
not about offsets, so they are skipped and counted.

Rules:

- The later record of a key wins; a tombstone removes it, also what open transactions committed.
- Offsets of a transaction count once its COMMIT marker is read, as if committed at the position of
  their own batch; one later in the log still wins. Those of a transaction that is open at the end
  stay pending with the group's offsets.
- A group with a registration is Stable, or Empty if that has no members. One that only has offsets
  is Empty without a protocol type: a simple consumer's. So is one whose registration contradicts
  itself: its members join again, its offsets are kept.
"""

from collections.abc import Iterator
from typing import TypeAlias

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import Member
from odradek.coordinator.group.offsets import GroupOffsets, store_offsets
from odradek.coordinator.group.records import (
    GroupKey,
    GroupValue,
    OffsetAndMetadata,
    OffsetKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from odradek.errors import DecodeError, LogDataError

__all__ = ["GroupReplay", "ReplayError", "restore_group"]

_Offsets: TypeAlias = dict[tuple[str, int], tuple[int, OffsetAndMetadata]]


class ReplayError(LogDataError):
    """A record that cannot be parsed."""


class GroupReplay:
    """The state of a partition as far as its log has been read."""

    __slots__ = (
        "_config",
        "_offsets",
        "_registrations",
        "_transactional",
        "refused_registrations",
        "skipped_key_versions",
    )

    def __init__(self, config: GroupCoordinatorConfig) -> None:
        self._config = config
        self._registrations: dict[str, GroupValue] = {}
        self._offsets: dict[str, _Offsets] = {}  # By group.
        self._transactional: dict[int, dict[str, _Offsets]] = {}  # By producer id, then group.
        # Records with keys of unknown versions, counted by version.
        self.skipped_key_versions: dict[int, int] = {}
        # The faults of registrations that contradict themselves; complete once `finish` has ended.
        self.refused_registrations: list[str] = []

    def record(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        batch_offset: int,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Applies the next record, of the batch that begins at `batch_offset`.

        Raises:
            ReplayError: It has no key, or cannot be parsed.
        """
        if key is None:
            raise ReplayError(f"a record in the batch at offset {batch_offset} has no key")
        try:
            parsed = parse_key(key)
            if isinstance(parsed, OffsetKey):
                # Parsed before its group is made: a malformed value leaves no empty group.
                committed = None if value is None else parse_offset_value(value)
                offsets = self._target(parsed.group_id, producer_id if is_transactional else None)
                if committed is None and not is_transactional:
                    self._drop_staged(parsed)
                self._take_offset(offsets, parsed, committed, batch_offset)
            elif isinstance(parsed, GroupKey):
                if value is None:
                    self._registrations.pop(parsed.group_id, None)
                else:
                    # Parsed now, not at the end: an error is reported with its offset.
                    self._registrations[parsed.group_id] = parse_group_value(value)
            else:
                counts = self.skipped_key_versions
                counts[parsed] = counts.get(parsed, 0) + 1
        except DecodeError as error:
            raise ReplayError(
                f"a record in the batch at offset {batch_offset} cannot be read: {error}"
            ) from error

    def marker(self, producer_id: int, is_commit: bool) -> None:
        """Applies the end of a transaction."""
        for group_id, staged in self._transactional.pop(producer_id, {}).items():
            if is_commit:
                offsets = self._target(group_id, None)
                for key, entry in staged.items():
                    known = offsets.get(key)
                    if known is None or known[0] <= entry[0]:
                        offsets[key] = entry

    def finish(self, wall_ms: int) -> Iterator[tuple[Group, GroupOffsets]]:
        """Makes the groups, one after another, each with its offsets."""
        open_offsets: dict[str, dict[int, _Offsets]] = {}
        for producer_id, by_group in self._transactional.items():
            for group_id, staged in by_group.items():
                if staged:
                    open_offsets.setdefault(group_id, {})[producer_id] = staged
        with_offsets = [group_id for group_id, offsets in self._offsets.items() if offsets]
        for group_id in dict.fromkeys((*self._registrations, *with_offsets, *open_offsets)):
            group = self._restore(group_id, wall_ms)
            stored = self._offsets.get(group_id, {})
            offsets = GroupOffsets(group_id)
            store_offsets(offsets, ((*key, *entry) for key, entry in stored.items()))
            offsets.transactional = open_offsets.get(group_id, {})
            yield group, offsets

    def _restore(self, group_id: str, wall_ms: int) -> Group:
        registration = self._registrations.get(group_id)
        if registration is not None:
            try:
                return restore_group(group_id, registration, self._config)
            except ReplayError as error:
                self.refused_registrations.append(str(error))
        return Group(group_id, self._config, wall_ms=wall_ms)

    def _target(self, group_id: str, producer_id: int | None) -> _Offsets:
        if producer_id is None:
            return self._offsets.setdefault(group_id, {})
        return self._transactional.setdefault(producer_id, {}).setdefault(group_id, {})

    def _drop_staged(self, key: OffsetKey) -> None:
        """Applies a tombstone to the offsets of transactions that are open."""
        for by_group in self._transactional.values():
            if (staged := by_group.get(key.group_id)) is not None:
                staged.pop((key.topic, key.partition), None)

    @staticmethod
    def _take_offset(
        offsets: _Offsets, key: OffsetKey, value: OffsetAndMetadata | None, batch_offset: int
    ) -> None:
        partition = (key.topic, key.partition)
        if value is None:
            offsets.pop(partition, None)
        else:
            offsets[partition] = (batch_offset, value)


def restore_group(group_id: str, value: GroupValue, config: GroupCoordinatorConfig) -> Group:
    """The group that a registration describes; sessions of its members begin with `on_loaded`."""
    group = Group(group_id, config, wall_ms=value.state_timestamp_ms)
    group.has_registration = True
    group.protocol_type = value.protocol_type
    group.generation_id = value.generation_id
    if value.members and value.protocol_type is None:
        raise ReplayError(f"group {group_id!r} has members, but no protocol type")
    for stored in value.members:
        # Only the chosen protocol is stored; the member's next JoinGroup has the others.
        protocols = ((value.protocol_name or "", stored.subscription),)
        member = Member(
            stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout_ms,
            protocol_type=value.protocol_type or "",
            protocols=protocols,
        )
        member.assignment = stored.assignment
        if stored.member_id in group.members:
            raise ReplayError(f"group {group_id!r} has member {stored.member_id!r} twice")
        group.add_member(member)
    group.protocol_name = value.protocol_name
    if group.members:
        group.protocol_name = value.protocol_name or ""
        group.state = GroupState.STABLE
        if value.leader in group.members:
            group.leader_id = value.leader
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
