"""The meter, which counts events. Every request counts several, so this module is compiled."""

import math
from typing import Final, final

from odradek.clock import Clock
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr

__all__ = ["Meter", "Rates"]

# Rates are averaged over steps no shorter than this, as in Kafka; else a scrape right after another
# one would show noise.
TICK_MS: Final = 5_000

_WINDOWS_MS: Final = (60_000, 300_000, 900_000)


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Events per second."""

    mean: float
    one_minute: float
    five_minutes: float
    fifteen_minutes: float


@final
class Meter:
    """Counts events, and computes their rate over the last minute, five and fifteen.

    The rates are exponentially weighted averages. With window w and the average rate x since the
    last look, d ms ago::

        rate = x + (rate - x) * exp(-d / w)

    which is the result of ticking every five seconds if the events came evenly. A hot loop may add
    to `count` itself; `mark` does nothing else.
    """

    __slots__ = ("_clock", "_counted", "_last_ms", "_rates", "_start_ms", "count")

    def __init__(self, clock: Clock) -> None:
        self.count = 0  # Events since creation; never decreases.
        self._clock = clock
        self._start_ms = self._last_ms = clock.monotonic_ms()
        self._counted = 0  # Value of `count` at _last_ms.
        self._rates: list[float] | None = None  # Per second, by window; None before the first tick.

    def mark(self, count: int = 1) -> None:
        self.count += count

    def rates(self) -> Rates:
        now_ms = self._clock.monotonic_ms()
        elapsed_ms = now_ms - self._last_ms
        if elapsed_ms >= TICK_MS:
            current = (self.count - self._counted) * 1000 / elapsed_ms
            before = self._rates or [current] * len(_WINDOWS_MS)
            self._rates = [
                current + (rate - current) * math.exp(-elapsed_ms / window_ms)
                for rate, window_ms in zip(before, _WINDOWS_MS, strict=True)
            ]
            self._counted = self.count
            self._last_ms = now_ms
        age_ms = now_ms - self._start_ms
        one, five, fifteen = self._rates or (0.0, 0.0, 0.0)
        return Rates(
            mean=self.count * 1000 / age_ms if age_ms > 0 else 0.0,
            one_minute=one,
            five_minutes=five,
            fifteen_minutes=fifteen,
        )
