"""The groups this broker coordinates: found by name, loaded and unloaded by partition.

Invariants:

1. A group is in the registry only while its partition of the offsets topic is active here, so
   whoever finds one need not ask about the partition.
2. `by_partition` holds the same groups, each under its own partition.
"""

from collections.abc import Callable, Iterator

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.partitioning import partition_for
from odradek.coordinator.runtime import CoordinatorRuntime
from odradek.errors import ErrorCode

__all__ = ["GroupRegistry"]

_NONE = ErrorCode.NONE


class GroupRegistry:
    """All groups of this broker.

    Args:
        config: What new groups are made with.
        partition_count: Of the offsets topic, as it is or will be.
        now_ms: Wall-clock time.
    """

    __slots__ = ("_config", "_now_ms", "_partition_count", "by_partition", "groups", "runtime")

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        *,
        partition_count: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._partition_count = partition_count
        self._now_ms = now_ms
        self.groups: dict[str, Group] = {}
        self.by_partition: dict[int, dict[str, Group]] = {}
        self.runtime: CoordinatorRuntime | None = None  # None: not running.

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[Group]:
        """Goes on over changes: groups that come meanwhile may be left out, others not."""
        for group in tuple(self.groups.values()):
            if self.is_current(group):
                yield group

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that keeps a group."""
        return partition_for(group_id, self._partition_count())

    def is_current(self, group: Group) -> bool:
        """Whether a group is coordinated here still, and is no earlier one of its name."""
        return self.groups.get(group.group_id) is group

    def check(self, group_id: str) -> ErrorCode:
        """NONE, or why a group of this name is not coordinated here now."""
        if group_id in self.groups:
            return _NONE
        if self.runtime is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.runtime.check_active(self.partition_of(group_id))

    def get_or_create(self, group_id: str) -> Group:
        """The group, made if it is not there; `check` has said NONE."""
        group = self.groups.get(group_id)
        if group is None:
            group = Group(group_id, self._config, wall_ms=self._now_ms())
            group.partition = self.partition_of(group_id)
            self.groups[group_id] = group
            self.by_partition.setdefault(group.partition, {})[group_id] = group
        return group

    def drop(self, group: Group) -> None:
        """Forgets a group that is dead, or never began to live."""
        if self.is_current(group):
            del self.groups[group.group_id]
            del self.by_partition[group.partition][group.group_id]

    def install(self, partition: int, groups: dict[str, Group]) -> None:
        """Takes in all groups of a partition that was loaded."""
        assert partition not in self.by_partition or not self.by_partition[partition]
        self.by_partition[partition] = groups
        self.groups.update(groups)

    def remove_partition(self, partition: int) -> dict[str, Group]:
        """Forgets all groups of a partition, and returns them."""
        removed = self.by_partition.pop(partition, {})
        for group_id in removed:
            del self.groups[group_id]
        return removed
