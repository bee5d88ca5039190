"""What a run shows."""

import io
import json

from odradek.spark.pipeline.engine.display.batch_progress import BatchRow, RuleCount, SourceLag
from odradek.spark.pipeline.engine.display.run_display import JsonDisplay, TableDisplay
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.supervisor import QueryState

DEAD = frozenset({("raw", "positive"), ("raw", "decode")})
RULES = (
    RuleCount("raw", "positive", 2),
    RuleCount("raw", "known", 3),
    RuleCount("raw", "decode", 1),
)


def row(sink: str, batch: int, *lags: SourceLag) -> BatchRow:
    return BatchRow(sink, batch, "t", 1000, 1234.5, 99.0, 250, 900, 4, lags, RULES)


def test_a_line_of_json_per_batch_and_failure() -> None:
    """12:SP-63: without a terminal."""
    out = io.StringIO()
    display = JsonDisplay(out, DEAD)
    display.on_batch(row("totals", 3, SourceLag(("orders",), 7, "raw")))
    display.on_failure("totals", Failure("IOException", "x", "a-0@1"), 1_000)
    display.on_failure("totals", Failure("IOException", "x"), None)
    display.on_poll({"totals": QueryState.RUNNING})
    display.close({"totals": QueryState.RUNNING})
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == 3
    assert lines[0]["batch"] == 3
    assert lines[0]["lag"] == [{"source": "raw", "topics": ["orders"], "records": 7}]
    assert lines[0]["dead_letters"] == 3
    assert lines[0]["state"] == "running"
    assert lines[1] == {
        "sink": "totals",
        "state": "waiting",
        "error": "IOException",
        "message": "x",
        "position": "a-0@1",
        "restart_in_ms": 1_000,
    }
    assert lines[2]["state"] == "failed"
    assert lines[2]["restart_in_ms"] is None


def test_the_table_adds_up_and_is_drawn_over_itself() -> None:
    """12:SP-63: batch, rates, lag per source, sink rows, dead letters, state."""
    out = io.StringIO()
    display = TableDisplay(out, ["totals", "lake"], DEAD, width=200)
    states = {"totals": QueryState.RUNNING, "lake": QueryState.WAITING}
    display.on_poll(states)
    first = out.getvalue()
    assert first.replace("\x1b[K", "").replace("\x1b[J", "").splitlines() == [
        "SINK    STATE    BATCH  IN/S  DONE/S  LAG  SINK ROWS  DEAD  FAILED RULES",
        "totals  running      -     -       -    -          0     0             0",
        "lake    waiting      -     -       -    -          0     0             0",
    ]
    display.on_poll(states)
    assert out.getvalue() == first
    display.on_batch(row("totals", 0, SourceLag(("a", "b"), 5, "both")))
    display.on_batch(
        row("totals", 1, SourceLag(("a", "b"), 5000, "both"), SourceLag((), None, "c"))
    )
    display.on_failure("lake", Failure("IOException", "no space"), 2_500)
    display.close(states)
    second = out.getvalue()[len(first) :]
    assert second.startswith("\x1b[3A")
    lines = second.removeprefix("\x1b[3A").replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
    cells = lines[1].split()
    assert cells == [
        "totals",
        "running",
        "1",
        "1,234",
        "99",
        "both:5,000",
        "c:?",
        "1,800",
        "6",
        "12",
    ]
    assert lines[3] == "lake failed, restart in 2.5 s: IOException: no space"


def test_lines_are_cut_to_the_terminal() -> None:
    """12:SP-63: a line that wraps would be drawn over at the wrong place."""
    out = io.StringIO()
    display = TableDisplay(out, ["totals"], DEAD, width=20)
    display.on_failure("totals", Failure("IOException", "x" * 100), None)
    display.on_poll({"totals": QueryState.FAILED})
    shown = out.getvalue().replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
    assert all(len(line) < 20 for line in shown)
