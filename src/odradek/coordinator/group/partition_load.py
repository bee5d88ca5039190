"""Loading and unloading the groups of one partition of the offsets topic."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from odradek.coordinator.group.group import Group
from odradek.coordinator.group.offsets import GroupOffsets
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.replay import GroupReplay
from odradek.coordinator.loading import PartitionLog
from odradek.coordinator.writing import InternalTopic
from odradek.records.batch import BatchHeader

__all__ = ["OFFSETS_TOPIC", "OffsetsTopic", "PartitionLoad"]

logger = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class OffsetsTopic(PartitionLog, InternalTopic, Protocol):
    """The partitions of the offsets topic that this broker hosts."""


class PartitionLoad:
    """The load of a partition of the offsets topic; `odradek.coordinator.loading.Replay`.

    Args:
        partition: The partition's number.
        leader_epoch: The epoch in which it is led.
        replay: Interprets its records.
        registry: Receives its groups.
        on_installed: Called with partition and epoch when its groups are served.
        on_loaded: Called for each group when it is served.
        before_unload: Called before its groups are removed.
        on_unloaded: Called for each group with members when it is no longer served.
        now_ms: Wall-clock time.
    """

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        replay: GroupReplay,
        registry: GroupRegistry,
        *,
        on_installed: Callable[[int, int], None],
        on_loaded: Callable[[Group], None],
        before_unload: Callable[[], None],
        on_unloaded: Callable[[Group], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._replay = replay
        self._registry = registry
        self._on_installed = on_installed
        self._on_loaded = on_loaded
        self._before_unload = before_unload
        self._on_unloaded = on_unloaded
        self._now_ms = now_ms
        self._groups: dict[str, Group] = {}
        self._offsets: list[GroupOffsets] = []

    def replay(
        self,
        key: bytes | None,
        value: bytes | None,
        offset: int,  # noqa: ARG002 - a commit is as old as its batch
        header: BatchHeader,
    ) -> None:
        self._replay.record(
            key,
            value,
            batch_offset=header.base_offset,
            producer_id=header.producer_id,
            is_transactional=header.is_transactional,
        )

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        self._replay.marker(producer_id, is_commit)

    def prepare(self) -> Iterable[object]:
        for version, count in sorted(self._replay.skipped_key_versions.items()):
            logger.warning(
                "%s-%d: %d records with keys of version %d are skipped: they are of a later format",
                OFFSETS_TOPIC, self._partition, count, version,
            )  # fmt: skip
        for group, offsets in self._replay.finish(self._now_ms()):
            group.partition = self._partition
            group.leader_epoch = self._leader_epoch
            self._groups[group.group_id] = group
            self._offsets.append(offsets)
            yield group
        for why in self._replay.refused_registrations:
            logger.error(
                "%s-%d: a registration is skipped, the offsets of its group are kept: %s",
                OFFSETS_TOPIC, self._partition, why,
            )  # fmt: skip

    def install(self) -> None:
        self._registry.install(self._partition, self._groups, self._offsets)
        self._on_installed(self._partition, self._leader_epoch)

    def settle(self) -> Iterable[object]:
        for group in tuple(self._groups.values()):
            self._on_loaded(group)
            yield group

    def unload(self) -> None:
        self._before_unload()
        for group in self._registry.remove_partition(self._partition).values():
            # A group without members has no client to answer, and there may be many of them.
            if not group.is_vacant:
                self._on_unloaded(group)
