"""The group coordinator, put together: registry, service, upkeep, and the runtime below them."""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from odradek.clock import PreciseClock
from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.group import Group
from odradek.coordinator.group.metrics import GroupMetrics
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.group.replay import Replay
from odradek.coordinator.group.service import GroupService
from odradek.coordinator.group.upkeep import GroupUpkeep
from odradek.coordinator.runtime import CoordinatorRuntime, PartitionLog, PartitionWriter
from odradek.coordinator.stall_clock import StallClock
from odradek.metrics import MetricRegistry
from odradek.purgatory.timer import Timer
from odradek.records.batch import BatchHeader
from odradek.tasks import Tasks

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator"]

_log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class OffsetsTopic(PartitionLog, PartitionWriter, Protocol):
    """The offsets topic, as far as this broker hosts it."""


class GroupCoordinator:
    """The coordinator of one broker.

    Args:
        config: Limits and times.
        topic: The offsets topic.
        partition_count: Its partitions, as they are or will be.
        has_topic: Whether a topic exists, as far as this broker knows.
        high_watermark: Of a partition (topic, number) that this broker leads; None of others.
        clock: The machine's.
        deadlines: What members are measured by.
        timer: Rings at deadlines, by the same clock.
        tasks: Runs what takes a while.
        new_id: Makes the unique part of member ids.
        metrics: Where to count.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        topic: OffsetsTopic,
        *,
        partition_count: Callable[[], int],
        has_topic: Callable[[str], bool],
        high_watermark: Callable[[str, int], int | None],
        clock: PreciseClock,
        deadlines: StallClock,
        timer: Timer,
        tasks: Tasks,
        new_id: Callable[[], str],
        metrics: MetricRegistry,
    ) -> None:
        self._config = config
        self._clock = clock
        self._deadlines = deadlines
        self._timer = timer
        self.registry = GroupRegistry(config, partition_count=partition_count, now_ms=clock.now_ms)
        counters = GroupMetrics(metrics, self.registry, high_watermark)
        self.service = GroupService(
            config,
            self.registry,
            topic,
            clock=deadlines,
            timer=timer,
            new_id=new_id,
            metrics=counters,
        )
        self.upkeep = GroupUpkeep(
            self.service,
            has_topic=has_topic,
            clock=clock,
            tasks=tasks,
            metrics=counters,
        )
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            topic,
            begin=lambda partition: _PartitionLoad(
                partition, Replay(config), self.service, clock.now_ms
            ),
            clock=clock,
            tasks=tasks,
            read_bytes=config.load_buffer_bytes,
            stats=counters,
        )
        self.registry.runtime = self.runtime

    def stop(self) -> None:
        """Serves nobody any more: requests that still come are told to look elsewhere."""
        self.registry.runtime = None
        self.registry.groups.clear()
        self.registry.by_partition.clear()
        self._timer.shutdown()
        self._deadlines.stop()


class _PartitionLoad:
    """A partition of the offsets topic as it is read; `odradek.coordinator.runtime.Replay`."""

    def __init__(
        self, partition: int, replay: Replay, service: GroupService, now_ms: Callable[[], int]
    ) -> None:
        self._partition = partition
        self._replay = replay
        self._service = service
        self._now_ms = now_ms
        self._groups: dict[str, Group] = {}

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
            _log.warning(
                "%s-%d: %d records with keys of version %d are skipped: nobody here knows them",
                OFFSETS_TOPIC, self._partition, count, version,
            )  # fmt: skip
        for group in self._replay.finish(self._now_ms()):
            group.partition = self._partition
            self._groups[group.group_id] = group
            yield group
        for why in self._replay.refused_registrations:
            _log.error(
                "%s-%d: a registration is skipped, the offsets of its group are kept: %s",
                OFFSETS_TOPIC, self._partition, why,
            )  # fmt: skip

    def install(self) -> None:
        self._service.registry.install(self._partition, self._groups)

    def settle(self) -> Iterable[object]:
        for group in tuple(self._groups.values()):
            self._service.on_loaded(group)
            yield group

    def unload(self) -> None:
        for group in self._service.registry.remove_partition(self._partition).values():
            # One without members has nobody to tell, and there may be very many of them.
            if group.members or not group.is_disposable:
                self._service.on_unloaded(group)
