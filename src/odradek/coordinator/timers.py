"""Deadlines of a coordinator, on a clock that stops while the event loop is blocked.

Deadlines are only ever added: if a decision moves one, the earlier timer fires, finds nothing to
do, and is armed again. So frequent events, such as heartbeats, change no timer.
"""

from collections.abc import Callable

from odradek.coordinator.stall_clock import StallClock
from odradek.purgatory.timer import Timer
from odradek.purgatory.timing_wheel import TimerTask

__all__ = ["Alarm", "Deadlines"]


class Alarm(TimerTask):
    """Calls once, at its deadline, unless it is cancelled."""

    __slots__ = ("_ring",)

    def __init__(self, delay_ms: int, ring: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._ring = ring

    def run(self) -> None:
        self._ring()


class Deadlines:
    """The deadlines of one coordinator.

    Args:
        clock: The clock of the deadlines.
        timer: Calls back at deadlines, by the same clock.
    """

    __slots__ = ("_clock", "_timer")

    def __init__(self, clock: StallClock, timer: Timer) -> None:
        self._clock = clock
        self._timer = timer

    def arm(self, due_ms: int, ring: Callable[[], object]) -> Alarm:
        """Calls `ring` at `due_ms` of the clock, or soon if that has passed."""
        alarm = Alarm(max(due_ms - self._clock.monotonic_ms(), 0), ring)
        self._timer.add(alarm)
        self._clock.watch()
        return alarm

    def stop(self) -> None:
        """Cancels all alarms."""
        self._timer.shutdown()
        self._clock.stop()
