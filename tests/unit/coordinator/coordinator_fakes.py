"""An internal topic in memory, and a loop that a test turns by hand."""

import itertools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.commit_batching import WakeUps
from odradek.coordinator.group.coordinator import GroupCoordinator
from odradek.coordinator.group.registry import GroupRegistry
from odradek.coordinator.loading import StateLoader
from odradek.coordinator.stall_clock import StallClock
from odradek.coordinator.writing import OnAppended, OnCommitted
from odradek.errors import ApiError, ErrorCode
from odradek.metrics import MetricRegistry
from odradek.purgatory import ManualTimer
from odradek.records.batch import HEADER, LOG_OVERHEAD, patch_offset_and_epoch
from odradek.testing import ManualClock

__all__ = ["Coordination", "MemoryTopic", "Tasks"]


class MemoryTopic:
    """Partitions as lists of batches; `PartitionLog` and `InternalTopic`.

    Attributes:
        epochs: The epoch in which each partition is led here.
        error: What the next appends fail with.
        is_held: Whether appends wait for `release`.
        is_replicated: Whether other replicas are waited for, until `replicate`.
        max_batch_bytes: Of a batch that is not refused.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.error = ErrorCode.NONE
        self.is_held = False
        self.is_replicated = False
        self.unreplicated: list[tuple[int, int, OnCommitted]] = []
        self.max_batch_bytes = 1 << 20
        self.held: list[tuple[int, bytearray, OnCommitted]] = []
        self.read_error: Exception | None = None
        self.on_read: Callable[[], None] = lambda: None

    def lead(self, partition: int, leader_epoch: int) -> None:
        self.epochs[partition] = leader_epoch
        self.batches.setdefault(partition, [])
        self.ends.setdefault(partition, 0)

    def try_append(
        self, partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        if self.is_held or self.is_replicated or self.epochs.get(partition) != leader_epoch:
            return None
        if self.error is not ErrorCode.NONE:
            return self.error, -1
        return ErrorCode.NONE, self.store(partition, batch)

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        on_committed: OnCommitted,
        on_appended: OnAppended | None = None,
    ) -> None:
        if self.epochs.get(partition) != leader_epoch:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        elif self.is_held:
            self.held.append((partition, batch, on_committed))
        elif self.error is not ErrorCode.NONE:
            on_committed(self.error, -1)
        elif len(batch) > self.max_batch_bytes:
            on_committed(ErrorCode.RECORD_LIST_TOO_LARGE, -1)
        else:
            base_offset = self.store(partition, batch)
            if on_appended is not None:
                on_appended(base_offset)
            if self.is_replicated:
                self.unreplicated.append((partition, base_offset, on_committed))
            else:
                on_committed(ErrorCode.NONE, base_offset)

    def replicate(self) -> None:
        """Every replica has everything."""
        waiting, self.unreplicated = self.unreplicated, []
        for _, base_offset, on_committed in waiting:
            on_committed(ErrorCode.NONE, base_offset)

    def fail_over(self, partition: int, leader_epoch: int) -> None:
        """Another broker leads, which lacks what was not replicated; appends that wait fail."""
        waiting, self.unreplicated = self.unreplicated, []
        for lost, base_offset, _ in reversed(waiting):
            assert lost == partition
            self.batches[partition].pop()
            self.ends[partition] = base_offset
        self.epochs[partition] = leader_epoch
        for _, _, on_committed in waiting:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Ends the waiting of the first append that was held."""
        partition, batch, respond = self.held.pop(0)
        respond(error, -1 if error else self.store(partition, batch))

    def store(self, partition: int, batch: bytes | bytearray) -> int:
        """Writes a batch at the end of the partition; returns its offset."""
        offset = self.ends.setdefault(partition, 0)
        written = bytearray(batch)
        patch_offset_and_epoch(written, 0, offset, self.epochs.get(partition, 0))
        last_offset_delta = HEADER.unpack_from(written)[6]
        self.batches.setdefault(partition, []).append(bytes(written))
        self.ends[partition] = offset + last_offset_delta + 1
        return offset

    def start_offset(self, partition: int) -> int:
        if partition not in self.batches:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no log here")
        return 0

    def end_offset(self, partition: int, leader_epoch: int) -> int:
        return self.ends[partition] if self.epochs.get(partition) == leader_epoch else -1

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        self.on_read()
        if self.read_error is not None:
            raise self.read_error
        data = b""
        position = 0
        for batch in self.batches[partition]:
            length, last_offset_delta = HEADER.unpack_from(batch)[1], HEADER.unpack_from(batch)[6]
            position += last_offset_delta + 1
            if position <= offset:
                continue
            if data and len(data) + length + LOG_OVERHEAD > max_bytes:
                break
            data += batch
        return data


