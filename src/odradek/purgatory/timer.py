"""Timers, which advance a timing wheel and run the tasks that are due.

`SystemTimer` lives on an event loop. It keeps **one** `call_at`, for the earliest bucket that holds
tasks; an idle timer has none. `ManualTimer` has a clock of its own that only `advance_clock` moves,
so that tests and simulations neither sleep nor depend on speed.

Rules for both:

1. `add` and `advance_clock` never run a task. Expired tasks go to the timer's queue, named
   ``executor-<name>``, and run after the caller has returned, in the order they fell due.
2. A task that raises is logged; the others run all the same.
3. `SystemTimer` runs at most `MAX_TASKS_PER_TURN` tasks per turn of the loop, so that a mass expiry
   does not starve the sockets.
4. After `shutdown` nothing runs; pending tasks stay unexecuted.

Since nothing awaits, nothing needs a lock: see `odradek.purgatory.timing_wheel` for the wheel.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from odradek.clock import Clock
from odradek.purgatory.timing_wheel import Schedule, TimerTask

__all__ = ["ManualTimer", "SystemTimer", "Timer", "TimerCall"]

logger = logging.getLogger(__name__)

# About a millisecond of completions that each encode a small answer.
MAX_TASKS_PER_TURN = 64


class Timer(Protocol):
    """Runs tasks when their delay has passed."""

    @property
    def size(self) -> int:
        """Tasks that wait for their time."""
        ...

    def add(self, task: TimerTask) -> None:
        """Runs the task `task.delay_ms` from now. Never runs it in place, not even a late one."""
        ...

    def advance_clock(self, timeout_ms: int) -> bool:
        """Queues due tasks, waiting at most `timeout_ms` for one. Returns whether any was due."""
        ...

    def drive_with(self, step: Callable[[], object]) -> None:
        """Calls `step`, which has to call `advance_clock(0)`, whenever a task may be due."""
        ...

    def shutdown(self) -> None:
        """Stops; pending tasks stay unexecuted."""
        ...


class TimerCall(TimerTask):
    """Calls a function once its delay has passed."""

    __slots__ = ("_callback",)

    def __init__(self, delay_ms: int, callback: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._callback = callback

    def run(self) -> None:
        self._callback()


class Cancellable(Protocol):
    """A scheduled call of a loop."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an asyncio event loop a timer needs."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Cancellable: ...

    def call_soon(self, callback: Callable[[], object], /) -> Cancellable: ...


class ExpiredTasks:
    """Due tasks that wait for their turn to run.

    Bounded by the number of operations parked in the purgatory.
    """

    __slots__ = ("_tasks", "name")

    def __init__(self, timer_name: str) -> None:
        self.name = f"executor-{timer_name}"
        self._tasks: deque[TimerTask] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def submit(self, task: TimerTask) -> None:
        self._tasks.append(task)

    def submit_all(self, tasks: list[TimerTask]) -> None:
        self._tasks.extend(tasks)

    def run(self, limit: int) -> None:
        """Runs the first `limit` tasks, or as many as there are."""
        for _ in range(min(limit, len(self._tasks))):
            task = self._tasks.popleft()
            try:
                task.run()
            except Exception:  # top of the expiry queue, logged
                logger.exception("%s: expired task %r failed", self.name, task)

    def clear(self) -> None:
        self._tasks.clear()


