"""Queries that end, fail and are asked to end, on a clock that stands still."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure, QueryStartError
from odradek.spark.pipeline.engine.running.supervisor import QueryState, RunningQuery, Supervisor
from odradek.spark.pipeline.graph.model import Restart
from odradek.testing import ManualClock

POLICY = Restart(2, 1_000, 10_000)
BROKEN = Failure("IOException", "broken")


def batch(sink: str, number: int) -> BatchRow:
    return BatchRow(sink, number, "", 1, 0.0, 0.0, 1, 1, 0, (), ())


class Query:
    """A query whose every look is scripted: what it did since the one before."""

    def __init__(self, *script: str, sink: str = "s", broken: Failure = BROKEN) -> None:
        self.script = list(script)
        self.broken = broken
        self.sink = sink
        self.batches = 0
        self.fresh: list[BatchRow] = []
        self.state = "batch"
        self.stopped = False
        self.starting = 0  # Looks until it has started.

    def is_active(self) -> bool:
        assert not self.stopped
        if self.script:
            self.state = self.script.pop(0)
        if self.state in ("done", "end"):
            self.fresh.append(batch(self.sink, self.batches))
            self.batches += 1
        return self.state not in ("end", "fail", "gone")

    def new_batches(self) -> list[BatchRow]:
        fresh, self.fresh = self.fresh, []
        return fresh

    def is_starting(self) -> bool:
        self.starting -= 1
        return self.starting >= 0

    def failure(self) -> Failure | None:
        return self.broken if self.state == "fail" else None

    def is_in_batch(self) -> bool:
        assert not self.stopped
        return self.state != "idle"

    def stop(self) -> None:
        assert not self.stopped
        self.stopped = True


class Notes:
    """An observer that writes down."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_batch(self, row: BatchRow) -> None:
        self.told.append((row.sink, row.batch))

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        self.told.append((sink, failure.kind, wait_ms))

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        self.states = dict(states)


class Run:
    """A supervisor of scripted queries; every wait moves the clock by a second."""

    def __init__(
        self,
        at_wait: Mapping[int, str] | None = None,
        *,
        is_once: bool = False,
        **queries: list[Any],
    ) -> None:
        self.clock = ManualClock()
        self.notes = Notes()
        self.left = {sink: list(given) for sink, given in queries.items()}
        self.waits = 0
        # Of every start: how many waits of a second came before it.
        self.started_s: list[int] = []
        self.at_wait = at_wait or {}
        self.supervisor = Supervisor(
            {sink: self.starter(sink) for sink in queries},
            POLICY,
            self.notes,
            clock=self.clock,
            wait=self.wait,
            is_lost=lambda: self.at_wait.get(self.waits) == "lost",
            is_once=is_once,
        )

    def starter(self, sink: str) -> Callable[[], RunningQuery]:
        def start() -> RunningQuery:
            self.started_s.append(self.waits)
            query = self.left[sink].pop(0)
            if isinstance(query, Exception):
                raise query
            query.sink = sink
            started: RunningQuery = query
            return started

        return start

    def wait(self, seconds: float) -> None:
        self.waits += 1
        assert self.waits < 100, "the run does not end"
        self.clock.advance(1_000)
        if self.at_wait.get(self.waits) == "stop":
            self.supervisor.stop()


def test_a_run_ends_when_all_queries_have_and_every_batch_is_told() -> None:
    """12:SP-8: `once`."""
    run = Run(a=[Query("done", "end")], b=[Query("batch", "done", "done", "end")])
    assert run.supervisor.run()
    told = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    assert sorted(run.notes.told) == told
    assert run.notes.states == {"a": QueryState.FINISHED, "b": QueryState.FINISHED}


def test_a_failed_query_starts_again_after_ever_longer_waits() -> None:
    """12:SP-64: from its checkpoint, by `restart`."""
    run = Run(a=[Query("done", "fail"), Query("fail"), Query("end")])
    assert run.supervisor.run()
    assert run.notes.told == [
        ("a", 0),
        ("a", "IOException", 1_000),
        ("a", "IOException", 2_000),
        ("a", 0),
    ]
    assert run.started_s == [0, 2, 5]


