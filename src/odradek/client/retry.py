"""Deadlines and the pauses between attempts."""

from collections.abc import Iterator
from random import Random
from typing import Final

from odradek.clock import Clock

__all__ = ["Deadline", "backoff_ms"]

_JITTER: Final = 0.2


class Deadline:
    """The moment at which a call gives up, however often it was tried."""

    __slots__ = ("_clock", "_end_ms", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self._end_ms = clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> int:
        """Milliseconds until it, 0 when it has passed."""
        return max(self._end_ms - self._clock.monotonic_ms(), 0)

    def within(self, timeout_ms: int) -> "Deadline":
        """A deadline for a part of the call: the earlier of this one and its own."""
        return Deadline(self._clock, min(self.left_ms(), timeout_ms))


def backoff_ms(first_ms: int, last_ms: int, rng: Random) -> Iterator[int]:
    """Pauses without end: doubled from `first_ms` to `last_ms`, each off by up to a fifth.

    The spread keeps clients that lost the same broker from coming back at the same moment.
    """
    pause_ms = first_ms
    while True:
        yield max(int(pause_ms * rng.uniform(1 - _JITTER, 1 + _JITTER)), 1)
        pause_ms = min(pause_ms * 2, last_ms)
