"""Parses Spark's report of a batch into the numbers that a run shows. Pure.

Spark's progress is JSON, from which are read the batch, its rows and times, the offsets of every
source and the observed metrics. The engine observes, under the name of each stage, how many rows
broke which rule, and before every sink how many rows it gets.

Lag is the sum over all partitions of the broker's end minus the batch's end. It is unknown while
Spark has not asked the source for its end, as after a restart within a batch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.lazy_dataclass import dataclass
from odradek.spark.datasource.data_loss import parse_lost
from odradek.spark.pipeline.graph.model import TopicInput
from odradek.spark.pipeline.graph.topics import name_sources

__all__ = [
    "DECODE",
    "EXPECT_PREFIX",
    "SINK_METRIC",
    "SINK_ROWS",
    "BatchRow",
    "RuleCount",
    "SourceLag",
    "parse_progress",
    "position_text",
    "stage_metric",
    "with_sources",
]

DECODE: Final = "decode"
EXPECT_PREFIX: Final = "expect:"
SINK_METRIC: Final = "odradek.sink"
SINK_ROWS: Final = "rows"
_STAGE_PREFIX: Final = "odradek.stage."
_MAX_PLACES: Final = 10  # Partitions that a message shows.


def stage_metric(stage: str) -> str:
    """The name under which a stage's counts are observed."""
    return _STAGE_PREFIX + stage


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The lag of a query in one source.

    Attributes:
        topics: The topics that were read, in order.
        records: The number of records to read; None while it is not known.
        source: Its name in the file, which is not in Spark's report; see `with_sources`.
    """

    topics: tuple[str, ...]
    records: int | None
    source: str = ""


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many rows of a stage broke a rule; `rule` is `decode` for unreadable records."""

    stage: str
    rule: str
    rows: int


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of one query.

    Attributes:
        input_rate: Rows per second that arrived since the last batch.
        processed_rate: Rows per second that were processed.
        state_rows: Rows in the state of aggregates, joins and dedups.
        lost_gaps: How often records were deleted before they were read, since the last batch, and
            `lost_offsets` how many offsets; from `parse_progress`, since the start of the query.
    """

    sink: str
    batch: int
    timestamp: str
    input_rows: int
    input_rate: float
    processed_rate: float
    duration_ms: int
    sink_rows: int
    state_rows: int
    lags: tuple[SourceLag, ...]
    rules: tuple[RuleCount, ...]
    lost_gaps: int = 0
    lost_offsets: int = 0

    @property
    def lag(self) -> int | None:
        """The lag over all sources; None if that of one is not known."""
        known = [lag.records for lag in self.lags]
        return None if None in known else sum(one for one in known if one is not None)

    def as_json(self) -> dict[str, Any]:
        """The batch for a line of JSON."""
        return {
            "sink": self.sink,
            "batch": self.batch,
            "timestamp": self.timestamp,
            "input_rows": self.input_rows,
            "input_rows_per_second": round(self.input_rate, 1),
            "processed_rows_per_second": round(self.processed_rate, 1),
            "duration_ms": self.duration_ms,
            "lag": [
                {"source": lag.source, "topics": list(lag.topics), "records": lag.records}
                for lag in self.lags
            ],
            "sink_rows": self.sink_rows,
            "state_rows": self.state_rows,
            "lost_gaps": self.lost_gaps,
            "lost_offsets": self.lost_offsets,
            "failed": [
                {"stage": one.stage, "rule": one.rule, "rows": one.rows}
                for one in self.rules
                if one.rows
            ],
        }


def parse_progress(sink: str, text: str) -> BatchRow:
    """The numbers of one progress report of Spark, in JSON."""
    told: dict[str, Any] = json.loads(text)
    observed = {
        name: _named(counts) for name, counts in (told.get("observedMetrics") or {}).items()
    }
    durations: dict[str, int] = told.get("durationMs") or {}
    sources: list[dict[str, Any]] = told.get("sources") or []
    operators: list[dict[str, Any]] = told.get("stateOperators") or []
    lost = [parse_lost(_document(one.get("latestOffset"))) for one in sources]
    return BatchRow(
        sink=sink,
        batch=int(told["batchId"]),
        timestamp=str(told.get("timestamp", "")),
        input_rows=sum(int(one.get("numInputRows") or 0) for one in sources),
        input_rate=_rate(told, sources, "inputRowsPerSecond"),
        processed_rate=_rate(told, sources, "processedRowsPerSecond"),
        duration_ms=int(durations.get("triggerExecution", 0)),
        sink_rows=int((observed.get(SINK_METRIC) or {}).get(SINK_ROWS) or 0),
        state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
        lags=tuple(lag for one in sources if (lag := _lag(one)) is not None),
        rules=_rules(observed),
        lost_gaps=sum(gaps for gaps, _ in lost),
        lost_offsets=sum(offsets for _, offsets in lost),
    )


def with_sources(row: BatchRow, inputs: Mapping[str, TopicInput]) -> BatchRow:
    """The batch with the names of its sources, for which Spark reports topics only.

    Args:
        row: The parsed report.
        inputs: The sources of the query, by name.
    """
    names = name_sources(inputs, [lag.topics for lag in row.lags])
    lags = [
        replace(lag, source=name or ",".join(lag.topics))
        for lag, name in zip(row.lags, names, strict=True)
    ]
    return replace(row, lags=tuple(lags))


def position_text(text: str) -> str:
    """The start of the batch after a reported one, as `topic-partition@offset, …`."""
    told: dict[str, Any] = json.loads(text)
    places = [
        f"{topic}-{partition}@{offset}"
        for source in told.get("sources") or []
        for (topic, partition), offset in (_positions(source.get("endOffset")) or {}).items()
    ]
    if len(places) > _MAX_PLACES:
        places = [*places[:_MAX_PLACES], f"… {len(places) - _MAX_PLACES} more"]
    return ", ".join(places)


def _rules(observed: Mapping[str, Mapping[str, Any]]) -> tuple[RuleCount, ...]:
    found = []
    for name, counts in sorted(observed.items()):
        if not name.startswith(_STAGE_PREFIX):
            continue
        for rule, rows in counts.items():
            if rule == DECODE:
                found.append(RuleCount(name[len(_STAGE_PREFIX) :], DECODE, int(rows or 0)))
            elif rule.startswith(EXPECT_PREFIX):
                plain = rule[len(EXPECT_PREFIX) :]
                found.append(RuleCount(name[len(_STAGE_PREFIX) :], plain, int(rows or 0)))
    return tuple(found)


def _named(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The observed counts by name. Spark Connect reports names and values separately."""
    values, schema = counts.get("values"), counts.get("schema")
    if not isinstance(values, list) or not isinstance(schema, dict):
        return counts
    return {field["name"]: value for field, value in zip(schema["fields"], values, strict=True)}


