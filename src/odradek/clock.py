"""Time comes in through a `Clock`; this is the only module that reads it."""

import time
from typing import Protocol

__all__ = ["Clock", "PreciseClock", "SystemClock"]


class Clock(Protocol):
    """Wall and monotonic time in whole milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps that are stored or compared with such."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never steps: for timeouts and intervals."""
        ...


class PreciseClock(Clock, Protocol):
    """A clock for times far below a millisecond, as a request's way through the broker has them."""

    def monotonic_ns(self) -> int:
        """Nanoseconds of the clock of `monotonic_ms`."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    # Called several times per request: as a static method it costs no frame.
    monotonic_ns = staticmethod(time.monotonic_ns)
