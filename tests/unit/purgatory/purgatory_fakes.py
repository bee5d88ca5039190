"""A loop and a clock that move by hand, and tasks and operations that write down what happens."""

import heapq
from collections.abc import Callable

from odradek.purgatory import DelayedOperation, TimerTask


class FakeHandle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """A loop whose time stands still: `turn` runs one turn, `run_until` lets time pass."""

    def __init__(self, start_ms: int = 0) -> None:
        self.now_ms = start_ms
        self.wakeups = 0  # Timed callbacks that ran.
        self._soon: list[tuple[FakeHandle, Callable[[], object]]] = []
        self._timed: list[tuple[float, int, FakeHandle, Callable[[], object]]] = []
        self._sequence = 0

    def time(self) -> float:
        return self.now_ms / 1000

    def call_soon(self, callback: Callable[[], object], /) -> FakeHandle:
        handle = FakeHandle()
        self._soon.append((handle, callback))
        return handle

    def call_at(self, when: float, callback: Callable[[], object], /) -> FakeHandle:
        handle = FakeHandle()
        self._sequence += 1
        heapq.heappush(self._timed, (when, self._sequence, handle, callback))
        return handle

    @property
    def timed(self) -> list[int]:
        """Times, in ms, of the timed callbacks still pending."""
        return sorted(
            round(when * 1000) for when, _, handle, _ in self._timed if not handle.is_cancelled
        )

    def turn(self) -> None:
        """One turn: what was scheduled before it runs, what it schedules waits for the next."""
        ready, self._soon = self._soon, []
        while self._timed and round(self._timed[0][0] * 1000) <= self.now_ms:
            _, _, handle, callback = heapq.heappop(self._timed)
            if not handle.is_cancelled:
                self.wakeups += 1
                ready.append((handle, callback))
        for handle, callback in ready:
            if not handle.is_cancelled:
                callback()

    def run_until(self, end_ms: int) -> None:
        while True:
            while self._soon or (self.timed and self.timed[0] <= self.now_ms):
                self.turn()
            if not self.timed or self.timed[0] > end_ms:
                break
            self.now_ms = self.timed[0]
        self.now_ms = end_ms


class FakeClock:
    """A `Clock` over a `FakeLoop`."""

    def __init__(self, loop: FakeLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return self._loop.now_ms

    def monotonic_ms(self) -> int:
        return self._loop.now_ms


class Note(TimerTask):
    """A task that notes its label when it runs."""

    def __init__(self, delay_ms: int, ran: list[int], label: int | None = None) -> None:
        super().__init__(delay_ms)
        self.label = delay_ms if label is None else label
        self._ran = ran

    def run(self) -> None:
        self._ran.append(self.label)


class Switch(DelayedOperation):
    """An operation that is satisfied once `is_on`; its events are noted in order."""

    def __init__(self, delay_ms: int = 1000, *, is_on: bool = False) -> None:
        super().__init__(delay_ms)
        self.is_on = is_on
        self.checks = 0
        self.events: list[str] = []

    def try_complete(self) -> bool:
        self.checks += 1
        return self.is_on and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expire")
