"""Shows a run: as a table that is redrawn on a terminal, else as a line of JSON per batch.

The table has one line per query: its state and last batch, the rates at which rows arrive and are
processed, its lag in each source, and how many rows it wrote and removed since the run began. The
last failures are shown below. Pure, except for the stream it writes to.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.supervisor import QueryState

__all__ = ["JsonDisplay", "TableDisplay", "table_lines"]

_HEADER: Final = (
    "SINK",
    "STATE",
    "BATCH",
    "IN/S",
    "DONE/S",
    "LAG",
    "SINK ROWS",
    "DEAD",
    "FAILED RULES",
)
_MAX_FAILURES: Final = 5
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


class _Totals:
    """The totals of one query since the run began."""

    def __init__(self) -> None:
        self.last: BatchRow | None = None
        self.sink_rows = 0
        self.dead = 0
        self.broken = 0

    def add(self, row: BatchRow, dead_rules: frozenset[tuple[str, str]]) -> int:
        self.last = row
        self.sink_rows += row.sink_rows
        dead = sum(one.rows for one in row.rules if (one.stage, one.rule) in dead_rules)
        self.dead += dead
        self.broken += sum(one.rows for one in row.rules)
        return dead


class JsonDisplay:
    """One line of JSON for each batch and each failure.

    Args:
        out: The output.
        dead_rules: Stage and rule of rows that become dead letters.
    """

    def __init__(self, out: TextIO, dead_rules: frozenset[tuple[str, str]]) -> None:
        self._out = out
        self._dead_rules = dead_rules

    def on_batch(self, row: BatchRow) -> None:
        dead = sum(one.rows for one in row.rules if (one.stage, one.rule) in self._dead_rules)
        self._print(row.as_json() | {"dead_letters": dead, "state": QueryState.RUNNING.value})

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        self._print(
            {
                "sink": sink,
                "state": (QueryState.FAILED if wait_ms is None else QueryState.WAITING).value,
                "error": failure.kind,
                "message": failure.message,
                "position": failure.position,
                "restart_in_ms": wait_ms,
            }
        )

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        """Does nothing: only batches and failures are shown."""

    def close(self, states: Mapping[str, QueryState]) -> None:
        """Does nothing: every line is complete."""

    def _print(self, value: Mapping[str, object]) -> None:
        print(json.dumps(value), file=self._out, flush=True)


class TableDisplay:
    """A table on a terminal.

    Args:
        out: The terminal.
        sinks: The sinks in the order of the table.
        dead_rules: Stage and rule of rows that become dead letters.
        width: Of the terminal; longer lines are cut, since wrapped ones would break redrawing.
    """

    def __init__(
        self,
        out: TextIO,
        sinks: Sequence[str],
        dead_rules: frozenset[tuple[str, str]],
        width: int = 120,
    ) -> None:
        self._out = out
        self._dead_rules = dead_rules
        self._width = width
        self._totals = {sink: _Totals() for sink in sinks}
        self._failures: deque[str] = deque(maxlen=_MAX_FAILURES)
        self._drawn: list[str] = []

    def on_batch(self, row: BatchRow) -> None:
        self._totals[row.sink].add(row, self._dead_rules)

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        then = "given up" if wait_ms is None else f"restart in {wait_ms / 1000:g} s"
        self._failures.append(f"{sink} failed, {then}: {failure}")

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        lines = [
            *table_lines({sink: (states[sink], one) for sink, one in self._totals.items()}),
            *self._failures,
        ]
        lines = [line[: self._width - 1] for line in lines]
        if lines == self._drawn:
            return
        up = f"\x1b[{len(self._drawn)}A" if self._drawn else ""
        text = up + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW
        self._out.write(text)
        self._out.flush()
        self._drawn = lines

    def close(self, states: Mapping[str, QueryState]) -> None:
        """Draws the last state."""
        self.on_poll(states)


def table_lines(queries: Mapping[str, tuple[QueryState, _Totals]]) -> list[str]:
    """The lines of the table."""
    rows = [_HEADER]
    for sink, (state, totals) in queries.items():
        last = totals.last
        rows.append(
            (
                sink,
                state.value,
                "-" if last is None else str(last.batch),
                "-" if last is None else f"{last.input_rate:,.0f}",
                "-" if last is None else f"{last.processed_rate:,.0f}",
                _lag_text(last),
                f"{totals.sink_rows:,}",
                f"{totals.dead:,}",
                f"{totals.broken:,}",
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    left_aligned = (0, 1)
    return [
        "  ".join(
            cell.ljust(width) if place in left_aligned else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _lag_text(row: BatchRow | None) -> str:
    """The lag of each source; with several, each with its name."""
    if row is None or not row.lags:
        return "-"
    texts = ["?" if lag.records is None else f"{lag.records:,}" for lag in row.lags]
    if len(texts) == 1:
        return texts[0]
    named = zip(row.lags, texts, strict=True)
    return " ".join(f"{lag.source}:{text}" for lag, text in named)
