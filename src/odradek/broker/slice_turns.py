"""The order of work in slices (`odradek.broker.slices`): one slice in each turn of the loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from odradek.network.loop_turns import SLOW_HANDLER_NS, turns_of
from odradek.tasks import Tasks

__all__ = ["SliceTurns"]

_T = TypeVar("_T")


class SliceTurns:
    """Lets requests that are served in slices take turns.

    Args:
        tasks: Run the work.
    """

    __slots__ = ("_tasks", "_turn")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._turn = asyncio.Lock()  # First come, first served.

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task."""
        self._tasks.spawn(work)

    async def run(self, name: str, run_slice: Callable[[], _T]) -> _T:
        """Runs a slice when its turn has come; it is over when the loop has done other work.

        Args:
            name: The API it is for.
        """
        async with self._turn:
            turns = turns_of(asyncio.get_running_loop())
            started_ns = turns.now_ns()
            result = run_slice()
            spent_ns = turns.now_ns() - started_ns
            if spent_ns > SLOW_HANDLER_NS:
                turns.note(name, spent_ns)
            await asyncio.sleep(0)
        return result
