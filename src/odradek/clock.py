"""`Clock`, through which components read time; the only module that asks the system for it."""

import time
from typing import Protocol

__all__ = ["Clock", "PreciseClock", "SystemClock"]


class Clock(Protocol):
    """Wall and monotonic time in whole milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since 1970: for timestamps that are stored, or compared with stored ones."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never steps: for timeouts and intervals."""
        ...


class PreciseClock(Clock, Protocol):
    """A clock for times far below a millisecond, such as the stages of a request in the broker."""

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
