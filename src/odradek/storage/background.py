"""Work that a log hands away: what may block runs off the event loop, what is late runs later."""

import heapq
from collections.abc import Callable
from typing import Protocol

from odradek.clock import Clock

__all__ = ["BackgroundTasks", "InlineTasks"]


class BackgroundTasks(Protocol):
    """Where a log's blocking and postponed work goes.

    Duties: `done` and `action` run on the thread that owns the logs, never while a log method runs.
    """

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Runs `work`, which may block and touches no log, then tells `done` how it ended."""
        ...

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Runs `action` after a delay."""
        ...


class InlineTasks:
    """Runs work at once on the calling thread; postponed actions wait for `run_due`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sequence = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        due = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due, self._sequence, action))
        self._sequence += 1

    def run_due(self) -> int:
        """Runs the actions whose time has come; returns how many."""
        now = self._clock.monotonic_ms()
        count = 0
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2]()
            count += 1
        return count
