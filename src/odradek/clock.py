"""Time comes in through a `Clock`; this is the only module that reads it."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Wall and monotonic time in whole milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps that are stored or compared with stored ones."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds of a clock that never steps: for timeouts and intervals."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
