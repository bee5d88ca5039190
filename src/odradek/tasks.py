"""Concurrent work: tasks that have an owner, and threads for work that blocks.

Components use `Tasks` and `Threads` instead of those of the standard library. So the owner ends the
tasks that its components started, and a simulation runs them in virtual time without threads. A
component that owns its tasks itself, and cannot use an `asyncio.TaskGroup`, has a `TaskSet`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

__all__ = ["OwnedTasks", "Sleep", "TaskSet", "Tasks", "Threads"]

_T = TypeVar("_T")

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


class TaskSet:
    """The tasks of one component, which cancels those that still run when it stops.

    It is for components that are started, used and stopped by different tasks, as those of a client
    are, and for asynchronous generators: an `asyncio.TaskGroup` must be left by the task that
    entered it, and when one of its tasks fails it cancels that one. The result or the failure of a
    task here belongs to the caller of `start`.
    """

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, _T], /) -> asyncio.Task[_T]:
        """Runs a coroutine as a task on the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def wait(self, timeout_s: float) -> None:
        """Waits until all tasks have ended, or the time is over."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)

    async def stop(self) -> None:
        """Cancels the tasks that still run, and waits for their end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
