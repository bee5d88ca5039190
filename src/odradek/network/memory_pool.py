"""How many bytes of unfinished and unanswered requests a broker keeps (queued.max.request.bytes).

It counts what connections allocated for frames larger than their first buffer, not what peers
announced. A frame takes its memory bit by bit as its bytes arrive, so many unfinished ones could
hold all of it and wait for one another for ever. Therefore the pool is not strict:

1. An allocation is granted as long as anything is left, however large it is.
2. Who takes the last of it is the one who finishes: all it asks for is granted until memory is
   left again. Everybody else waits.

The pool is thus overdrawn by one frame at most, and that frame can be finished. Once it has given
its memory back something is left again, since something was left before it took the last.
Example with a pool of 100 and three frames of 60 bytes that ask for 20 at a time: after two rounds
the first has 40, the second 40, and the third, which takes the last 20, is the one who finishes: it
goes on to 60 and overdraws the pool by 40. When it is answered, its 60 bytes are back: 20 are left.
"""

from collections.abc import Callable

__all__ = ["MemoryPool"]


class MemoryPool:
    """A budget of bytes, with a queue of those who found it empty.

    Args:
        size_bytes: The budget; None for no limit.
    """

    __slots__ = ("_finisher", "_waiting", "size_bytes", "used_bytes")

    def __init__(self, size_bytes: int | None = None) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        # Who took the last of it. Invariant: None while something is left.
        self._finisher: object | None = None
        # Whom to tell when memory is back, first come first served; each is asked once. A dict used
        # as an ordered set.
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_bounded(self) -> bool:
        return self.size_bytes is not None

    @property
    def available_bytes(self) -> int:
        """What is left; negative when overdrawn, the largest int64 when there is no limit."""
        if self.size_bytes is None:
            return 2**63 - 1
        return self.size_bytes - self.used_bytes

    def try_allocate(self, size_bytes: int, holder: object | None = None) -> bool:
        """Takes from the budget unless nothing is left.

        Args:
            holder: Who takes it, and may go on if this was the last; None may not.

        Raises:
            ValueError: No request is that large or that small.
        """
        if size_bytes < 1 or (self.size_bytes is not None and size_bytes > self.size_bytes):
            raise ValueError(f"an allocation of {size_bytes} from a pool of {self.size_bytes}")
        if self.available_bytes <= 0:
            if holder is None or holder is not self._finisher:
                return False
            self.used_bytes += size_bytes
            return True
        self.used_bytes += size_bytes
        if self.available_bytes <= 0:
            self._finisher = holder
        return True

    def release(self, size_bytes: int) -> None:
        """Gives back; who waits is told once there is something to be had."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was given back than taken"
        if self.available_bytes > 0:
            self._finisher = None
        # Those who find nothing left queue up again, behind the ones not asked yet.
        for _ in range(len(self._waiting)):
            if self.available_bytes <= 0 or not self._waiting:
                break
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    def when_available(self, callback: Callable[[], None]) -> None:
        """Calls back, once, when memory was given back."""
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Does not call back any more; harmless if nobody was to."""
        self._waiting.pop(callback, None)
