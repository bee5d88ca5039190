"""A request that cannot be answered yet: it ends when its condition holds or its time is over.

Rules:

1. `on_complete` runs exactly once, called by the first of these: the first check, a later check,
   the timer, or a closing connection. `on_expiration` runs at most once, after it, and only if the
   timer was first.
2. `try_complete`, `on_complete` and `on_expiration` never await. The lock that guards a check where
   threads share an operation is here the flag "a check of this operation is on the stack".
3. No wake-up is lost. A callback that makes the condition true while a check is on the stack calls
   `maybe_try_complete` again; the check below may have looked already and seen "not yet". The inner
   call leaves a mark and returns, and the outer one looks again.
"""

from abc import abstractmethod

from odradek.marks import mypyc_attr
from odradek.purgatory.timing_wheel import TimerTask

__all__ = ["DelayedOperation"]


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """One parked request. A subclass defines when it is done, and how it is answered.

    Args:
        delay_ms: How long it may wait, usually the client's own timeout.
    """

    __slots__ = ("_check_again", "_is_checking", "_is_completed")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._is_completed = False
        self._is_checking = False  # A `try_complete` of this operation is on the stack.
        self._check_again = False  # Another check was asked for meanwhile.

    @abstractmethod
    def try_complete(self) -> bool:
        """Tests the condition: if it holds, returns `force_complete()`, else False."""

    @abstractmethod
    def on_complete(self) -> None:
        """Answers the request. Called by `force_complete` alone."""

    @abstractmethod
    def on_expiration(self) -> None:
        """Handles a timeout, after `on_complete`: counts it, for example."""

    @property
    def is_completed(self) -> bool:
        return self._is_completed

    def force_complete(self) -> bool:
        """Ends the operation now. Returns False if it has ended before."""
        if self._is_completed:
            return False
        self._is_completed = True
        self.cancel()
        self.on_complete()
        return True

    def maybe_try_complete(self) -> bool:
        """Checks the condition from outside. Returns whether this call completed the operation.

        Unless the operation is completed, at least one full `try_complete` begins after the call,
        also if the caller is itself called by a check of this operation.
        """
        if self._is_checking:
            self._check_again = True
            return False
        done = False
        self._check_again = True
        while self._check_again and not self._is_completed:
            self._check_again = False
            self._is_checking = True
            try:
                done = self.try_complete()
            finally:
                self._is_checking = False
        return done

    def run(self) -> None:
        """Completes the operation because its time is over."""
        if self.force_complete():
            self.on_expiration()
