"""Spark's progress as the numbers a pipeline shows."""

import json
from typing import Any

import pytest

from odradek.spark.pipeline.engine.display.batch_progress import (
    SINK_METRIC,
    RuleCount,
    SourceLag,
    parse_progress,
    stage_metric,
    with_sources,
)
from odradek.spark.pipeline.graph.model import TopicInput


def offset(**topics: dict[str, int]) -> str:
    held = {name: {"id": "x", "p": positions} for name, positions in topics.items()}
    return json.dumps({"v": 1, "topics": held, "split": {"min": 0, "max": 0}})


def progress(**more: Any) -> str:
    return json.dumps({"batchId": 7, "timestamp": "2026-01-01T00:00:00.000Z"} | more)


def lost(gaps: int, offsets: int) -> dict[str, Any]:
    return {"lost": {"gaps": gaps, "offsets": offsets}}


def source(end: Any, latest: Any, rows: int | None = 10) -> dict[str, Any]:
    return {"numInputRows": rows, "startOffset": None, "endOffset": end, "latestOffset": latest}


def test_a_batch() -> None:
    """12:SP-63, 12:SP-39: rows, rates, lag per source, what rules found."""
    row = parse_progress(
        "totals",
        progress(
            inputRowsPerSecond=12.5,
            processedRowsPerSecond=99.0,
            durationMs={"triggerExecution": 250, "addBatch": 100},
            sources=[
                source(
                    offset(a={"0": 5, "1": 6}),
                    json.dumps(json.loads(offset(a={"0": 9, "1": 6})) | lost(2, 30)),
                ),
                source(json.loads(offset(b={"0": 1})), None, 3),
                source("5", "7", 2),
            ],
            stateOperators=[{"numRowsTotal": 4}, {"numRowsTotal": 3}],
            observedMetrics={
                SINK_METRIC: {"rows": 8},
                stage_metric("raw"): {"expect:positive": 2, "decode": 1, "leaving": 3},
                stage_metric("b"): {"expect:x": None},
                "of the user": {"n": 1},
            },
        ),
    )
    assert (row.sink, row.batch, row.duration_ms) == ("totals", 7, 250)
    assert (row.input_rows, row.input_rate, row.processed_rate) == (15, 12.5, 99.0)
    assert (row.sink_rows, row.state_rows) == (8, 7)
    assert row.lags == (SourceLag(("a",), 4), SourceLag(("b",), None))
    assert row.lag is None
    assert (row.lost_gaps, row.lost_offsets) == (2, 30)
    assert row.rules == (
        RuleCount("b", "x", 0),
        RuleCount("raw", "positive", 2),
        RuleCount("raw", "decode", 1),
    )
    # A source that the file does not know is shown by its topics.
    assert with_sources(row, {"left": TopicInput(topics=("a",))}).as_json() == {
        "sink": "totals",
        "batch": 7,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "input_rows": 15,
        "input_rows_per_second": 12.5,
        "processed_rows_per_second": 99.0,
        "duration_ms": 250,
        "lag": [
            {"source": "left", "topics": ["a"], "records": 4},
            {"source": "b", "topics": ["b"], "records": None},
        ],
        "sink_rows": 8,
        "state_rows": 7,
        "lost_gaps": 2,
        "lost_offsets": 30,
        "failed": [
            {"stage": "raw", "rule": "positive", "rows": 2},
            {"stage": "raw", "rule": "decode", "rows": 1},
        ],
    }


def test_lag_counts_partitions_that_came_after_the_batch_and_is_never_negative() -> None:
    """12:SP-39."""
    end, latest = offset(a={"0": 5, "1": 9}), offset(a={"0": 6, "1": 8, "2": 4})
    row = parse_progress("s", progress(sources=[source(end, latest)]))
    assert row.lag == 1


@pytest.mark.parametrize("rate", [None, "NaN", "Infinity", float("nan"), float("inf"), -1.0])
def test_a_rate_that_is_none_is_nought(rate: Any) -> None:
    """12:SP-63."""
    row = parse_progress("s", progress(inputRowsPerSecond=rate, processedRowsPerSecond=rate))
    assert (row.input_rate, row.processed_rate) == (0.0, 0.0)


def test_an_empty_report() -> None:
    row = parse_progress("s", progress())
    assert (row.input_rows, row.sink_rows, row.lag, row.lags) == (0, 0, 0, ())


def test_a_batch_as_spark_connect_tells_it() -> None:
    """12:SP-63: what was observed has its names apart, and rates are told of sources only."""
    both = {"inputRowsPerSecond": 2.5, "processedRowsPerSecond": 4.0}
    row = parse_progress(
        "totals",
        progress(
            sources=[source(None, None) | both, source(None, None) | both],
            observedMetrics={
                SINK_METRIC: {"values": [8], "schema": {"fields": [{"name": "rows"}]}},
                stage_metric("raw"): {"values": [1], "schema": {"fields": [{"name": "decode"}]}},
            },
        ),
    )
    assert (row.input_rate, row.processed_rate, row.sink_rows) == (5.0, 8.0, 8)
    assert row.rules == (RuleCount("raw", "decode", 1),)