def test_a_query_that_fails_too_often_ends_the_run_after_the_batches_of_the_others() -> None:
    """12:SP-64: the run fails; the others finish their batch."""
    busy = Query("batch", "batch", "batch", "batch", "batch", "batch", "done", "batch")
    idle = Query("idle")
    run = Run(a=[Query("fail"), Query("fail"), Query("fail")], busy=[busy], idle=[idle])
    assert not run.supervisor.run()
    assert ("a", "IOException", None) in run.notes.told
    assert ("busy", 0) in run.notes.told
    assert busy.stopped
    assert busy.script == ["batch"]
    assert idle.stopped
    assert run.notes.states == {
        "a": QueryState.FAILED,
        "busy": QueryState.STOPPED,
        "idle": QueryState.STOPPED,
    }


def test_a_failure_that_would_come_again_ends_the_run() -> None:
    """12:SP-64: a bad value, a missing topic, a query that Spark refuses."""
    final = Failure("CAST_INVALID_INPUT", "old", is_final=True)
    run = Run(a=[Query("done", "fail", broken=final)], idle=[Query("idle")])
    assert not run.supervisor.run()
    assert run.notes.told == [("a", 0), ("a", "CAST_INVALID_INPUT", None)]
    assert run.notes.states == {"a": QueryState.FAILED, "idle": QueryState.STOPPED}


def test_a_restart_that_is_refused_ends_the_run() -> None:
    refused = QueryStartError("a", Failure("UNRESOLVED_COLUMN", "x", is_final=True))
    run = Run(a=[Query("fail"), refused])
    assert not run.supervisor.run()
    assert run.notes.told == [("a", "IOException", 1_000), ("a", "UNRESOLVED_COLUMN", None)]


def test_a_run_that_ends_by_itself_restarts_only_what_did_not_start() -> None:
    """12:SP-61: `--once`; a Python process that is too slow says nothing about the pipeline."""
    slow = Failure("RUNNER_TIMEOUT", "it failed", is_of_start=True)
    run = Run(is_once=True, a=[Query("fail", broken=slow), Query("fail")])
    assert not run.supervisor.run()
    assert run.notes.told == [("a", "RUNNER_TIMEOUT", 1_000), ("a", "IOException", None)]


def test_asked_to_end_it_waits_for_the_batch_in_hand() -> None:
    """12:SP-61: SIGINT and SIGTERM."""
    busy = Query("batch", "batch", "batch", "done", "batch")
    run = Run({2: "stop"}, busy=[busy], idle=[Query("idle")])
    assert run.supervisor.run()
    assert run.notes.told == [("busy", 0)]
    assert busy.stopped
    assert busy.script == ["batch"]


def test_a_batch_done_before_it_was_asked_is_not_the_one_in_hand() -> None:
    """12:SP-61."""
    busy = Query("done", "batch", "batch", "done", "batch")
    run = Run({2: "stop"}, busy=[busy])
    assert run.supervisor.run()
    assert run.notes.told == [("busy", 0), ("busy", 1)]


def test_asked_twice_it_does_not_wait() -> None:
    """12:SP-61."""
    busy = Query("batch")
    run = Run({2: "stop", 4: "stop"}, busy=[busy])
    assert run.supervisor.run()
    assert run.waits == 4
    assert busy.stopped


def test_a_lost_checkpoint_stops_everything_at_once() -> None:
    """12:SP-62."""
    busy = Query("batch")
    run = Run({2: "lost"}, busy=[busy])
    assert run.supervisor.run()
    assert run.waits == 2
    assert busy.stopped


def test_asked_to_end_a_query_that_waits_for_its_restart_does_not_start() -> None:
    """12:SP-64."""
    run = Run({1: "stop"}, a=[Query("fail")])
    assert run.supervisor.run()
    assert run.notes.states == {"a": QueryState.STOPPED}


def test_a_query_that_cannot_be_started_at_first_ends_the_run_and_stops_the_others() -> None:
    """12:SP-64."""
    first = Query("batch")
    run = Run(a=[first], b=[PipelineError("no such column")])
    with pytest.raises(PipelineError, match="no such column"):
        run.supervisor.run()
    assert first.stopped


def test_one_that_cannot_be_started_again_counts_as_failed() -> None:
    """12:SP-64."""
    run = Run(a=[Query("fail"), PipelineError("gone"), Query("end")])
    assert run.supervisor.run()
    kinds = [told[1] for told in run.notes.told]
    assert kinds == ["IOException", "PipelineError", 0]


def test_queries_start_one_after_the_other() -> None:
    """12:SP-64: one that takes its time to start holds up the next, but not for ever."""
    slow, stuck, last = Query("end"), Query("end"), Query("end")
    slow.starting, stuck.starting = 3, 1_000
    run = Run(a=[slow], b=[stuck], c=[last])
    assert run.supervisor.run()
    assert run.started_s == [0, 3, 33]
