"""An internal topic in memory, and a loop that a test turns by hand."""

import itertools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.coordinator import GroupCoordinator
from odradek.coordinator.stall_clock import StallClock
from odradek.errors import ApiError, ErrorCode
from odradek.metrics import MetricRegistry
from odradek.purgatory import ManualTimer
from odradek.records.batch import HEADER, LOG_OVERHEAD, patch_offset_and_epoch
from odradek.testing import ManualClock

__all__ = ["Coordination", "MemoryTopic", "Tasks"]


class MemoryTopic:
    """Partitions as lists of batches; `PartitionLog` and `PartitionWriter`.

    Attributes:
        epochs: The epoch in which each partition is led here.
        error: What the next appends fail with.
        is_held: Whether appends wait for `release`.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.error = ErrorCode.NONE
        self.is_held = False
        self.held: list[tuple[int, bytearray, Callable[[ErrorCode, int], None]]] = []
        self.read_error: Exception | None = None
        self.on_read: Callable[[], None] = lambda: None

    def lead(self, partition: int, leader_epoch: int) -> None:
        self.epochs[partition] = leader_epoch
        self.batches.setdefault(partition, [])
        self.ends.setdefault(partition, 0)

    def try_append(self, partition: int, batch: bytearray) -> tuple[ErrorCode, int] | None:
        if self.is_held:
            return None
        if self.error is not ErrorCode.NONE:
            return self.error, -1
        return ErrorCode.NONE, self.store(partition, batch)

    def append(
        self, partition: int, batch: bytearray, respond: Callable[[ErrorCode, int], None]
    ) -> None:
        if self.is_held:
            self.held.append((partition, batch, respond))
        elif self.error is not ErrorCode.NONE:
            respond(self.error, -1)
        else:
            respond(ErrorCode.NONE, self.store(partition, batch))

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
    ) -> None:
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
        )
        return self.groups

    def _call_later(self, _seconds: float, action: Callable[[], None]) -> "Never":
        self.ticks.append(action)
        return Never()

    def lead_all(self, leader_epoch: int = 0) -> None:
        """Leads and loads every partition."""
        for partition in range(self.partition_count):
            self.topic.lead(partition, leader_epoch)
            self.groups.runtime.lead(partition, leader_epoch)
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
