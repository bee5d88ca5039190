"""How many bytes of unfinished and unanswered requests a broker keeps (queued.max.request.bytes).

It counts what connections allocated for frames larger than their first buffer, not what peers
announced. It is not strict: a request is granted as long as anything is left, so the pool may be
overdrawn by one allocation, and a large frame cannot starve behind a stream of small ones.
"""

from collections import deque
from collections.abc import Callable

__all__ = ["MemoryPool"]


class MemoryPool:
    """A budget of bytes, with a queue of those who found it empty.

    Args:
        size_bytes: The budget; None for no limit.
    """

    __slots__ = ("_waiting", "size_bytes", "used_bytes")

    def __init__(self, size_bytes: int | None = None) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        # Whom to tell when memory is back, first come first served; each is asked once.
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def is_bounded(self) -> bool:
        return self.size_bytes is not None

    @property
    def available_bytes(self) -> int:
        """What is left; negative when overdrawn, the largest int64 when there is no limit."""
        if self.size_bytes is None:
            return 2**63 - 1
        return self.size_bytes - self.used_bytes

    def try_allocate(self, size_bytes: int) -> bool:
        """Take from the budget unless nothing is left.

        Raises:
            ValueError: no request is that large or that small.
        """
        if size_bytes < 1 or (self.size_bytes is not None and size_bytes > self.size_bytes):
            raise ValueError(f"an allocation of {size_bytes} from a pool of {self.size_bytes}")
        if self.size_bytes is not None and self.size_bytes - self.used_bytes <= 0:
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give back; who waits is told once there is something to be had."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was given back than taken"
        # Those who find nothing left queue up again, behind the ones not asked yet.
        for _ in range(len(self._waiting)):
            if self.available_bytes <= 0:
                break
            self._waiting.popleft()()

    def when_available(self, callback: Callable[[], None]) -> None:
        """Call back, once, when memory was given back."""
        self._waiting.append(callback)
