"""The memory for unfinished and unanswered requests of a broker (queued.max.request.bytes).

It counts what connections allocated for frames larger than their first buffer, not what peers
announced. A frame takes its memory bit by bit as its bytes arrive, so many unfinished ones could
hold all of it and wait for one another for ever. Therefore the pool is not strict:

1. An allocation is granted as long as any memory is left, however large the allocation is.
2. The connection that takes the last of it is the *finisher*: all its further allocations are
   granted until memory is left again. The other connections wait.

The pool is thus overdrawn by one frame at most, and that frame can be finished. Once the finisher
has released its memory some is left again, since some was left before it took the last.
Example with a pool of 100 and three frames of 60 bytes that ask for 20 at a time: after two rounds
the first has 40, the second 40, and the third, which takes the last 20, is the finisher: it grows
to 60 and overdraws the pool by 40. When it is answered, its 60 bytes are released: 20 are left.
"""

from collections.abc import Callable

__all__ = ["MemoryPool"]


class MemoryPool:
    """A budget of bytes, with a queue of the connections that found it empty.

    Args:
        size_bytes: The budget; None for no limit.
    """

    __slots__ = ("_finisher", "_waiting", "size_bytes", "used_bytes")

    def __init__(self, size_bytes: int | None = None) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        # The holder that took the last of it. Invariant: None while memory is left.
        self._finisher: object | None = None
        # Called when memory is released, in order of arrival, each once. A dict used as an ordered
        # set.
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def is_bounded(self) -> bool:
        return self.size_bytes is not None

    @property
    def available_bytes(self) -> int:
        """Bytes left; negative when overdrawn, the largest int64 when there is no limit."""
        if self.size_bytes is None:
            return 2**63 - 1
        return self.size_bytes - self.used_bytes

    def try_allocate(self, size_bytes: int, holder: object | None = None) -> bool:
        """Takes bytes from the budget. Returns False if no memory is left.

        Args:
            size_bytes: How many.
            holder: Becomes the finisher if it takes the last of the memory; None never does.

        Raises:
            ValueError: `size_bytes` is below 1 or above the size of the pool.
        """
        if size_bytes < 1 or (self.size_bytes is not None and size_bytes > self.size_bytes):
            raise ValueError(
                f"an allocation of {size_bytes} bytes, expected 1 to the pool of {self.size_bytes}"
            )
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
        """Returns bytes to the pool and calls waiting connections as long as memory is left."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more bytes were released than allocated"
        if self.available_bytes > 0:
            self._finisher = None
        # A callback that finds no memory left is queued again, behind those not called yet.
        for _ in range(len(self._waiting)):
            if self.available_bytes <= 0 or not self._waiting:
                break
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    def when_available(self, callback: Callable[[], None]) -> None:
        """Calls back, once, when memory was released."""
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Removes a callback, if it is queued."""
        self._waiting.pop(callback, None)
