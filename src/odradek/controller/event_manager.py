"""The event queue of the controller and the one task that drains it.

All controller state is touched by this task alone. Rules:

1. Events are processed one at a time in the order they were put.
2. An event is processed or preempted at most once, never both.
3. The state is IDLE whenever no event is being processed.
4. A handler's failure is logged; the next event is processed regardless.

`clear_and_put` is for two events only: the end of the task, and the loss of leadership, which makes
all queued events obsolete. It preempts them in order, and preempting answers an event's caller.

The queue has no bound of its own. Hints are at most one per watch, answers at most one per broker,
and the requests of administrators are bounded by the connections they come from.
"""

import asyncio
import logging
from collections import deque
from typing import Protocol

from odradek.clock import Clock
from odradek.controller.events import ControllerActivity, ControllerEvent, ShutdownEventThread
from odradek.controller.stats import ControllerStats
from odradek.metrics import MetricRegistry

__all__ = ["EVENT_TASK_NAME", "EventManager", "EventProcessor", "QueuedEvent"]

logger = logging.getLogger(__name__)

EVENT_TASK_NAME = "controller-event-thread"


class EventProcessor(Protocol):
    """The handler of the events."""

    async def process(self, event: ControllerEvent) -> None:
        """Handles an event to its end."""
        ...

    def preempt(self, event: ControllerEvent) -> None:
        """Answers the caller of an event that will not be processed."""
        ...


class QueuedEvent:
    """One event in the queue."""

    __slots__ = ("_is_spent", "_started", "enqueue_time_ms", "event")

    def __init__(self, event: ControllerEvent, enqueue_time_ms: int) -> None:
        self.event = event
        self.enqueue_time_ms = enqueue_time_ms
        self._is_spent = False  # Processed or preempted.
        self._started = asyncio.Event()

    async def process(self, processor: EventProcessor) -> None:
        """Processes the event unless it is spent."""
        if self._spend():
            await processor.process(self.event)

    def preempt(self, processor: EventProcessor) -> None:
        """Drops the event unless it is spent."""
        if self._spend():
            processor.preempt(self.event)

    async def await_processing(self) -> None:
        """Waits until processing starts, not until it ends, or until the event is preempted."""
        await self._started.wait()

    def _spend(self) -> bool:
        is_first = not self._is_spent
        self._is_spent = True
        self._started.set()
        return is_first


class EventManager:
    """Queue and task of the controller's events.

    Args:
        processor: Handles the events.
        clock: For the time events wait and take.
        metrics: Gets `EventQueueTimeMs` and `EventQueueSize`.
        stats: Has a timer for each state.
    """

    def __init__(
        self,
        processor: EventProcessor,
        *,
        clock: Clock,
        metrics: MetricRegistry,
        stats: ControllerStats,
    ) -> None:
        self._processor = processor
        self._clock = clock
        self._stats = stats
        self._queue: deque[QueuedEvent] = deque()
        self._is_filled = asyncio.Event()
        self._is_closing = False
        self._state = ControllerActivity.IDLE
        self._group = metrics.group("kafka.controller", "ControllerEventManager")
        self._queue_time = self._group.histogram(
            "EventQueueTimeMs", "How long controller events wait, in milliseconds."
        )
        self._group.gauge("EventQueueSize", lambda: len(self._queue), "Controller events waiting.")

    @property
    def state(self) -> ControllerActivity:
        """The activity of the event being processed."""
        return self._state

    @property
    def size(self) -> int:
        return len(self._queue)

    def put(self, event: ControllerEvent) -> QueuedEvent:
        """Appends an event; after `close` it is preempted at once."""
        queued = QueuedEvent(event, self._clock.monotonic_ms())
        if self._is_closing and not isinstance(event, ShutdownEventThread):
            queued.preempt(self._processor)
            return queued
        self._queue.append(queued)
        self._is_filled.set()
        return queued

    def clear_and_put(self, event: ControllerEvent) -> QueuedEvent:
        """Preempts all queued events, then appends this one, in one step."""
        obsolete, self._queue = self._queue, deque()
        for queued in obsolete:
            queued.preempt(self._processor)
        return self.put(event)

    def close(self) -> None:
        """Makes `run` return after the current event."""
        self._is_closing = True
        self.clear_and_put(ShutdownEventThread())
        self._group.remove()

    async def run(self) -> None:
        """Processes events until `close`."""
        while True:
            while not self._queue:
                self._is_filled.clear()
                await self._is_filled.wait()
            queued = self._queue.popleft()
            if isinstance(queued.event, ShutdownEventThread):
                return
            await self._process(queued)

    async def _process(self, queued: QueuedEvent) -> None:
        started_ms = self._clock.monotonic_ms()
        self._state = queued.event.state
        self._queue_time.update(started_ms - queued.enqueue_time_ms)
        try:
            await queued.process(self._processor)
        except Exception:
            logger.exception("controller event %s failed", type(queued.event).__name__)
        finally:
            timer = self._stats.timers.get(self._state)
            if timer is not None:
                timer.update(self._clock.monotonic_ms() - started_ms)
            self._state = ControllerActivity.IDLE
