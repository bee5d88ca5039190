"""The delayed operations of a simulated broker: each completes once, and within its time."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from tests.simulation.history import Violation

__all__ = ["OperationWatch"]

# The timing wheel's tick, and the turns of the loop between two looks at it.
_SLACK_S = 1.0


class OperationWatch:
    """Notes when operations are parked and when they complete.

    The operations of a broker that was killed are forgotten: `forget` is called when it is.

    Args:
        time_s: The simulated time.
        fail: Takes a violation.
    """

    def __init__(self, time_s: Callable[[], float], fail: Callable[[Violation], None]) -> None:
        self._time_s = time_s
        self._fail = fail
        # By identity, with the operation itself so that no other gets the same.
        self._parked: dict[int, tuple[DelayedOperation, float]] = {}
        self._completed: dict[int, DelayedOperation] = {}
        self.count = 0
        for kind in _concrete_kinds(DelayedOperation):
            self._watch_completion(kind)
        self._watch_parking()

    def _watch_completion(self, kind: Any) -> None:
        on_complete = kind.on_complete

        def complete_once(operation: DelayedOperation) -> None:
            if id(operation) in self._completed:
                self._fail(Violation(f"a {type(operation).__name__} completes twice"))
            self._completed[id(operation)] = operation
            self._parked.pop(id(operation), None)
            self.count += 1
            on_complete(operation)

        kind.on_complete = complete_once

    def _watch_parking(self) -> None:
        purgatory: Any = DelayedOperationPurgatory
        watch, try_complete_else_watch = purgatory.watch, purgatory.try_complete_else_watch

        def note_watched(here: Any, operation: Any, keys: Sequence[Hashable]) -> None:
            self._parked[id(operation)] = operation, self._time_s()
            watch(here, operation, keys)

        def note_parked(here: Any, operation: Any, keys: Sequence[Hashable]) -> bool:
            is_completed: bool = try_complete_else_watch(here, operation, keys)
            if not operation.is_completed:
                self._parked[id(operation)] = operation, self._time_s()
            return is_completed

        purgatory.watch = note_watched
        purgatory.try_complete_else_watch = note_parked

    def forget(self) -> None:
        """The broker is gone, and with it the operations that waited."""
        self._parked.clear()
        self._completed.clear()

    def check_overdue(self) -> None:
        """Looks for an operation that waits beyond its time.

        Raises:
            Violation: There is one.
        """
        now_s = self._time_s()
        for operation, since_s in self._parked.values():
            if since_s + operation.delay_ms / 1000 + _SLACK_S < now_s:
                raise Violation(
                    f"a {type(operation).__name__} of {operation.delay_ms} ms has waited"
                    f" {1000 * (now_s - since_s):.0f} ms"
                )


def _concrete_kinds(kind: type[Any]) -> list[type[Any]]:
    found: list[type[Any]] = []
    for other in kind.__subclasses__():
        if "on_complete" in vars(other):
            found.append(other)
        found += _concrete_kinds(other)
    return found
