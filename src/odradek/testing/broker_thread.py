"""An event loop in a thread of its own, for brokers that ordinary tests use."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from odradek.network.loop_turns import MeasuredLoop

__all__ = ["BrokerThread"]

_T = TypeVar("_T")


class BrokerThread:
    """A loop that runs from its making to `end`.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = MeasuredLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine on the loop; returns its result, or raises its error."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Lets the loop call a function in its next turn."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def end(self) -> None:
        """Ends tasks, generators and threads of the loop, which would else warn when collected."""
        self.run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_tasks(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
