"""Decides when a failed query starts again. Pure.

The wait doubles with every failure, up to a limit, and a query with more than `max` failures is
given up. After ten minutes without a failure the count begins again: a broker that is restarted
once a day must not end, after `max` days, a run that recovered every time. With `backoff: 1s`,
`max_backoff: 1m` and `max: 10` the waits are 1, 2, 4, 8, 16, 32, 60, 60, 60 and 60 seconds.
"""

from typing import Final

from odradek.spark.pipeline.graph.model import Restart

__all__ = ["FORGET_MS", "Restarts"]

FORGET_MS: Final = 600_000
_MAX_DOUBLINGS: Final = 40  # Of 1 ms: longer than any configured limit.


class Restarts:
    """Counts the failures of one query."""

    def __init__(self, policy: Restart) -> None:
        self._policy = policy
        self._failures = 0
        self._last_ms: int | None = None

    @property
    def count(self) -> int:
        """The number of failures since the count began."""
        return self._failures

    def next_wait_ms(self, now_ms: int) -> int | None:
        """How long to wait after a failure now; None to give up."""
        if self._last_ms is not None and now_ms - self._last_ms >= FORGET_MS:
            self._failures = 0
        self._last_ms = now_ms
        self._failures += 1
        if self._failures > self._policy.max:
            return None
        doubled = self._policy.backoff_ms << min(self._failures - 1, _MAX_DOUBLINGS)
        return min(doubled, self._policy.max_backoff_ms)
