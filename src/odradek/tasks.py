"""Concurrent work: tasks that have an owner, and threads for work that blocks.

Components use `Tasks` and `Threads` instead of those of the standard library. So the owner ends the
tasks that its components started, and a simulation runs them in virtual time without threads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

__all__ = ["OwnedTasks", "Sleep", "Tasks", "Threads"]

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Tasks(Protocol):
    """Where a component starts tasks, and how they wait."""

    def spawn(self, work: Coroutine[Any, Any, None], /) -> object:
        """Runs a coroutine as a task that the owner of these tasks ends."""
        ...

    async def sleep(self, delay_s: float, /) -> None:
        """Waits some seconds; 0 lets the loop run."""
        ...


class Threads(Protocol):
    """Makes executors; `concurrent.futures.ThreadPoolExecutor` is a `Threads`."""

    def __call__(
        self, count: int, name: str, initializer: Callable[[], None] | None = None, /
    ) -> Executor:
        """An executor of at most `count` threads, each of which first calls `initializer`."""
        ...


class OwnedTasks:
    """`Tasks` of the running loop; leaving its ``async with`` cancels those that still run.

    As in any `asyncio.TaskGroup` a task that fails cancels the others and the owner.

    Args:
        sleep: How tasks wait.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._group: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._group = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._group is not None, "left without having been entered"
        for task in self._running:
            task.cancel()
        await self._group.__aexit__(kind, error, traceback)

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        assert self._group is not None, "entered before anything is started"
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def sleep(self, delay_s: float, /) -> None:
        await self._sleep(delay_s)
