"""A clock that moves only when a test advances it."""

__all__ = ["ManualClock"]


class ManualClock:
    """A `Clock` that a test advances; wall and monotonic time move together.

    Args:
        now_ms: Wall time at the start.
        monotonic_ms: Monotonic time at the start; differs from `now_ms` so that code which mixes
            the two fails visibly.
    """

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_600_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def advance(self, ms: int) -> None:
        """Lets `ms` milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError(f"expected ms >= 0, not {ms}; step_wall moves the wall clock back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def step_wall(self, ms: int) -> None:
        """Corrects the wall clock by `ms`, which may be negative; no time passes."""
        self._now_ms += ms
