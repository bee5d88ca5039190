"""Transaction coordinators over a log in memory, on a clock and a loop that a test moves by hand.

`TransactionWorld` has one coordinator at a time, the log of `__transaction_state`, and the
partitions that markers are written to. `crash` replaces the coordinator by another one, in the next
leader epoch, which knows what the log has.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any

from odradek.coordinator.transaction.config import TransactionCoordinatorConfig
from odradek.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.coordinator.transaction.decisions import Answer
from odradek.coordinator.transaction.ports import MarkerResults
from odradek.coordinator.transaction.records import (
    TransactionRecord,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.errors import DisconnectedError, ErrorCode
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition, TransactionMarker
from odradek.records.record import read_records
from odradek.testing import ManualClock
from tests.unit.coordinator.coordinator_fakes import MemoryTopic

__all__ = ["LoopTasks", "MarkedPartition", "TransactionWorld", "answered", "settle"]

_TURNS = 15  # Turns of the loop after which nothing is left to do but what waits for the clock.


async def settle() -> None:
    """Lets every task run that does not wait for the clock."""
    loop: Any = asyncio.get_running_loop()
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        if not loop._ready:  # Nothing but this task is to run.
            return


async def answered(begin: Callable[[Callable[[Answer], object]], Awaitable[None]]) -> Answer:
    """Begins to serve a request, and waits for its answer."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(outcome: Answer) -> None:
        if not done.done():  # Its waiter was cancelled meanwhile.
            done.set_result(outcome)

    await begin(answer)
    return await done


class LoopTasks:
    """Tasks of the running loop, which sleep on a clock moved by hand."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()
        self._sleeping: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.failures: list[BaseException] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failures.append(failure)

    async def sleep(self, delay_s: float) -> None:
        if delay_s == 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due_ms = self._clock.monotonic_ms() + round(delay_s * 1000)
        heapq.heappush(self._sleeping, (due_ms, next(self._order), woken))
        await woken

    async def advance(self, ms: int) -> None:
        """Lets time pass; tasks that fall due run at their own times."""
        await settle()
        end_ms = self._clock.monotonic_ms() + ms
        while self._sleeping and self._sleeping[0][0] <= end_ms:
            due_ms, _, woken = heapq.heappop(self._sleeping)
            self._clock.advance(max(due_ms - self._clock.monotonic_ms(), 0))
            if not woken.done():
                woken.set_result(None)
            await settle()
        self._clock.advance(end_ms - self._clock.monotonic_ms())
        await settle()

    @property
    def next_due_ms(self) -> int | None:
        """When the next sleeping task wakes; None: none sleeps."""
        return self._sleeping[0][0] if self._sleeping else None

    def stop(self) -> None:
        for task in tuple(self._running):
            task.cancel()
        self._sleeping.clear()


class MarkedPartition:
    """A partition as a transaction sees it: what each producer has open, and what became of it.

    It obeys the rules of a leader (10 sections 8.3 and 9.9): a marker of an older coordinator or
    epoch is refused; under version 2 its epoch must be higher, unless nothing is open.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: dict[int, list[object]] = {}
        self.committed: list[object] = []
        self.aborted: list[object] = []
        self.marker_count = 0
        # Confirmed by the coordinator, until a marker comes (the guard of 10 section 9.9).
        self.confirmed: dict[int, int] = {}

    def append(self, producer_id: int, producer_epoch: int, data: object) -> ErrorCode:
        """A batch of a producer's transaction."""
        if producer_epoch < self.epochs.get(producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = producer_epoch
        self.open.setdefault(producer_id, []).append(data)
        return ErrorCode.NONE

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        return producer_id in self.open and self.epochs.get(producer_id) == producer_epoch

    def mark(self, marker: TransactionMarker) -> ErrorCode:
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        stored = self.epochs.get(producer_id, -1)
        if marker.coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        is_open = producer_id in self.open
        if epoch < stored or (marker.transaction_version >= 2 and epoch == stored and is_open):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id] = epoch
        self.coordinator_epochs[producer_id] = marker.coordinator_epoch
        self.marker_count += 1
        self.confirmed.pop(producer_id, None)
        ended = self.open.pop(producer_id, [])
        (self.committed if marker.is_commit else self.aborted).extend(ended)
        return ErrorCode.NONE


