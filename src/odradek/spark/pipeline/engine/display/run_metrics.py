"""The metrics of a run, in the text format of Prometheus.

| Metric | Labels beside `pipeline` and `sink` |
|---|---|
| odradek_pipeline_batches_total, input_rows_total, sink_rows_total, restarts_total | |
| odradek_pipeline_lost_gaps_total, lost_offsets_total | under `on_data_loss: continue` |
| odradek_pipeline_dead_letters_total | counted where they are written: `sink="dlq"` |
| odradek_pipeline_expect_failed_total | source, rule; rows that could not be decoded: `decode` |
| odradek_pipeline_lag_records | source |
| odradek_pipeline_batch_seconds, state_rows | of the last batch |

One thread reports batches, another one serves the metrics.
"""

import threading
from collections.abc import Mapping
from typing import Final

from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.supervisor import QueryState

__all__ = ["RunMetrics"]

_PREFIX: Final = "odradek_pipeline_"
_COUNTERS: Final = {
    "batches": "Batches that are done.",
    "input_rows": "Rows that were read.",
    "sink_rows": "Rows that were passed to the sink.",
    "dead_letters": "Records and rows that were written to the dead-letter topic.",
    "expect_failed": "Rows that broke a rule, or could not be decoded.",
    "lost_gaps": "How often a batch found that records to read were deleted.",
    "lost_offsets": "Offsets in these gaps, as far as they are known.",
    "restarts": "Failures after which the query was started again.",
}
_GAUGES: Final = {
    "lag_records": "Records between the last batch and the end of the topics.",
    "batch_seconds": "How long the last batch took.",
    "state_rows": "Rows in the state of aggregates, joins and dedups.",
}
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = tuple[tuple[str, str], ...]


class RunMetrics:
    """Counts the batches and failures of a run.

    Args:
        pipeline: Its name.
        dead_letter_sink: The name of the query whose rows are dead letters.
    """

    def __init__(self, pipeline: str, dead_letter_sink: str) -> None:
        self._pipeline = pipeline
        self._dead_letter_sink = dead_letter_sink
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in (*_COUNTERS, *_GAUGES)}

    def on_batch(self, row: BatchRow) -> None:
        with self._lock:
            sink = ("sink", row.sink)
            self._add("batches", 1, sink)
            self._add("input_rows", row.input_rows, sink)
            self._add("sink_rows", row.sink_rows, sink)
            self._add("lost_gaps", row.lost_gaps, sink)
            self._add("lost_offsets", row.lost_offsets, sink)
            if row.sink == self._dead_letter_sink:
                self._add("dead_letters", row.sink_rows, sink)
            for one in row.rules:
                self._add(
                    "expect_failed", one.rows, sink, ("source", one.stage), ("rule", one.rule)
                )
            for lag in row.lags:
                if lag.records is not None:
                    self._set("lag_records", lag.records, sink, ("source", lag.source))
            self._set("batch_seconds", row.duration_ms / 1000, sink)
            self._set("state_rows", row.state_rows, sink)

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        del failure  # Failures are counted without their kind.
        if wait_ms is not None:
            with self._lock:
                self._add("restarts", 1, ("sink", sink))

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        """Does nothing: no metric depends on the states."""

    def render(self) -> str:
        """The page."""
        lines: list[str] = []
        with self._lock:
            for name, doc in (_COUNTERS | _GAUGES).items():
                is_counter = name in _COUNTERS
                full = f"{_PREFIX}{name}{'_total' if is_counter else ''}"
                lines.append(f"# HELP {full} {doc}")
                lines.append(f"# TYPE {full} {'counter' if is_counter else 'gauge'}")
                lines += [
                    f"{full}{_braces(labels)} {value:g}"
                    if value != int(value)
                    else f"{full}{_braces(labels)} {int(value)}"
                    for labels, value in sorted(self._values[name].items())
                ]
        return "\n".join(lines) + "\n"

    def _add(self, name: str, amount: float, *labels: tuple[str, str]) -> None:
        series = self._values[name]
        key = (("pipeline", self._pipeline), *labels)
        series[key] = series.get(key, 0) + amount

    def _set(self, name: str, value: float, *labels: tuple[str, str]) -> None:
        self._values[name][(("pipeline", self._pipeline), *labels)] = value


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"
