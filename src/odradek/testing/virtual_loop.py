"""An event loop with virtual time, which jumps to the next callback that is due.

One priority queue holds all callbacks, as (time, sequence, handle). Running means: take the first,
move the time to it, run it. Nothing sleeps, no real socket is read, no thread runs: a minute of
timeouts takes as long as its callbacks, and the same calls give the same order.

============================  ===================================================================
of asyncio                    here
============================  ===================================================================
`call_soon`, futures, tasks   as in asyncio: in the order of the calls
`call_later`, `call_at`       at their time; of two at the same time, the one requested first
`run_in_executor`             one step of this loop, after a delay that the seed draws: the work is
                              not interrupted, and other steps run before and after it
`add_reader`, `add_writer`    for `Descriptor`s added with `add_descriptor`; they are called again
                              as long as it is ready, like those of the kernel
sockets, pipes, signals       none
============================  ===================================================================

**Processes.** Callbacks and tasks belong to the `Process` in whose context they were made, so that
several programs share one loop as several processes share a machine. `kill` ends one of them
between two steps, or within one: nothing of it runs any more, neither its callbacks nor the
`finally` blocks of its tasks. The loop keeps the objects of a killed process until it is collected
itself, since collecting them would run those blocks; a simulation therefore ends with `os._exit`.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, TypeVarTuple

__all__ = [
    "Descriptor",
    "Process",
    "ProcessKilled",
    "SimExecutor",
    "VirtualClock",
    "VirtualLoop",
]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

# The time of the first step, in seconds. Not 0, so that code for which 0 means "never" fails.
_START_S: Final = 1_000.0
# The wall clock at that time.
_EPOCH_MS: Final = 1_600_000_000_000
# Duration of a step: a program that polls without waiting still makes time pass.
_STEP_S: Final = 1e-6


class Descriptor(Protocol):
    """An object that a loop can watch for readiness."""

    def is_readable(self) -> bool: ...

    def is_writable(self) -> bool: ...


class ProcessKilled(BaseException):
    """Ends the step in which its process was killed. No `Exception`: no handler catches it."""


class Process:
    """A program that shares the loop with others.

    Attributes:
        is_alive: Whether it runs; `VirtualLoop.kill` ends it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True

    def __repr__(self) -> str:
        return f"<process {self.name}>"


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class _Step(asyncio.TimerHandle):
    """A callback with its time, and the process it belongs to."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "VirtualLoop",
        context: contextvars.Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.process = _PROCESS.get() if context is None else context.get(_PROCESS)


class _Watcher:
    """A callback for a descriptor that is ready."""

    __slots__ = ("args", "callback", "context", "is_called", "process")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.context = contextvars.copy_context()
        self.process = _PROCESS.get()
        self.is_called = False  # Whether a call of it is in the queue.


if TYPE_CHECKING:
    # A type checker sees a complete loop; at runtime a method that is missing raises
    # NotImplementedError.
    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = asyncio.AbstractEventLoop


class VirtualLoop(_Loop):
    """See the module's docstring.

    Args:
        random: Draws the delay of work for `run_in_executor`.
        longest_work_s: Upper bound of that delay.

    Attributes:
        on_step: Called after each step of any process.
        on_failure: Called with the context that asyncio passes to an exception handler.
        endings: Errors that end a step without being a failure.
        step_count: Number of steps run so far.
        last_process: The process of the last step.
    """

    def __init__(self, random: Random, longest_work_s: float = 0.004) -> None:
        self._random = random
        self._longest_work_s = longest_work_s
        self._now_s = _START_S
        self._sequence = itertools.count()
        self._queue: list[tuple[float, int, _Step]] = []
        self._readers: dict[int, _Watcher] = {}
        self._writers: dict[int, _Watcher] = {}
        self._descriptors: dict[int, Descriptor] = {}
        self._numbers = itertools.count(1 << 20)  # Descriptors unlike the kernel's.
        self._task_numbers = itertools.count(1)
        self._tasks: dict[asyncio.Task[Any], Process | None] = {}
        self._kept: list[object] = []  # Of processes that were killed.
        self._is_running = False
        self._is_stopping = False
        self._is_closed = False
        self.on_step: Callable[[], None] | None = None
        self.on_failure: Callable[[dict[str, Any]], object] | None = None
        self.endings: tuple[type[BaseException], ...] = (ProcessKilled,)
        self.step_count = 0
        self.last_process: Process | None = None

    # Running

    def time(self) -> float:
        return self._now_s

    def run_forever(self) -> None:
        """Runs until `stop`, or until the queue is empty."""
        if self._is_running:
            raise RuntimeError("this loop is running")
        self._is_running = True
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while not self._is_stopping and self._run_one():
                pass
        finally:
            self._is_running = False
            self._is_stopping = False
            asyncio._set_running_loop(before)

    def run_until_complete(self, future: Any) -> Any:
        """Runs until the future is done.

        Raises:
            RuntimeError: The queue is empty and the future is not done: it would wait for ever.
        """
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_with)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_with)
        if not task.done():
            raise RuntimeError(f"no callback is left, and {task!r} still waits")
        return task.result()

    def _stop_with(self, _done: "asyncio.Future[Any]") -> None:
        self.stop()

    def _run_one(self) -> bool:
        """Runs the next step; returns False if there was none."""
        while self._queue:
            when_s, _, step = heapq.heappop(self._queue)
            if step.cancelled():
                continue
            process = step.process
            if process is not None and not process.is_alive:
                self._kept.append(step)
                continue
            self._now_s = max(self._now_s, when_s) + _STEP_S
            self.step_count += 1
            self.last_process = process
            step._run()
            if self.on_step is not None:
                self.on_step()
            return True
        return False

    def stop(self) -> None:
        self._is_stopping = True

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: generators that are left end with the loop."""

    async def shutdown_default_executor(self) -> None:
        """Does nothing: the loop has no executor."""

    # Processes

    def run_in(self, process: Process, work: Callable[..., _T], *args: Any) -> _T:
        """Calls a function as a process: tasks and callbacks it starts belong to that process."""
        context = contextvars.copy_context()
        context.run(_PROCESS.set, process)
        return context.run(work, *args)

    def kill(self, process: Process) -> None:
        """Ends a process at once; if it is the one that runs, its step ends as well.

        Raises:
            ProcessKilled: It is the one that runs.
        """
        process.is_alive = False
        for table in (self._readers, self._writers):
            for fd in [fd for fd, watcher in table.items() if watcher.process is process]:
                self._kept.append(table.pop(fd))
        if _PROCESS.get() is process:
            raise ProcessKilled(process.name)

    @property
    def running_process(self) -> Process | None:
        """The process whose step runs."""
        return _PROCESS.get()

    # Steps

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> _Step:
        return self._push(self._now_s, callback, args, context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> _Step:
        return self._push(self._now_s, callback, args, context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> _Step:
        return self._push(self._now_s + max(delay, 0.0), callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> _Step:
        return self._push(max(when, self._now_s), callback, args, context)

    def _push(
        self,
        when_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> _Step:
        step = _Step(when_s, callback, args, self, context)
        heapq.heappush(self._queue, (when_s, next(self._sequence), step))
        return step

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by a handle that is cancelled; `_run_one` skips it at its time."""

    # Futures and tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, _T] | Generator[Any, None, _T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> "asyncio.Task[_T]":
        if name is None:
            # Not asyncio's default names, which number the tasks of all loops of the process.
            kind = getattr(coro, "__qualname__", type(coro).__name__)
            name = f"{kind}-{next(self._task_numbers)}"
        task: asyncio.Task[_T]
        if context is None:
            task = asyncio.Task(coro, loop=self, name=str(name))
        else:
            task = asyncio.Task(coro, loop=self, name=str(name), context=context)
        self._tasks[task] = _PROCESS.get() if context is None else context.get(_PROCESS)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    # Threads

    def run_in_executor(  # type: ignore[override]  # a future of ours, as that of asyncio's loops
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> "asyncio.Future[_T]":
        done: asyncio.Future[_T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to the caller
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self.call_later(self._random.random() * self._longest_work_s, work)
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Raises `OSError`: a simulated network resolves its hosts itself."""
        raise OSError(f"{host}:{port}: a virtual loop resolves no names; use a SimNetwork")

    # Descriptors

    def add_descriptor(self, descriptor: Descriptor) -> int:
        """Adds an object that can be watched; returns its number."""
        fd = next(self._numbers)
        self._descriptors[fd] = descriptor
        return fd

    def remove_descriptor(self, fd: int) -> None:
        """Removes a descriptor and its watchers."""
        self._descriptors.pop(fd, None)
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)

    def add_reader(self, fd: Any, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        self._readers[fd] = _Watcher(callback, args)
        self.poke(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[[*_Ts], object], *args: *_Ts) -> None:
        self._writers[fd] = _Watcher(callback, args)
        self.poke(fd)

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    def poke(self, fd: int) -> None:
        """Schedules the watchers of a descriptor that may have become ready."""
        for table, is_read in ((self._readers, True), (self._writers, False)):
            watcher = table.get(fd)
            if watcher is not None and not watcher.is_called:
                watcher.is_called = True
                self.call_soon(self._call, fd, watcher, is_read, context=watcher.context)

    def _call(self, fd: int, watcher: _Watcher, is_read: bool) -> None:
        watcher.is_called = False
        table = self._readers if is_read else self._writers
        descriptor = self._descriptors.get(fd)
        if descriptor is None or table.get(fd) is not watcher:
            return
        if not (descriptor.is_readable() if is_read else descriptor.is_writable()):
            return
        try:
            watcher.callback(*watcher.args)
        finally:
            if table.get(fd) is watcher:
                self.poke(fd)

    # Failures

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, self.endings):
            return
        if self.on_failure is not None:
            self.on_failure(context)
        elif isinstance(error, BaseException):
            raise error
        # Without an exception asyncio reports a pending task that was collected, such as one of a
        # killed process: no failure.


class VirtualClock:
    """A `PreciseClock` that reads the time of a loop."""

    __slots__ = ("_loop",)

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return _EPOCH_MS + int((self._loop.time() - _START_S) * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1_000_000_000)


class SimExecutor(Executor):
    """An executor without threads: submitted work is done before `submit` returns.

    `VirtualLoop.run_in_executor` does not use it; it does the work as a step of its own.
    """

    def submit(self, fn: Callable[..., _T], /, *args: Any, **named: Any) -> "Future[_T]":
        done: Future[_T] = Future()
        try:
            done.set_result(fn(*args, **named))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            done.set_exception(error)
        return done
