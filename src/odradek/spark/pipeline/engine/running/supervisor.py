"""Supervises the queries of a run: starts them, reports batches, restarts failed ones.

A query is in one of these states::

    running ── ends ────────────────────────────────▶ finished
       │  ▲
       │  └── after the wait ── waiting ◀─┐
       └── fails ─────────────────────────┴─ for good ────────▶ failed
       └── the run ends, its batch is done ─▶ stopped

A query fails for good if it failed too often, if no other attempt can end better (`is_final` of its
failure), or if the run is one that ends by itself: then the caller decides whether to run it again.

The run ends when all queries are finished, when one has failed, or when `stop` is called. Then
every query that still runs is stopped once its current batch is done. A second call stops them
immediately: rows that a batch had written are then written again by the next run.

The supervisor calls a query in this order: `new_batches` before `is_active`, so that the last
batches are reported; then `failure`; and nothing after `stop`.
"""

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from odradek.clock import Clock
from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure, failure_of_start
from odradek.spark.pipeline.engine.running.restarts import Restarts
from odradek.spark.pipeline.graph.model import Restart

__all__ = ["Observer", "QueryState", "RunningQuery", "Supervisor"]

POLL_SECONDS: Final = 0.2
# While a run ends: short, so that a query is stopped before its next batch begins.
ENDING_POLL_SECONDS: Final = 0.02
START_MS: Final = 30_000  # How long the next query waits for a slow start of the one before.


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
        """Batches that are done and were not returned before."""
        ...

    def is_active(self) -> bool:
        """Whether it has neither ended nor failed."""
        ...

    def is_starting(self) -> bool:
        """Whether its sources are still being initialised."""
        ...

    def failure(self) -> Failure | None:
        """Why it is not active; None if it finished."""
        ...

    def is_in_batch(self) -> bool:
        """Whether it works on a batch."""
        ...

    def stop(self) -> None:
        """Ends it immediately."""
        ...


class Observer(Protocol):
    """Receives the events of a run."""

    def on_batch(self, row: BatchRow) -> None:
        """A batch is done."""
        ...

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        """A query failed; it starts again after the wait, or not at all."""
        ...

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        """Called regularly, for a display to refresh."""
        ...


class _Supervised:
    """One query and its state."""

    def __init__(self, start: Callable[[], RunningQuery], policy: Restart) -> None:
        self.start = start
        self.restarts = Restarts(policy)
        self.state = QueryState.WAITING
        self.query: RunningQuery | None = None
        self.due_ms = 0
        # Batches reported since the run began to end.
        self.ended_batches = 0


class Supervisor:
    """Runs queries until they are done, one fails for good, or `stop` is called.

    Args:
        starts: The functions that start the queries, by sink.
        policy: How often, and after which delay, a failed query is restarted.
        observer: Receives the events.
        clock: The clock.
        wait: Waits for at most so many seconds; `stop` ends the wait.
        is_lost: Whether another run has taken the lock: two runs would write everything twice, so
            the queries are stopped immediately.
        is_once: Whether no failed query is restarted, but for one that Spark could not start.
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
        is_once: bool = False,
    ) -> None:
        self._queries = {sink: _Supervised(start, policy) for sink, start in starts.items()}
        self._observer = observer
        self._clock = clock
        self._wake = threading.Event()
        self._wait = wait or self._wake.wait
        self._is_lost = is_lost
        self._is_once = is_once
        self._asked = 0
        self._is_ending = False

    def stop(self) -> None:
        """Ends the run; a second call ends it at once. May be called by a signal handler."""
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
            PipelineError: The first start of a query fails.
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
        """Waits for the start of a query, so that queries start one after the other.

        Each starts Python processes, and Spark gives up one that does not answer within seconds,
        as on a machine that starts many at once.
        """
        deadline_ms = self._clock.monotonic_ms() + START_MS
        while query.is_starting() and not self._asked:
            if self._clock.monotonic_ms() >= deadline_ms:
                return
            self._wait(POLL_SECONDS)

    def _step(self) -> bool:
        """Checks every query once; returns whether the run is over."""
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
                self._fail(sink, one, failure_of_start(error))
            else:
                one.state = QueryState.RUNNING

    def _may_start(self, one: _Supervised) -> bool:
        is_ending = self._asked or self._is_ending
        return not is_ending and self._clock.monotonic_ms() >= one.due_ms

    def _fail(self, sink: str, one: _Supervised, failure: Failure) -> None:
        now_ms = self._clock.monotonic_ms()
        is_final = failure.is_final or (self._is_once and not failure.is_of_start)
        wait_ms = None if is_final else one.restarts.next_wait_ms(now_ms)
        if wait_ms is None:
            one.state = QueryState.FAILED
        else:
            one.state, one.due_ms = QueryState.WAITING, now_ms + wait_ms
        self._observer.on_failure(sink, failure, wait_ms)

    def _end(self) -> None:
        """Stops queries that are between batches; the first call only notes their batches."""
        for one in self._queries.values():
            if one.state is QueryState.WAITING:
                one.state = QueryState.STOPPED
            elif one.state is QueryState.RUNNING and one.query is not None:
                if not self._is_ending:
                    one.ended_batches = 0
                is_done = one.ended_batches > 0 or not one.query.is_in_batch()
                if is_done or self._asked > 1:
                    one.query.stop()
                    # All batches were reported, except for one that ended just now.
                    for row in one.query.new_batches():
                        self._observer.on_batch(row)
                    one.state = QueryState.STOPPED
        self._is_ending = True

    def _stop_all(self) -> None:
        """Stops all queries when the run ends by an exception."""
        for one in self._queries.values():
            if one.state is QueryState.RUNNING and one.query is not None:
                one.query.stop()
                one.state = QueryState.STOPPED
