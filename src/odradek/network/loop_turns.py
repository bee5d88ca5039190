"""How long the event loop does not poll its sockets: every turn is measured.

A turn is the work between two polls of the sockets: callbacks, steps of tasks, timers. While it
lasts no other client is served, so a turn is as long as the longest wait that a handler can impose
on all other clients (spec 02 §12 allows a handler one millisecond). `MeasuredSelector` reads the
clock when a poll ends and when the next one begins; that is the whole cost, per turn and not per
request.

All turns are counted in the histogram `odradek_loop_turn_seconds`. A turn above `LONG_TURN_NS` is
logged with the request that took most of it, at most once in `LOG_INTERVAL_NS`; the line also
counts the long turns since the line before. A handler is reported with `note`, and only if it took
longer than `SLOW_HANDLER_NS`: a turn without a note was spent on many small requests, or on work
that belongs to no request, such as timers and publishing of metadata.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, epoll
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import TYPE_CHECKING, Any, Final

from odradek.clock import SystemClock
from odradek.metrics import Buckets, MetricName, MetricRegistry

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

__all__ = [
    "LOG_INTERVAL_NS",
    "LONG_TURN_NS",
    "SLOW_HANDLER_NS",
    "LoopTurns",
    "MeasuredLoop",
    "MeasuredSelector",
    "turns_of",
]

logger = logging.getLogger(__name__)

_NS_PER_MS: Final = 1_000_000
# The time that spec 02 §12 allows a handler.
SLOW_HANDLER_NS: Final = 1 * _NS_PER_MS
# A longer turn is logged. A client on the same host never waits this long for a healthy broker.
LONG_TURN_NS: Final = 20 * _NS_PER_MS
LOG_INTERVAL_NS: Final = 10_000 * _NS_PER_MS

_NAME: Final = MetricName("odradek", "loop", "turn_seconds")
_DOC: Final = "Time between two looks at the sockets."


class LoopTurns:
    """The measured turns of one loop.

    Args:
        now_ns: A clock in nanoseconds, wall or CPU time.
    """

    __slots__ = (
        "_is_logged",
        "_logged_ns",
        "_long_count",
        "_longest_ns",
        "_slowest_name",
        "_slowest_ns",
        "buckets",
        "longest_ns",
        "now_ns",
        "started_ns",
    )

    def __init__(self, now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        self.now_ns = now_ns
        self.buckets = Buckets()
        self.longest_ns = 0  # Since its reader last set it to 0.
        self.started_ns = now_ns()  # When the last poll of the sockets ended.
        # Of the turn under way: the request that took most of it, if one was slow.
        self._slowest_name = ""
        self._slowest_ns = 0
        # Since the last line in the log.
        self._is_logged = False
        self._logged_ns = 0
        self._long_count = 0
        self._longest_ns = 0

    def register(self, metrics: MetricRegistry) -> None:
        """Registers the histogram of turns."""
        metrics.show_buckets(_NAME, self.buckets, _DOC)

    def end(self, elapsed_ns: int) -> None:
        """Counts a turn that is over: the loop is about to poll its sockets again."""
        self.buckets.update(elapsed_ns)
        if elapsed_ns > SLOW_HANDLER_NS:
            self._end_slowly(elapsed_ns)

    def note(self, name: str, elapsed_ns: int) -> None:
        """Records that `name` took `elapsed_ns` of the current turn."""
        if elapsed_ns > self._slowest_ns:
            self._slowest_name = name
            self._slowest_ns = elapsed_ns

    def _end_slowly(self, elapsed_ns: int) -> None:
        now_ns = self.now_ns()
        name, slowest_ns = self._slowest_name, self._slowest_ns
        self._slowest_name, self._slowest_ns = "", 0
        self.longest_ns = max(self.longest_ns, elapsed_ns)
        if elapsed_ns <= LONG_TURN_NS:
            return
        if self._is_logged and now_ns - self._logged_ns < LOG_INTERVAL_NS:
            self._long_count += 1
            self._longest_ns = max(self._longest_ns, elapsed_ns)
            return
        of_which = f", {slowest_ns // _NS_PER_MS} ms of it for {name}" if name else ""
        since = ""
        if self._long_count:
            since = (
                f"; {self._long_count} more long turns since the last line, the longest"
                f" {self._longest_ns // _NS_PER_MS} ms"
            )
        logger.info(
            "The loop served no socket for %d ms%s%s",
            elapsed_ns // _NS_PER_MS,
            of_which,
            since,
            extra={"turn_ms": elapsed_ns // _NS_PER_MS, "api": name},
        )
        self._is_logged = True
        self._logged_ns = now_ns
        self._long_count = 0
        self._longest_ns = 0


class MeasuredSelector(BaseSelector):
    """The selector of a loop: polls its files with epoll, and reports the turns to `LoopTurns`.

    It repeats code of the library's selector, and the usual case of `LoopTurns`: calling them would
    make a poll cost half as much again.
    """

    def __init__(self, turns: LoopTurns) -> None:
        self._turns = turns
        self._epoll = epoll()
        self._keys: dict[int, SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        turns = self._turns
        elapsed_ns = turns.now_ns() - turns.started_ns
        if elapsed_ns > SLOW_HANDLER_NS:
            turns.end(elapsed_ns)
        else:
            buckets = turns.buckets
            buckets.counts[(elapsed_ns >> 16).bit_length()] += 1
            buckets.total_ns += elapsed_ns
        if timeout is None:
            timeout = -1.0
        elif timeout <= 0:
            timeout = 0.0
        else:
            # Rounded up to milliseconds, epoll's unit: rounded down, the loop would spin.
            timeout = math.ceil(timeout * 1e3) * 1e-3
        keys = self._keys
        try:
            ready = [
                (key, _events(mask) & key.events)
                for fd, mask in self._epoll.poll(timeout, len(keys) or 1)
                if (key := keys.get(fd)) is not None
            ]
        except InterruptedError:
            ready = []
        turns.started_ns = turns.now_ns()
        return ready

    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> SelectorKey:
        fd = _descriptor(fileobj)
        if fd in self._keys:
            raise KeyError(f"descriptor {fd} is registered already")
        self._epoll.register(fd, _mask(events))
        key = self._keys[fd] = SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: "FileDescriptorLike") -> SelectorKey:
        key = self._keys.pop(_descriptor(fileobj))
        with suppress(OSError):  # It may have been closed before.
            self._epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> SelectorKey:
        fd = _descriptor(fileobj)
        before = self._keys[fd]
        if before.events != events:
            self._epoll.modify(fd, _mask(events))
        key = self._keys[fd] = SelectorKey(fileobj, fd, events, data)
        return key

    def get_map(self) -> Mapping[Any, SelectorKey]:
        return self._keys

    def get_key(self, fileobj: "FileDescriptorLike") -> SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()


def _descriptor(fileobj: "FileDescriptorLike") -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _events(mask: int) -> int:
    # Errors and hang-ups are both, as with the selectors of the library.
    return (EVENT_READ if mask & ~EPOLLOUT else 0) | (EVENT_WRITE if mask & ~EPOLLIN else 0)


def _mask(events: int) -> int:
    return (EPOLLIN if events & EVENT_READ else 0) | (EPOLLOUT if events & EVENT_WRITE else 0)


class MeasuredLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop over a `MeasuredSelector`.

    Args:
        now_ns: A clock in nanoseconds, wall or CPU time.
    """

    def __init__(self, now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        self.turns = LoopTurns(now_ns)
        super().__init__(MeasuredSelector(self.turns))


def turns_of(loop: object) -> LoopTurns:
    """The measured turns of a loop; for a loop that measures none, turns that stay empty."""
    return loop.turns if isinstance(loop, MeasuredLoop) else LoopTurns()
