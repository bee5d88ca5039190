"""Background work that is done when a test says so."""

from collections import deque
from collections.abc import Callable

__all__ = ["HeldTasks"]


class HeldTasks:
    """`storage.BackgroundTasks` in a test's hands."""

    def __init__(self) -> None:
        self.postponed: list[Callable[[], None]] = []
        self.waiting: deque[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = (
            deque()
        )

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.waiting.append((work, done))

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.postponed.append(action)

    def run_postponed(self) -> None:
        """Runs what was postponed until now, whatever its delay."""
        actions, self.postponed = self.postponed, []
        for action in actions:
            action()

    def run_next(self, error: OSError | None = None) -> None:
        """Does the oldest work, or has it fail, and tells its owner."""
        work, done = self.waiting.popleft()
        if error is not None:
            done(error)
            return
        try:
            work()
        except OSError as failure:
            done(failure)
        else:
            done(None)

    def run_all(self) -> int:
        """Does all work, and what follows from it; returns how much that was."""
        count = 0
        while self.waiting:
            self.run_next()
            count += 1
        return count
