"""Keeping a rate of bytes: how long to wait after each piece of work.

Works like a queue at one counter: every piece takes its share of time, and the next begins when the
one before is done, or now::

    rate 1000 B/s    at 0 ms: 500 B -> wait 500 ms    at 500 ms: 200 B -> wait 200 ms
                     at 5000 ms: 100 B -> wait 100 ms; what was not used before is not saved up
"""

import threading

from odradek.clock import Clock

__all__ = ["Throttle"]


class Throttle:
    """One rate for several threads; nothing here waits."""

    __slots__ = ("_clock", "_free_at_ms", "_lock", "bytes_per_second")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        # May be changed at any time. The largest number, the default, waits for nothing.
        self.bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0
        self._lock = threading.Lock()

    def spend(self, byte_count: int) -> float:
        """Accounts for work that was done; returns the milliseconds to wait."""
        rate = self.bytes_per_second
        now = self._clock.monotonic_ms()
        with self._lock:
            self._free_at_ms = max(self._free_at_ms, now) + byte_count * 1000 / rate
            return self._free_at_ms - now