def _rate(told: Mapping[str, Any], sources: Sequence[Mapping[str, Any]], name: str) -> float:
    """A rate over all sources, which Spark Connect reports for each source only.

    It is missing for the first batch, and NaN or Infinity for one that took no time.
    """
    given = [told[name]] if name in told else [one.get(name) for one in sources]
    number = sum(float(one or 0.0) for one in given)
    return number if 0.0 <= number < float("inf") else 0.0


def _lag(source: Mapping[str, Any]) -> SourceLag | None:
    """The lag of one source of Spark; None for one without offsets of topics."""
    end = _positions(source.get("endOffset"))
    if end is None:
        return None
    topics = tuple(sorted({topic for topic, _ in end}))
    latest = _positions(source.get("latestOffset"))
    if latest is None:
        return SourceLag(topics, None)
    behind = sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    return SourceLag(topics, behind)


def _positions(offset: Any) -> dict[tuple[str, str], int] | None:
    """Offsets by topic and partition; None for those of another source."""
    offset = _document(offset)
    topics = offset.get("topics") if isinstance(offset, dict) else None
    if not isinstance(topics, dict):
        return None
    return {
        (topic, partition): int(position)
        for topic, held in topics.items()
        for partition, position in held["p"].items()
    }


def _document(offset: Any) -> Any:
    """An offset that is given as text or as an object; None if it is not JSON."""
    if isinstance(offset, str):
        try:
            return json.loads(offset)
        except ValueError:
            return None
    return offset
