"""Services that all logs of a process share, and the execution of their blocking work.

`LogServices` is passed in from outside. `BackgroundTasks` runs work that may block off the event
loop, and calls postponed actions.

A change of which some parts block is written as `Steps`: a generator that changes state on the
thread that owns the logs, and yields every part that blocks. The driver runs the yielded work on a
thread of its choice, and resumes the generator once it has ended; an error of the work is raised at
the `yield`. Between two steps anything may happen to the logs, so a change checks again what it
assumed. `run_here` takes all steps on one thread, `run_beside` those of many changes at once while
the loop runs.
"""

import heapq
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from random import Random
from typing import Final, Protocol, TypeAlias, TypeVar

from odradek.clock import Clock
from odradek.files import Disk
from odradek.lazy_dataclass import dataclass
from odradek.storage.log.expansion import InlineBudget
from odradek.storage.producers.verifications import VerificationSwitch
from odradek.tasks import Threads

__all__ = ["BackgroundTasks", "InlineTasks", "LogServices", "Steps", "run_beside", "run_here"]

_T = TypeVar("_T")

# A change; it yields work that may block and touches no log.
Steps: TypeAlias = Generator[Callable[[], object], None, _T]

# So many changes may end without blocking before others on the loop get their turn: each takes
# some 10 us there.
_CHANGES_PER_TURN: Final = 50


class BackgroundTasks(Protocol):
    """Runs a log's blocking and postponed work.

    Duties: `done` and `action` run on the thread that owns the logs, never while a log method runs.
    """

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        """Runs `work`, which may block and touches no log, then calls `done` with its error."""
        ...

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Runs `action` after a delay."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """The services that all logs of a process share."""

    disk: Disk
    clock: Clock
    random: Random
    tasks: BackgroundTasks
    # Makes the pools that logs are loaded and closed on.
    threads: Threads = ThreadPoolExecutor
    producer_id_expiration_ms: int = 86_400_000
    # Whether a transaction's first batch in a partition needs its coordinator's confirmation.
    verification_switch: VerificationSwitch = field(default_factory=VerificationSwitch)
    # Called with the duration of each flush in ms; on closing a log possibly on another thread.
    on_flushed: Callable[[float], None] | None = None
    # Called for each damaged place that is found in a log, possibly on another thread.
    on_damage: Callable[[], None] | None = None
    # Of the request that is being appended, to any number of logs.
    inline_budget: InlineBudget = field(default_factory=InlineBudget)


class InlineTasks:
    """Runs work at once on the calling thread; postponed actions wait for `run_due`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sequence = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []

    def submit(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            work()
        except OSError as error:
            done(error)
        else:
            done(None)

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> None:
        due = self._clock.monotonic_ms() + delay_ms
        heapq.heappush(self._waiting, (due, self._sequence, action))
        self._sequence += 1

    def run_due(self) -> int:
        """Runs the actions that are due; returns how many."""
        now = self._clock.monotonic_ms()
        count = 0
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappop(self._waiting)[2]()
            count += 1
        return count


def run_here(steps: Steps[_T]) -> _T:
    """Takes all steps on the calling thread; returns their result."""
    try:
        work = next(steps)
        while True:
            try:
                work()
            except OSError as error:
                work = steps.throw(error)
            else:
                work = next(steps)
    except StopIteration as end:
        result: _T = end.value
        return result


def run_beside(
    tasks: BackgroundTasks,
    changes: Iterable[Steps[None]],
    done: Callable[[Exception | None], None],
    *,
    at_once: int,
) -> None:
    """Takes the steps of many changes, some of them at the same time.

    Args:
        tasks: Runs the work.
        changes: In the order in which they begin; one may end before another that began earlier.
        done: Called once, when all have ended, with the first error that a change did not handle.
        at_once: How many changes may run at the same time. Other work waits for a thread behind
            this many at most.
    """
    _Crew(tasks, changes, done, at_once).go_on()


class _Crew:
    """Running and waiting changes."""

    __slots__ = (
        "_at_once",
        "_changes",
        "_done",
        "_error",
        "_is_busy",
        "_is_wanted",
        "_tasks",
        "_under_way",
    )

    def __init__(
        self,
        tasks: BackgroundTasks,
        changes: Iterable[Steps[None]],
        done: Callable[[Exception | None], None],
        at_once: int,
    ) -> None:
        self._tasks = tasks
        self._changes = iter(changes)
        self._done = done
        self._at_once = at_once
        self._under_way = 0
        self._error: Exception | None = None
        # Whether `go_on` runs, and whether it was called meanwhile: if tasks run their work at
        # once, the stack must not grow with the number of changes.
        self._is_busy = False
        self._is_wanted = False

    def go_on(self) -> None:
        """Begins as many changes as there is room for."""
        self._is_wanted = True
        if self._is_busy:
            return
        self._is_busy = True
        is_over = False
        while self._is_wanted:
            self._is_wanted = False
            is_over = self._begin_some()
        self._is_busy = False
        if is_over:
            self._done(self._error)

    def _begin_some(self) -> bool:
        """Begins changes; returns whether all have ended."""
        for _ in range(_CHANGES_PER_TURN):
            if self._under_way >= self._at_once:
                return False
            change = next(self._changes, None)
            if change is None:
                return not self._under_way
            self._under_way += 1
            self._step(change, None)
        if not self._under_way:
            self._tasks.submit(_nothing, lambda _error: self.go_on())
        return False

    def _step(self, change: Steps[None], error: BaseException | None) -> None:
        try:
            work = next(change) if error is None else change.throw(error)
        except StopIteration:
            self._end(None)
        except Exception as failure:  # noqa: BLE001 - passed to `done`
            self._end(failure)
        else:
            self._tasks.submit(_without_result(work), lambda error: self._step(change, error))

    def _end(self, failure: Exception | None) -> None:
        self._error = self._error or failure
        self._under_way -= 1
        if not self._is_busy:
            self.go_on()


def _nothing() -> None:
    """Does nothing, on a thread, so that the loop has a turn."""


def _without_result(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        work()

    return run
