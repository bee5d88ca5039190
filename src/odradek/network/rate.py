"""A rate over sliding samples, and the throttle time of a client above a bound.

`count` samples of `sample_ms` each. With W the time since the oldest sample began, stretched to
``count - 1`` full samples while fewer have passed, and at least 1 ms::

    rate     = sum / W
    throttle = (rate - bound) / bound * W        if rate > bound, else 0

The stretch keeps the first event of a quiet client from looking like a burst: 10 000 bytes at once
are 1000 bytes/s with 11 samples of a second, not ten million.

Example, bound 1000/s: 1 000 at 0 ms, 20 000 at 500 ms. W = 500 + 10 * 1000 = 10 500 ms, the rate is
2000/s, the throttle (2000 - 1000) / 1000 * 10 500 = 10 500 ms.
"""

from collections import deque
from typing import Final

__all__ = ["SampledRate"]

DEFAULT_SAMPLE_COUNT: Final = 11
DEFAULT_SAMPLE_MS: Final = 1_000


class SampledRate:
    """Sums of recently recorded values."""

    __slots__ = ("_count", "_sample_ms", "_samples")

    def __init__(
        self, *, count: int = DEFAULT_SAMPLE_COUNT, sample_ms: int = DEFAULT_SAMPLE_MS
    ) -> None:
        self._count = count
        self._sample_ms = sample_ms
        # [start in ms, sum], oldest first. Invariant: at most count + 1.
        self._samples: deque[list[float]] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Adds to the current sample; a negative value takes back an earlier one."""
        samples = self._samples
        self._drop_old(now_ms)
        if samples and now_ms - samples[-1][0] < self._sample_ms:
            samples[-1][1] += value
        else:
            samples.append([now_ms, value])

    def per_second(self, now_ms: int) -> float:
        """The rate as of now."""
        window_ms = self._window_ms(now_ms)
        return self._sum() * 1000 / window_ms

    def throttle_ms(self, bound_per_second: float, now_ms: int) -> int:
        """How long to wait until the rate is back at the bound; 0 if it is not above it."""
        window_ms = self._window_ms(now_ms)
        rate = self._sum() * 1000 / window_ms
        if rate <= bound_per_second:
            return 0
        return round((rate - bound_per_second) / bound_per_second * window_ms)

    def _sum(self) -> float:
        return sum(value for _, value in self._samples)

    def _window_ms(self, now_ms: int) -> float:
        self._drop_old(now_ms)
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        full_samples = elapsed_ms // self._sample_ms
        missing = max(self._count - 1 - full_samples, 0)
        return max(elapsed_ms + missing * self._sample_ms, 1)

    def _drop_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._count * self._sample_ms
        samples = self._samples
        while samples and samples[0][0] < oldest_ms:
            samples.popleft()
