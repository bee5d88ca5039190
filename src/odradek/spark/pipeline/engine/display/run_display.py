"""Shows a run: as a table that is redrawn on a terminal, else as a line of JSON per batch.

The table has one line per query: its state and last batch, the rates at which rows arrive and are
processed, its lag in each source, and how many rows it wrote and removed since the run began. The
last failures are shown below. Pure, except for the stream it writes to.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

from odradek.clock import Clock, SystemClock
from odradek.spark.pipeline.engine.display.batch_progress import BatchRow
from odradek.spark.pipeline.engine.display.spinner import CLEAR_LINE, Spinner, frame
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
_CLEAR_BELOW: Final = "\x1b[J"


class _Totals:
    """The totals of one query since the run began."""

    def __init__(self) -> None:
        self.last: BatchRow | None = None
        self.batches = 0
        self.input_rows = 0
        self.sink_rows = 0
        self.dead = 0
        self.broken = 0

    def add(self, row: BatchRow, dead_rules: frozenset[tuple[str, str]]) -> int:
        self.last = row
        self.batches += 1
        self.input_rows += row.input_rows
        self.sink_rows += row.sink_rows
        dead = sum(one.rows for one in row.rules if (one.stage, one.rule) in dead_rules)
        self.dead += dead
        self.broken += sum(one.rows for one in row.rules)
        return dead


class JsonDisplay:
    """One line of JSON for each batch and each failure; text for people goes to another stream.

    Args:
        out: The output.
        dead_rules: Stage and rule of rows that become dead letters.
        sinks: The queries, for the summary.
        err: Gets failures that end a query, and the summary.
    """

    def __init__(
        self,
        out: TextIO,
        dead_rules: frozenset[tuple[str, str]],
        sinks: Sequence[str] = (),
        err: TextIO | None = None,
    ) -> None:
        self._out = out
        self._err = err
        self._dead_rules = dead_rules
        self._totals = {sink: _Totals() for sink in sinks}

    def on_batch(self, row: BatchRow) -> None:
        dead = self._totals.setdefault(row.sink, _Totals()).add(row, self._dead_rules)
        self._print(row.as_json() | {"dead_letters": dead, "state": QueryState.RUNNING.value})

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        self._print(
            {
                "sink": sink,
                "state": (QueryState.FAILED if wait_ms is None else QueryState.WAITING).value,
                "error": failure.kind,
                "message": failure.message,
                "place": failure.place,
                "position": failure.position,
                "restart_in_ms": wait_ms,
            }
        )
        if wait_ms is None:
            self._tell(failure_line(sink, failure, wait_ms))

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        """Does nothing: only batches and failures are shown."""

    def on_wait(self, text: str) -> None:
        """Does nothing: there is no terminal."""

    def on_stop(self) -> None:
        """Does nothing."""

    def close(self, states: Mapping[str, QueryState] | None = None) -> None:
        """Tells what the run did, if it began."""
        for line in _summary(states, self._totals):
            self._tell(line)

    def _tell(self, line: str) -> None:
        if self._err is not None:
            print(line, file=self._err, flush=True)

    def _print(self, value: Mapping[str, object]) -> None:
        print(json.dumps(value), file=self._out, flush=True)


class TableDisplay:
    """A table on a terminal, below the failures so far and above what is being waited for.

    Args:
        out: The terminal.
        sinks: The sinks in the order of the table.
        dead_rules: Stage and rule of rows that become dead letters.
        width: Of the terminal; longer lines of the table are cut, since wrapped ones would break
            redrawing. Failures are not redrawn, and not cut.
        clock: The clock.
    """

    def __init__(
        self,
        out: TextIO,
        sinks: Sequence[str],
        dead_rules: frozenset[tuple[str, str]],
        width: int = 120,
        clock: Clock | None = None,
    ) -> None:
        self._out = out
        self._dead_rules = dead_rules
        self._width = width
        self._clock = clock or SystemClock()
        self._totals = {sink: _Totals() for sink in sinks}
        self._failures: list[str] = []
        self._drawn: list[str] = []
        self._spinner = Spinner(out, width, self._clock)
        self._began_ms: int | None = None
        self._is_stopping = False

    def on_batch(self, row: BatchRow) -> None:
        self._totals[row.sink].add(row, self._dead_rules)

    def on_failure(self, sink: str, failure: Failure, wait_ms: int | None) -> None:
        self._failures.append(failure_line(sink, failure, wait_ms))

    def on_wait(self, text: str) -> None:
        """Shows what is being waited for, before there is a table."""
        if not self._drawn:
            self._spinner.say(text)

    def on_stop(self) -> None:
        """Notes that the user has asked for the end; called by a handler of signals."""
        self._is_stopping = True

    def on_poll(self, states: Mapping[str, QueryState]) -> None:
        self._draw(states, [self._waited_for(states)])

    def close(self, states: Mapping[str, QueryState] | None = None) -> None:
        """Draws the last state, and tells what the run did, if it began."""
        self._spinner.end()
        if states is not None and self._drawn:
            self._draw(states, [])
            for line in _summary(states, self._totals):
                print(line, file=self._out)
            self._out.flush()

    def _waited_for(self, states: Mapping[str, QueryState]) -> str:
        now_ms = self._clock.monotonic_ms()
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        if self._is_stopping:
            return "stopping after the current batch; Ctrl-C again stops at once"
        waiting = [
            sink
            for sink, one in self._totals.items()
            if one.last is None and states[sink] is QueryState.RUNNING
        ]
        if not waiting:
            return ""
        picture = frame(now_ms, self._out.encoding)
        seconds = (now_ms - self._began_ms) // 1000
        return f"{picture} the first batch of {', '.join(waiting)}, {seconds} s"

    def _draw(self, states: Mapping[str, QueryState], below: Sequence[str]) -> None:
        self._spinner.end()
        table = table_lines({sink: (states[sink], one) for sink, one in self._totals.items()})
        lines = [line[: self._width - 1] for line in [*table, *filter(None, below)]]
        if lines == self._drawn and not self._failures:
            return
        # The cursor is below the table; what Ctrl-C has left on its line is cleared, too.
        up = f"\r\x1b[{len(self._drawn)}A" if self._drawn else ""
        rows = [*self._failures, *lines]
        text = up + "".join(f"{row}{CLEAR_LINE}\n" for row in rows) + _CLEAR_BELOW
        self._out.write(text)
        self._out.flush()
        self._drawn = lines
        self._failures.clear()


def failure_line(sink: str, failure: Failure, wait_ms: int | None) -> str:
    """A failure for people."""
    then = "" if wait_ms is None else f", restart in {wait_ms / 1000:g} s"
    return f"{sink} failed{then}: {failure}"


def _summary(states: Mapping[str, QueryState] | None, totals: Mapping[str, _Totals]) -> list[str]:
    """What each query has done, a line for each."""
    if states is None:
        return []
    return [
        f"{sink} {states[sink].value}: {_counted(one.input_rows, 'record')} read and"
        f" {_counted(one.sink_rows, 'row')} written in {_counted(one.batches, 'batch', 'batches')}"
        + (f", {_counted(one.dead, 'dead letter')}" if one.dead else "")
        for sink, one in totals.items()
        if sink in states
    ]


def _counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


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
