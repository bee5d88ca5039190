"""A log's background work on an event loop: blocking calls on threads, postponed ones on timers."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

__all__ = ["LoopTasks", "yield_to_requests"]

logger = logging.getLogger(__name__)

# Of threads whose work can wait: a tenth of the share of other threads on the same core.
_NICENESS: Final = 10


def yield_to_requests() -> None:
    """Lowers the priority of the calling thread, for work that computes long and is not urgent.

    Otherwise a busy loop waits for a core as long as the thread's time slice lasts, milliseconds; a
    request takes a tenth of one. Linux only, where niceness belongs to a thread.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # Where it is forbidden, requests are only slower.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


class LoopTasks:
    """`storage.BackgroundTasks` on a loop; the loop's thread owns the logs.

    Args:
        loop: Runs `done` and `action`.
        executor: Runs `work`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor
        self._pending: set[asyncio.Future[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopped = False

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Runs `work` on a thread, then calls `done` on the loop."""
        future = self._loop.run_in_executor(self._executor, work)
        self._pending.add(future)

        def finish(finished: asyncio.Future[None]) -> None:
            self._pending.discard(finished)
            error = asyncio.CancelledError() if finished.cancelled() else finished.exception()
            if error is not None and not isinstance(error, OSError):
                # `done` handles errors of the disk; any other error is unexpected.
                logger.error("background work failed: %r", error, exc_info=error)
            done(error)

        future.add_done_callback(finish)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Runs `action` on the loop after a delay; not at all once stopped."""
        if self._is_stopped:
            return
        timer: asyncio.TimerHandle

        def run() -> None:
            self._timers.discard(timer)
            try:
                action()
            except Exception:
                logger.exception("postponed work failed")

        timer = self._loop.call_later(delay_ms / 1000, run)
        self._timers.add(timer)

    async def stop(self) -> None:
        """Drops postponed calls, and waits for running work and the work it submits."""
        self._is_stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._pending:
            await asyncio.wait(set(self._pending))
