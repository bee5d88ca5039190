"""What a query of Spark is seen to have done."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.spark.pipeline.engine.avro.run_schemas import AvroSchemas
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.queries import StartedQuery, _writer
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from odradek.spark.pipeline.graph.model import ConsoleTarget
from tests.support.pipelines import pipeline, sink, topic_source


def report(batch: int, lost: dict[str, int] | None, *, is_batch: bool = True) -> Any:
    """Spark's report; `lost` is what the source had lost by then, None if it does not tell."""
    latest = None if lost is None else {"v": 1, "topics": {}, "split": {}, "lost": lost}
    told = {"batchId": batch, "timestamp": f"{batch}", "sources": [{"latestOffset": latest}]}
    durations = {"addBatch": 1} if is_batch else {}
    return SimpleNamespace(
        batchId=batch, timestamp=f"{batch}", json=json.dumps(told), durationMs=durations
    )


class FakeQuery:
    """Has reported so far."""

    def __init__(self) -> None:
        self.recentProgress: list[Any] = []

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None


def test_what_was_lost_is_told_once() -> None:
    """12:SP-37, 12:SP-16: a source tells what it lost in all, a batch what came since the last."""
    query = FakeQuery()
    given: Any = query
    started = StartedQuery("lake", given)
    query.recentProgress = [
        report(0, None),
        report(1, {"gaps": 1, "offsets": 5}),
        report(2, None),
        report(3, {"gaps": 2, "offsets": 5}, is_batch=False),
    ]
    told = [(row.batch, row.lost_gaps, row.lost_offsets) for row in started.new_batches()]
    assert told == [(0, 0, 0), (1, 1, 5), (2, 0, 0)]
    query.recentProgress.append(report(4, {"gaps": 3, "offsets": 9}))
    assert [(row.lost_gaps, row.lost_offsets) for row in started.new_batches()] == [(2, 4)]


def test_a_console_behind_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """12:SP-14: it would print on the server, where nobody looks."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # As Spark tells it.
    tested = pipeline(
        topic_source("raw"), sinks=[sink("seen", "raw", ConsoleTarget(20))], dead_letters=None
    )
    (plan,) = plan_queries(tested, sinks=None, is_once=True)
    build: Any = SimpleNamespace(frame=lambda name: SimpleNamespace(isStreaming=True))
    with pytest.raises(PipelineError, match="'seen' would print on the Spark Connect server"):
        _writer(tested, plan, build, AvroSchemas(None))
