"""A limit on the rate of bytes: how long to wait after each piece of work.

Each piece takes its share of time, and the next begins when the one before is done, or now::

    rate 1000 B/s    at 0 ms: 500 B -> wait 500 ms    at 500 ms: 200 B -> wait 200 ms
                     at 5000 ms: 100 B -> wait 100 ms; unused time is not saved up
"""

import threading

from odradek.clock import Clock

__all__ = ["Throttle"]


class Throttle:
    """One rate for several threads; nothing here waits."""

    __slots__ = ("_bytes_per_second", "_clock", "_free_at_ms", "_lock")

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._free_at_ms = 0.0
        self._lock = threading.Lock()

    @property
    def bytes_per_second(self) -> float:
        """The rate. With the largest number, the default, no work waits.

        May be changed at any time; the remaining wait is then computed at the new rate.
        """
        return self._bytes_per_second

    @bytes_per_second.setter
    def bytes_per_second(self, rate: float) -> None:
        now = self._clock.monotonic_ms()
        with self._lock:
            if self._free_at_ms > now:
                left_bytes = (self._free_at_ms - now) * self._bytes_per_second
                self._free_at_ms = now + left_bytes / rate
            self._bytes_per_second = rate

    def spend(self, byte_count: int) -> float:
        """Accounts for work that was done; returns the milliseconds to wait."""
        now = self._clock.monotonic_ms()
        with self._lock:
            cost_ms = byte_count * 1000 / self._bytes_per_second
            self._free_at_ms = max(self._free_at_ms, now) + cost_ms
            return self._free_at_ms - now

    def left_ms(self) -> float:
        """The remaining milliseconds to wait for all work done so far."""
        now = self._clock.monotonic_ms()
        with self._lock:
            return max(self._free_at_ms - now, 0.0)