class SystemTimer:
    """A timer on an event loop.

    Args:
        name: Usually that of the purgatory which uses it.
        loop: Schedules wake-ups. Its `time` may differ from the clock, but runs at the same speed.
        clock: The time by which tasks expire.
    """

    __slots__ = (
        "_clock",
        "_expired",
        "_handle",
        "_is_shut_down",
        "_loop",
        "_run_handle",
        "_schedule",
        "_step",
        "_wake_ms",
    )

    def __init__(
        self, name: str, *, loop: Loop, clock: Clock, tick_ms: int = 1, wheel_size: int = 20
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._expired = ExpiredTasks(name)
        self._schedule = Schedule(
            start_ms=clock.monotonic_ms(), tick_ms=tick_ms, wheel_size=wheel_size
        )
        self._step: Callable[[], object] | None = None  # Advances the clock; set by `drive_with`.
        self._is_shut_down = False
        self._handle: Cancellable | None = None  # The one wake-up, due at _wake_ms.
        self._wake_ms = 0
        self._run_handle: Cancellable | None = None  # Set while tasks wait for the next loop turn.

    @property
    def executor_name(self) -> str:
        return self._expired.name

    @property
    def size(self) -> int:
        return self._schedule.size

    def add(self, task: TimerTask) -> None:
        if self._is_shut_down:
            return
        if self._schedule.add(task, self._clock.monotonic_ms()):
            self._arm()
        else:
            self._expired.submit(task)
            self._run_soon()

    def advance_clock(self, timeout_ms: int = 0) -> bool:
        assert timeout_ms == 0, "an event loop cannot wait here; drive_with wakes it when it is due"
        now_ms = self._clock.monotonic_ms()
        first_ms = self._schedule.next_wakeup_ms()
        if first_ms is None or first_ms > now_ms:
            return False
        self._expired.submit_all(self._schedule.advance_to(now_ms))
        self._run_soon()
        self._arm()
        return True

    def drive_with(self, step: Callable[[], object]) -> None:
        self._step = step
        self._arm()

    def shutdown(self) -> None:
        self._is_shut_down = True
        self._step = None
        self._expired.clear()
        for handle in (self._handle, self._run_handle):
            if handle is not None:
                handle.cancel()
        self._handle = self._run_handle = None

    def _arm(self) -> None:
        """Keeps the one wake-up at the earliest bucket; it only ever moves to an earlier time.

        A later one is set when this one fires: cancelling tasks leaves their bucket queued.
        """
        first_ms = self._schedule.next_wakeup_ms()
        if first_ms is None or self._step is None:
            return
        if self._handle is not None:
            if self._wake_ms <= first_ms:
                return
            self._handle.cancel()
        self._wake_ms = first_ms
        delay_ms = max(0, first_ms - self._clock.monotonic_ms())
        self._handle = self._loop.call_at(self._loop.time() + delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._handle = None
        if self._step is not None:
            try:
                self._step()
            finally:
                # A loop may wake a moment early; then nothing was due and the bucket still waits.
                self._arm()

    def _run_soon(self) -> None:
        if self._run_handle is None and len(self._expired):
            self._run_handle = self._loop.call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._run_handle = None
        try:
            self._expired.run(MAX_TASKS_PER_TURN)
        finally:
            self._run_soon()


class ManualTimer:
    """A timer whose clock moves only through `advance_clock`."""

    __slots__ = ("_expired", "_is_shut_down", "_schedule", "now_ms")

    def __init__(
        self, name: str, *, start_ms: int = 0, tick_ms: int = 1, wheel_size: int = 20
    ) -> None:
        self.now_ms = start_ms
        self._expired = ExpiredTasks(name)
        self._schedule = Schedule(start_ms=start_ms, tick_ms=tick_ms, wheel_size=wheel_size)
        self._is_shut_down = False

    @property
    def executor_name(self) -> str:
        return self._expired.name

    @property
    def size(self) -> int:
        return self._schedule.size

    @property
    def submitted(self) -> int:
        """Tasks that are due and run with the next `advance_clock`."""
        return len(self._expired)

    def add(self, task: TimerTask) -> None:
        if not self._is_shut_down and not self._schedule.add(task, self.now_ms):
            self._expired.submit(task)

    def advance_clock(self, timeout_ms: int = 0) -> bool:
        """Moves time by `timeout_ms` and runs the tasks that fall due, each at its own time."""
        if self._is_shut_down:
            return False
        end_ms = self.now_ms + timeout_ms
        advanced = False
        self._expired.run(len(self._expired))
        while (first_ms := self._schedule.next_wakeup_ms()) is not None and first_ms <= end_ms:
            self.now_ms = max(self.now_ms, first_ms)
            self._expired.submit_all(self._schedule.advance_to(self.now_ms))
            self._expired.run(len(self._expired))
            advanced = True
        self.now_ms = end_ms
        return advanced

    def drive_with(self, step: Callable[[], object]) -> None:
        """Does nothing: the caller of `advance_clock` calls the step."""

    def shutdown(self) -> None:
        self._is_shut_down = True
        self._expired.clear()
