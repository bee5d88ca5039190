"""Keeps the queries of a run going: starts them, tells of batches, starts failed ones again.

A query is in one of these states::

    running ── ends ────────────────────────────────▶ finished
       │  ▲
       │  └── after the wait ── waiting ◀─┐
       └── fails ─────────────────────────┴─ once too often ──▶ failed
       └── the run ends, its batch is done ─▶ stopped

The run ends when all queries are finished; when one is failed; or when somebody asks for it. Then
every query that still runs is stopped once the batch it is in is done. Asked a second time, they
are stopped as they are: what a batch had written then is written again by the next run.

Duties towards a query, in order: ask for new batches before asking whether it is still there, so
that its last ones are told; ask why it failed; never ask anything of a query that was stopped.
"""

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from odradek.clock import Clock
from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.restarts import Restarts
from odradek.spark.pipeline.graph.model import Restart

__all__ = ["Observer", "QueryState", "RunningQuery", "Supervisor"]

POLL_SECONDS: Final = 0.2
# While a run ends: the next batch begins soon, and is better not begun than cut short.
ENDING_POLL_SECONDS: Final = 0.02
START_MS: Final = 30_000  # As long as the next query waits for one that takes its time.


class QueryState(StrEnum):
    """See the module's docstring."""

    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class RunningQuery(Protocol):
    """A query that was started."""

    def new_batches(self) -> list[BatchRow]:
        """Batches that are done and were not told before."""
        ...

    def is_active(self) -> bool:
        """Whether it has neither ended nor failed."""
        ...

    def is_starting(self) -> bool:
        """Whether its sources are not there yet."""
        ...

    def failure(self) -> Failure | None:
        """Why it is not active; None if it has nothing more to do."""
        ...

    def is_in_batch(self) -> bool:
        """Whether it works on a batch."""
        ...

    def stop(self) -> None:
        """Ends it as it is."""
        ...


class Observer(Protocol):
    """Is told what happens."""

    def on_batch(self, row: BatchRow) -> None:
        """A batch is done."""
        ...

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        """A query failed; it starts again after the wait, or not at all."""
        ...

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        """Time has passed; a good moment to show something."""
        ...


class _Supervised:
    """One query and what is known of it."""

    def __init__(self, start: Callable[[], RunningQuery], policy: Restart) -> None:
        self.start = start
        self.restarts = Restarts(policy)
        self.state = QueryState.WAITING
        self.query: RunningQuery | None = None
        self.due_ms = 0
        # Batches told since the run began to end.
        self.ended_batches = 0


class Supervisor:
    """Runs queries until they are done, one fails for good, or `stop` is called.

    Args:
        starts: how each query is started, by sink.
        policy: how often, and after how long, a failed one starts again.
        observer: is told.
        clock: tells the time.
        wait: waits for at most so many seconds, or less if something is asked for.
        is_lost: whether another run has taken over: two that write would write everything twice,
            so the queries are stopped as they are.
    """

    def __init__(
        self,
        starts: Mapping[str, Callable[[], RunningQuery]],
        policy: Restart,
        observer: Observer,
        *,
        clock: Clock,
        wait: Callable[[float], object] | None = None,
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queries = {sink: _Supervised(start, policy) for sink, start in starts.items()}
        self._observer = observer
        self._clock = clock
        self._wake = threading.Event()
        self._wait = wait or self._wake.wait
        self._is_lost = is_lost
        self._asked = 0
        self._is_ending = False

    def stop(self) -> None:
        """Asks the run to end; asked twice, at once. May be called by a signal handler."""
        self._asked += 1
        self._wake.set()

    def states(self) -> dict[str, QueryState]:
        """The state of every query."""
        return {sink: one.state for sink, one in self._queries.items()}

    def run(self) -> bool:
        """Runs until the end.

        Returns:
            Whether no query failed for good.

        Raises:
            PipelineError: A query cannot be started in the first place.
        """
        try:
            for one in self._queries.values():
                if not self._asked:
                    one.query = one.start()
                    one.state = QueryState.RUNNING
                    self._wait_for_start(one.query)
            while not self._step():
                self._wait(ENDING_POLL_SECONDS if self._is_ending else POLL_SECONDS)
                self._wake.clear()
        finally:
            self._stop_all()
        return QueryState.FAILED not in self.states().values()

    def _wait_for_start(self, query: RunningQuery) -> None:
        """Starts one after the other: each begins with a Python process or more, and Spark gives
        up one that does not answer within seconds, as on a machine that starts many at once.
        """
        deadline_ms = self._clock.monotonic_ms() + START_MS
        while query.is_starting() and not self._asked:
            if self._clock.monotonic_ms() >= deadline_ms:
                return
            self._wait(POLL_SECONDS)

    def _step(self) -> bool:
        """Looks once at every query; returns whether the run is over."""
        if self._is_lost():
            self._asked = 2
        for sink, one in self._queries.items():
            self._look_at(sink, one)
        if self._asked or QueryState.FAILED in self.states().values():
            self._end()
        self._observer.on_poll(self.states())
        return not any(
            state in (QueryState.RUNNING, QueryState.WAITING) for state in self.states().values()
        )

    def _look_at(self, sink: str, one: _Supervised) -> None:
        if one.state is QueryState.RUNNING and one.query is not None:
            is_active = one.query.is_active()
            batches = one.query.new_batches()
            one.ended_batches += len(batches)
            for row in batches:
                self._observer.on_batch(row)
            if is_active:
                return
            failure = one.query.failure()
            if failure is None:
                one.state = QueryState.FINISHED
            else:
                self._fail(sink, one, failure)
        elif one.state is QueryState.WAITING and self._may_start(one):
            try:
                one.query = one.start()
            except PipelineError as error:
                self._fail(sink, one, Failure(type(error).__name__, str(error)))
            else:
                one.state = QueryState.RUNNING

    def _may_start(self, one: _Supervised) -> bool:
        is_ending = self._asked or self._is_ending
        return not is_ending and self._clock.monotonic_ms() >= one.due_ms

    def _fail(self, sink: str, one: _Supervised, failure: Failure) -> None:
        now_ms = self._clock.monotonic_ms()
        wait_ms = one.restarts.next_wait_ms(now_ms)
        if wait_ms is None:
            one.state = QueryState.FAILED
        else:
            one.state, one.due_ms = QueryState.WAITING, now_ms + wait_ms
        self._observer.on_failure(sink, failure, wait_ms)

    def _end(self) -> None:
        """Stops what may be stopped; the first call only notes which batch each query is in."""
        for one in self._queries.values():
            if one.state is QueryState.WAITING:
                one.state = QueryState.STOPPED
            elif one.state is QueryState.RUNNING and one.query is not None:
                if not self._is_ending:
                    one.ended_batches = 0
                is_done = one.ended_batches > 0 or not one.query.is_in_batch()
                if is_done or self._asked > 1:
                    one.query.stop()
                    # What it did until then has been told, but for a batch done just now.
                    for row in one.query.new_batches():
                        self._observer.on_batch(row)
                    one.state = QueryState.STOPPED
        self._is_ending = True

    def _stop_all(self) -> None:
        """Leaves nothing behind when the run ends by an exception."""
        for one in self._queries.values():
            if one.state is QueryState.RUNNING and one.query is not None:
                one.query.stop()
                one.state = QueryState.STOPPED
