"""The groups this broker coordinates: found by name, loaded and unloaded by partition.

Invariants:

1. A group is in the registry only while its partition of the offsets topic is active here, so
   a caller that finds one need not check the partition.
2. `by_partition` has the same groups, each under its own partition.
3. `offsets` has exactly one entry for each of them.
4. `open_transactions` has every group with offsets of a transaction whose end is not known yet, by
   partition and producer id. It may also have groups that are gone.
"""

from collections.abc import Callable, Iterable, Iterator

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import GroupOffsets, OffsetStore
from odradek.coordinator.loading import StateLoader
from odradek.coordinator.partitioning import partition_for
from odradek.errors import ErrorCode

__all__ = ["GroupRegistry"]

_NONE = ErrorCode.NONE


class GroupRegistry:
    """All groups of this broker.

    Args:
        config: The settings of new groups.
        loader: Has the partitions of the offsets topic that are active here.
        partition_count: The number of partitions of the offsets topic, also before it is created.
        now_ms: Wall-clock time.
    """

    __slots__ = (
        "_config",
        "_loader",
        "_now_ms",
        "_partition_count",
        "by_partition",
        "groups",
        "offsets",
        "open_transactions",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        loader: StateLoader,
        *,
        partition_count: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._loader = loader
        self._partition_count = partition_count
        self._now_ms = now_ms
        self.groups: dict[str, Group] = {}
        self.by_partition: dict[int, dict[str, Group]] = {}
        self.offsets = OffsetStore()
        self.open_transactions: dict[int, dict[int, dict[str, None]]] = {}

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        """Tolerates changes while it iterates: only groups added meanwhile may be missing."""
        for group in tuple(self.groups.values()):
            if self.is_current(group):
                yield group

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that stores a group."""
        return partition_for(group_id, self._partition_count())

    def is_current(self, group: Group) -> bool:
        """Whether a group is still coordinated here, and not an earlier one of the same name."""
        return self.groups.get(group.group_id) is group

    def check(self, group_id: str) -> ErrorCode:
        """NONE, or the error why a group of this name is not coordinated here now."""
        if group_id in self.groups:
            return _NONE
        return self._loader.check_active(self.partition_of(group_id))

    def get_or_create(self, group_id: str) -> Group:
        """The group, created if it does not exist; the caller got NONE from `check`."""
        group = self.groups.get(group_id)
        if group is None:
            group = Group(group_id, self._config, wall_ms=self._now_ms())
            group.partition = self.partition_of(group_id)
            group.leader_epoch = self._loader.leader_epoch(group.partition)
            self.groups[group_id] = group
            self.offsets.open(GroupOffsets(group_id))
            self.by_partition.setdefault(group.partition, {})[group_id] = group
        return group

    def drop(self, group: Group) -> None:
        """Removes a group that is dead, or has neither members nor offsets."""
        if self.is_current(group):
            del self.groups[group.group_id]
            del self.by_partition[group.partition][group.group_id]
            self.offsets.close(group.group_id)

    def drop_if_disposable(self, group: Group) -> None:
        """Removes a group that has neither members nor offsets, nor a record in the log."""
        if group.is_vacant and self.is_current(group) and self.offsets.of(group.group_id).is_empty:
            self.drop(group)

    def install(
        self, partition: int, groups: dict[str, Group], offsets: Iterable[GroupOffsets]
    ) -> None:
        """Adds all groups of a partition that was loaded."""
        assert partition not in self.by_partition or not self.by_partition[partition]
        self.by_partition[partition] = groups
        self.groups.update(groups)
        for one in offsets:
            self.offsets.open(one)
            for producer_id in one.transactional:
                self.note_transaction(partition, producer_id, one.group_id)

    def note_transaction(self, partition: int, producer_id: int, group_id: str) -> None:
        """Notes that a producer's open transaction commits offsets of a group."""
        open_here = self.open_transactions.setdefault(partition, {})
        open_here.setdefault(producer_id, {})[group_id] = None

    def take_transaction(self, partition: int, producer_id: int) -> list[Group]:
        """The groups with offsets of a producer's transaction, which ends now."""
        groups = self.open_transactions.get(partition, {}).pop(producer_id, {})
        return [group for name in groups if (group := self.groups.get(name)) is not None]

    def remove_partition(self, partition: int) -> dict[str, Group]:
        """Removes all groups of a partition, and returns them."""
        self.open_transactions.pop(partition, None)
        removed = self.by_partition.pop(partition, {})
        for group_id in removed:
            del self.groups[group_id]
            self.offsets.close(group_id)
        return removed

    def clear(self) -> None:
        """Removes all groups."""
        for partition in tuple(self.by_partition):
            self.remove_partition(partition)
