"""Figures of a client under the names that Kafka's clients give them.

The client keeps them itself: totals since it was made, averages and maxima of the last half to
whole minute, as Kafka's two windows of thirty seconds give them.
"""

from typing import Final

__all__ = ["Samples", "Total"]

_WINDOW_S: Final = 30.0


class Total:
    """A count, and its rate per second in the last windows."""

    __slots__ = ("_base", "_begun_s", "_earlier_base", "_earlier_s", "value")

    def __init__(self, now_s: float) -> None:
        self.value = 0
        # Count and time at the beginning of this window and of the one before.
        self._base = self._earlier_base = 0
        self._begun_s = self._earlier_s = now_s

    def rate(self, now_s: float) -> float:
        """Per second, over this window and the one before."""
        if now_s - self._begun_s >= _WINDOW_S:
            self._earlier_base, self._earlier_s = self._base, self._begun_s
            self._base, self._begun_s = self.value, now_s
        elapsed_s = now_s - self._earlier_s
        return (self.value - self._earlier_base) / elapsed_s if elapsed_s > 0 else 0.0


class Samples:
    """Average and largest of the values in the last windows."""

    __slots__ = ("_begun_s", "_earlier", "_now")

    def __init__(self, now_s: float) -> None:
        self._begun_s = now_s
        # Count, sum and largest of each window.
        self._now = [0, 0.0, 0.0]
        self._earlier = [0, 0.0, 0.0]

    def add(self, value: float, now_s: float) -> None:
        if now_s - self._begun_s >= _WINDOW_S:
            self._turn(now_s)
        window = self._now
        window[0] += 1
        window[1] += value
        if value > window[2]:
            window[2] = value

    def average(self, now_s: float) -> float:
        """NaN if nothing was measured, as Kafka has it."""
        self._turn_if_due(now_s)
        count = self._now[0] + self._earlier[0]
        return (self._now[1] + self._earlier[1]) / count if count else float("nan")

    def largest(self, now_s: float) -> float:
        """NaN if nothing was measured, as Kafka has it."""
        self._turn_if_due(now_s)
        if not self._now[0] + self._earlier[0]:
            return float("nan")
        return max(self._now[2], self._earlier[2])

    def _turn_if_due(self, now_s: float) -> None:
        if now_s - self._begun_s >= _WINDOW_S:
            self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        is_stale = now_s - self._begun_s >= 2 * _WINDOW_S
        self._earlier = [0, 0.0, 0.0] if is_stale else self._now
        self._now = [0, 0.0, 0.0]
        self._begun_s = now_s