class Tasks:
    """Runs coroutines by hand; what they sleep for is noted."""

    def __init__(self) -> None:
        self.waiting: list[Coroutine[Any, Any, None]] = []
        self.slept_s: list[float] = []
        self.on_sleep: Callable[[float], None] = lambda _seconds: None

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.waiting.append(work)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.on_sleep(seconds)

    def run(self) -> None:
        """Runs all to their ends; nothing here ever really waits."""
        while self.waiting:
            work = self.waiting.pop(0)
            try:
                while True:
                    work.send(None)
            except StopIteration:
                pass


class Coordination:
    """A group coordinator over a topic in memory, on clocks and tasks moved by hand."""

    def __init__(
        self,
        config: GroupCoordinatorConfig | None = None,
        *,
        clock: ManualClock | None = None,
        metrics: MetricRegistry | None = None,
        partition_count: int = 50,
        wake_ups: WakeUps | None = None,
    ) -> None:
        self._wake_ups = wake_ups
        self.clock = clock or ManualClock()
        self.topic = MemoryTopic()
        self.tasks = Tasks()
        self.timer = ManualTimer("group", start_ms=self.clock.monotonic_ms())
        self.topics = {"t", "u"}
        self.high_watermarks: dict[tuple[str, int], int] = {}  # Of partitions that are led here.
        self.partition_count = partition_count
        self.metrics = metrics or MetricRegistry(self.clock, Random(1))
        self.ids = itertools.count(1)
        self.ticks: list[Callable[[], None]] = []  # What the watch on stalls asked the loop for.
        self.groups = self.restart(config or GroupCoordinatorConfig())

    def restart(self, config: GroupCoordinatorConfig) -> GroupCoordinator:
        """Begins anew, with nothing but the topic."""
        self.groups = GroupCoordinator(
            config,
            self.topic,
            partition_count=lambda: self.partition_count,
            has_topic=lambda topic: topic in self.topics,
            high_watermark=lambda topic, number: self.high_watermarks.get((topic, number)),
            clock=self.clock,
            deadlines=StallClock(self.clock, self._call_later),
            timer=self.timer,
            tasks=self.tasks,
            new_id=lambda: f"{next(self.ids):036d}",
            metrics=self.metrics,
            wake_ups=self._wake_ups,
        )
        return self.groups

    @property
    def registry(self) -> GroupRegistry:
        """The groups behind the face, for tests to look at."""
        return self.groups._registry

    @property
    def loader(self) -> StateLoader:
        """Moves leadership without a delta of the whole broker."""
        return self.groups._loader

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The offsets of a group that are durable."""
        if group_id not in self.registry.groups:
            return {}
        return {
            key: slot.committed.offset
            for key, slot in self.registry.offsets.of(group_id).slots.items()
            if slot.committed is not None
        }

    def _call_later(self, _seconds: float, action: Callable[[], None]) -> "Never":
        self.ticks.append(action)
        return Never()

    def lead_all(self, leader_epoch: int = 0) -> None:
        """Leads and loads every partition."""
        for partition in range(self.partition_count):
            self.topic.lead(partition, leader_epoch)
            self.loader.lead(partition, leader_epoch)
        self.tasks.run()

    def advance(self, ms: int) -> None:
        """Lets time pass; what falls due on the way runs at its own time."""
        for _ in range(0, ms, 100):
            self.clock.advance(100)
            # More often than the watch asks for, which does no harm.
            ticks, self.ticks = self.ticks, []
            for tick in ticks:
                tick()
            self.timer.advance_clock(100)


class Never:
    """A call on a loop that nobody turns."""

    def cancel(self) -> None: ...
