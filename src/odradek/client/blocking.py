"""The blocking face of a client: its core runs on an event loop in a thread of its own.

One thread per client, started with it and ended by `close`. A face only passes calls to the core
and waits; the core alone decides how a call works and how long it may take. A face is written as::

    class Admin(Blocking[aio.Admin]):
        create_topics = blocking(aio.Admin.create_topics)

Calls may come from several threads. One that comes from the client's own thread (from a callback)
is refused: it would wait for itself.
"""

# ruff: noqa: ASYNC109 - the public calls take their timeouts by name, as Kafka's do

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import update_wrapper
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from odradek.client.errors import ClosedError
from odradek.client.forks import ForkGuard

__all__ = ["Blocking", "Core", "LoopThread", "blocking"]

P = ParamSpec("P")
R = TypeVar("R")

# For the last steps of a loop that has nothing to wait for.
_STOP_TIMEOUT_S: Final = 10


class Core(Protocol):
    """The methods of a client of `odradek.aio` that a face calls."""

    async def start(self) -> object:
        """Begins, on the loop that runs everything else."""
        ...

    async def close(self, timeout: float | None = None) -> None:
        """Ends within the timeout, in seconds, even if no broker answers."""
        ...


C = TypeVar("C", bound=Core)


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on the thread and waits for it.

        Raises:
            RuntimeError: The caller is on that thread.
        """
        if self.is_here():
            work.close()
            raise RuntimeError(
                "a blocking call from a callback of the same client would wait for itself; "
                "make it from another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C while waiting: the result is no longer wanted.
            future.cancel()
            raise

    def is_here(self) -> bool:
        """Whether the caller is on that thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Ends the loop and waits for the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)

    def _live(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            # Closes the executor without waiting: a name look-up may hang in it.
            loop.close()


class Blocking(Generic[C]):
    """Opens, calls and closes a core; see the module's docstring. A context manager."""

    _what: ClassVar[str] = "client"

    def __init__(self, core: C) -> None:
        self._core = core
        self._fork_guard = ForkGuard(self._what)
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = LoopThread(f"odradek-{self._what}")
        try:
            self._thread.run(self._start())
        except BaseException:
            self._is_closed = True
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Ends the client within a time in seconds; a second call does nothing."""
        if self._fork_guard.is_child:
            return  # The sockets and the thread belong to the parent process.
        with self._closing:
            if self._is_closed:
                return
            try:
                self._run(self._core.close(timeout))
            finally:
                self._is_closed = True
                self._thread.stop()

    async def _start(self) -> None:
        await self._core.start()

    def _check_usable(self) -> None:
        """Checks that the client can be used.

        Raises:
            ForkedError: The client was made by a parent process.
            ClosedError: It is closed.
        """
        self._fork_guard.check()
        if self._is_closed:
            raise ClosedError(self._what)

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine of the core and waits for it."""
        if self._is_closed or self._fork_guard.is_child:
            work.close()
            self._check_usable()
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        return self._thread.run(work)


F = TypeVar("F", bound=Blocking[Any])


def blocking(
    method: Callable[Concatenate[C, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], R]:
    """The blocking twin of a method of the core, with its signature and docstring."""

    def call(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_usable()
        return self._call(_called(method, self._core, *args, **kwargs))

    update_wrapper(call, method)
    return call


async def _called(
    method: Callable[Concatenate[C, P], Awaitable[R]], core: C, *args: P.args, **kwargs: P.kwargs
) -> R:
    # The coroutine is made on the thread: a call that is refused here leaves none behind.
    return await method(core, *args, **kwargs)