class TransactionWorld:
    """Coordinators in turn, the log they share, and partitions on one broker.

    Attributes:
        leaders: Of partitions that are not led by broker 0; None: not known.
        refusals: Errors with which partitions answer the next markers, in their order.
        is_connected: Whether brokers can be reached at all.
        is_replicated: Whether the partitions have other replicas, so that no marker is written
            within the decision.
        before_marker: Called before a marker is written to a partition; may raise.
    """

    def __init__(
        self,
        *,
        version: int = 2,
        partition_count: int = 1,
        max_timeout_ms: int = 900_000,
        is_replicated: bool = True,
    ) -> None:
        self.clock = ManualClock()
        self.topic = MemoryTopic()
        self.version = version
        self.partition_count = partition_count
        self.config = TransactionCoordinatorConfig(max_timeout_ms=max_timeout_ms)
        self.partitions: dict[TopicPartition, MarkedPartition] = {}
        self.leaders: dict[TopicPartition, int | None] = {}
        self.refusals: dict[TopicPartition, list[ErrorCode]] = {}
        self.is_connected = True
        self.is_replicated = is_replicated
        self.before_marker: Callable[[TransactionMarker, TopicPartition], None] = (
            lambda _marker, _tp: None
        )
        self.sent: list[TransactionMarker] = []
        self.leader_epoch = -1
        self.id_numbers = itertools.count(4000)
        self.metrics = MetricRegistry(self.clock, Random(1))
        self.tasks = LoopTasks(self.clock)
        self.coordinator = self.crash()

    def crash(self) -> TransactionCoordinator:
        """Begins anew in the next epoch, with nothing but the log; loads it when tasks run."""
        self.tasks.stop()
        self.tasks = LoopTasks(self.clock)
        self.metrics = MetricRegistry(self.clock, Random(1))
        self.leader_epoch += 1
        epoch = self.leader_epoch

        async def send(
            broker_id: int, markers: Sequence[TransactionMarker]
        ) -> Sequence[MarkerResults]:
            if not self.is_connected or self.leader_epoch != epoch:
                raise DisconnectedError(f"broker {broker_id} cannot be reached")
            self.sent += markers
            return [self._write(marker) for marker in markers]

        def write(marker: TransactionMarker) -> MarkerResults | None:
            if self.is_replicated or any(self.leaders.get(tp, 0) != 0 for tp in marker.partitions):
                return None
            self.sent.append(marker)
            return self._write(marker)

        self.coordinator = TransactionCoordinator(
            self.config,
            self.topic,
            partition_count=lambda: self.partition_count,
            producer_ids=self,
            transaction_version=lambda: self.version,
            leaders=lambda tp: self.leaders.get(tp, 0),
            send_markers=send,
            write_marker=write,
            clock=self.clock,
            tasks=self.tasks,
            metrics=self.metrics,
        )
        for number in range(self.partition_count):
            self.topic.lead(number, epoch)
            self.coordinator._loader.lead(number, epoch)
        return self.coordinator

    async def next_id(self) -> int:
        return next(self.id_numbers)

    def partition(self, tp: TopicPartition) -> MarkedPartition:
        return self.partitions.setdefault(tp, MarkedPartition())

    def _write(self, marker: TransactionMarker) -> MarkerResults:
        results = {}
        for tp in marker.partitions:
            self.before_marker(marker, tp)
            refusals = self.refusals.get(tp)
            results[tp] = refusals.pop(0) if refusals else self.partition(tp).mark(marker)
        return results

    def stored(self, transactional_id: str) -> TransactionRecord | None:
        """The last record of an id in the log."""
        found = None
        for batches in self.topic.batches.values():
            for batch in batches:
                for record in read_records(batch):
                    assert record.key is not None
                    if parse_transaction_key(record.key) == transactional_id:
                        value = record.value
                        found = None if value is None else parse_transaction_value(value)
        return found
