"""The metrics of a run, and the page that serves them."""

import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from odradek.metrics import CONTENT_TYPE
from odradek.spark.pipeline.engine.display.batch_progress import (
    BatchRow,
    RuleCount,
    SourceLag,
    with_sources,
)
from odradek.spark.pipeline.engine.display.metrics_server import MetricsServer
from odradek.spark.pipeline.engine.display.run_metrics import RunMetrics
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.graph.model import TopicInput


def row(sink: str, lag: int | None = 7) -> BatchRow:
    lags = (SourceLag(("a", "b"), lag, "raw"),)
    return BatchRow(sink, 0, "t", 10, 1.0, 1.0, 1500, 8, 4, lags, (RuleCount("raw", 'a"b', 2),))


def test_every_metric_with_its_labels() -> None:
    """12:SP-63, 12:SP-12, 12:SP-16."""
    metrics = RunMetrics("orders", "dlq")
    metrics.on_batch(replace(row("totals"), lost_gaps=1, lost_offsets=500))
    metrics.on_batch(row("totals", None))
    metrics.on_batch(row("dlq"))
    metrics.on_failure("totals", Failure("X", "y"), 1_000)
    metrics.on_failure("totals", Failure("X", "y"), None)
    page = metrics.render()
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    totals = 'pipeline="orders",sink="totals"'
    dlq = 'pipeline="orders",sink="dlq"'
    assert lines == [
        f"odradek_pipeline_batches_total{{{dlq}}} 1",
        f"odradek_pipeline_batches_total{{{totals}}} 2",
        f"odradek_pipeline_input_rows_total{{{dlq}}} 10",
        f"odradek_pipeline_input_rows_total{{{totals}}} 20",
        f"odradek_pipeline_sink_rows_total{{{dlq}}} 8",
        f"odradek_pipeline_sink_rows_total{{{totals}}} 16",
        f"odradek_pipeline_dead_letters_total{{{dlq}}} 8",
        f'odradek_pipeline_expect_failed_total{{{dlq},source="raw",rule="a\\"b"}} 2',
        f'odradek_pipeline_expect_failed_total{{{totals},source="raw",rule="a\\"b"}} 4',
        f"odradek_pipeline_lost_gaps_total{{{dlq}}} 0",
        f"odradek_pipeline_lost_gaps_total{{{totals}}} 1",
        f"odradek_pipeline_lost_offsets_total{{{dlq}}} 0",
        f"odradek_pipeline_lost_offsets_total{{{totals}}} 500",
        f"odradek_pipeline_restarts_total{{{totals}}} 1",
        f'odradek_pipeline_lag_records{{{dlq},source="raw"}} 7',
        f'odradek_pipeline_lag_records{{{totals},source="raw"}} 7',
        f"odradek_pipeline_batch_seconds{{{dlq}}} 1.5",
        f"odradek_pipeline_batch_seconds{{{totals}}} 1.5",
        f"odradek_pipeline_state_rows{{{dlq}}} 4",
        f"odradek_pipeline_state_rows{{{totals}}} 4",
    ]
    assert "# TYPE odradek_pipeline_batches_total counter\n" in page
    assert "# TYPE odradek_pipeline_lag_records gauge\n" in page


def test_topics_that_a_pattern_finds_leave_no_series_behind() -> None:
    """12:SP-63: the label is the source's name, whatever it reads."""
    metrics = RunMetrics("orders", "dlq")
    inputs = {"all": TopicInput(pattern="orders.*"), "users": TopicInput(topics=("users",))}
    for topics in (("orders",), ("orders", "orders-eu")):
        lags = (SourceLag(topics, len(topics)), SourceLag(("users",), 9))
        told = BatchRow("totals", 0, "t", 0, 0.0, 0.0, 0, 0, 0, lags, ())
        metrics.on_batch(with_sources(told, inputs))
    lines = [line for line in metrics.render().splitlines() if "lag_records{" in line]
    assert lines == [
        'odradek_pipeline_lag_records{pipeline="orders",sink="totals",source="all"} 2',
        'odradek_pipeline_lag_records{pipeline="orders",sink="totals",source="users"} 9',
    ]


def test_large_counts_are_whole_numbers() -> None:
    metrics = RunMetrics("orders", "dlq")
    for _ in range(3):
        metrics.on_batch(BatchRow("s", 0, "t", 123_456_789, 1.0, 1.0, 1, 0, 0, (), ()))
    assert (
        'odradek_pipeline_input_rows_total{pipeline="orders",sink="s"} 370370367\n'
        in metrics.render()
    )


def test_the_page_is_served() -> None:
    """12:SP-63: `--metrics PORT`."""
    metrics = RunMetrics("orders", "dlq")
    metrics.on_batch(row("totals"))
    with MetricsServer(0, metrics.render) as server:
        base = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=60) as reply:
            assert reply.headers["Content-Type"] == CONTENT_TYPE
            assert reply.read().decode() == metrics.render()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{base}/nosuch", timeout=60)
        refused.value.close()
        with pytest.raises(PipelineError, match="metrics cannot be served on port"):
            MetricsServer(server.port, metrics.render)
