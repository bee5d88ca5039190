"""A monotonic clock that excludes the times in which the event loop was blocked.

A loop that was blocked, or a process that was stopped, longer than a session timeout finds all its
members late, though their heartbeats are unread in the sockets. So the clock of members' deadlines
stops with the loop: a timer ticks on the loop, and a tick that comes more than a second late moves
this clock back by the delay. Deadlines computed before that are thereby moved, too.

Example: a tick is due at 10 500 and comes at 30 500. From then on the clock is 20 000 behind the
machine's, and a session that would have ended at 15 000 has 4 500 left.
"""

from collections.abc import Callable
from typing import Final, Protocol

from odradek.clock import PreciseClock

__all__ = ["StallClock"]

TICK_MS: Final = 500
TOLERANCE_MS: Final = 1_000
_NEVER: Final = 1 << 62
_NS_PER_MS: Final = 1_000_000


class Handle(Protocol):
    """A scheduled call of a loop."""

    def cancel(self) -> None: ...


class StallClock:
    """A `Clock` for deadlines. It ticks only while a deadline is pending.

    Args:
        clock: The machine's clock.
        call_later: Runs a function on the loop after some seconds.
        is_needed: Whether a deadline is pending; if not, the ticking stops.
    """

    __slots__ = (
        "_call_later", "_clock", "_due_ms", "_handle", "_monotonic_ns", "_stalled_ms", "is_needed",
    )  # fmt: skip

    def __init__(
        self,
        clock: PreciseClock,
        call_later: Callable[[float, Callable[[], None]], Handle],
        is_needed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._monotonic_ns = clock.monotonic_ns
        self._call_later = call_later
        self.is_needed = is_needed
        self._handle: Handle | None = None
        self._due_ms = _NEVER  # When the next tick should come, by the machine's clock.
        self._stalled_ms = 0  # In total.

    @property
    def stalled_ms(self) -> int:
        """The total time the loop was blocked, as far as it was watched."""
        return self._stalled_ms

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        now_ms = self._monotonic_ns() // _NS_PER_MS
        late_ms = now_ms - self._due_ms
        if late_ms > TOLERANCE_MS:
            self._stalled_ms += late_ms
            self._due_ms = now_ms + TICK_MS
        return now_ms - self._stalled_ms

    def watch(self) -> None:
        """Starts to tick, because a deadline is pending."""
        if self._handle is None:
            self._due_ms = self._monotonic_ns() // _NS_PER_MS + TICK_MS
            self._handle = self._call_later(TICK_MS / 1000, self._tick)

    def stop(self) -> None:
        """Stops ticking."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._due_ms = _NEVER

    def _tick(self) -> None:
        self.monotonic_ms()
        self._handle = None
        self._due_ms = _NEVER
        if self.is_needed():
            self.watch()
