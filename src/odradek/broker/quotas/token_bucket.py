"""A token bucket that may be overdrawn, for quotas on changes of the cluster.

``bound`` tokens are added per second, up to ``bound * seconds``; the bucket starts full. A request
that finds it not below zero may take any number, even more than it has: a large request passes once
and is throttled afterwards, where a bucket that cannot be overdrawn would always refuse it.

Example, bound 5/s, 11 seconds: 55 tokens. Taking 60 leaves -5; until 1000 ms later, when it is 0
again, a strict request is refused.
"""

__all__ = ["TokenBucket"]


class TokenBucket:
    """Tokens of one client.

    Args:
        seconds: How many seconds of the bound it holds.
        bound: Tokens per second at the start.
        now_ms: The present time.
    """

    __slots__ = ("_last_ms", "_seconds", "_tokens")

    def __init__(self, *, seconds: int, bound: float, now_ms: int) -> None:
        self._seconds = seconds
        self._tokens = bound * seconds
        self._last_ms = now_ms

    def tokens(self, bound: float, now_ms: int) -> float:
        """The present number of tokens; below zero if it was overdrawn."""
        elapsed_ms = max(now_ms - self._last_ms, 0)
        self._last_ms = now_ms
        self._tokens = min(self._tokens + bound * elapsed_ms / 1000, bound * self._seconds)
        return self._tokens

    def take(self, count: float, bound: float, now_ms: int) -> None:
        """Takes tokens, even more than it has."""
        self.tokens(bound, now_ms)
        self._tokens -= count

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """The time until it is no longer overdrawn."""
        return round(max(-self.tokens(bound, now_ms), 0) / bound * 1000)
