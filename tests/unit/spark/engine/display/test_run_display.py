"""What a run shows."""

import io
import json
import threading

from odradek.spark.pipeline.engine.display.batch_progress import BatchRow, RuleCount, SourceLag
from odradek.spark.pipeline.engine.display.run_display import JsonDisplay, TableDisplay
from odradek.spark.pipeline.engine.display.spinner import Spinner, frame
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.supervisor import QueryState
from odradek.testing import ManualClock

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
        "place": "",
        "position": "a-0@1",
        "restart_in_ms": 1_000,
    }
    assert lines[2]["state"] == "failed"
    assert lines[2]["restart_in_ms"] is None


def test_the_table_adds_up_and_is_drawn_over_itself() -> None:
    """12:SP-63: batch, rates, lag per source, sink rows, dead letters, state."""
    out = io.StringIO()
    clock = ManualClock()
    display = TableDisplay(out, ["totals", "lake"], DEAD, 200, clock)
    states = {"totals": QueryState.RUNNING, "lake": QueryState.WAITING}
    display.on_poll(states)
    first = out.getvalue()
    assert plain(first) == [
        "SINK    STATE    BATCH  IN/S  DONE/S  LAG  SINK ROWS  DEAD  FAILED RULES",
        "totals  running      -     -       -    -          0     0             0",
        "lake    waiting      -     -       -    -          0     0             0",
        "| the first batch of totals, 0 s",
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
    assert second.startswith("\r\x1b[4A")
    lines = plain(second.removeprefix("\r\x1b[4A"))
    assert lines[0] == "lake failed, restart in 2.5 s: IOException: no space"
    cells = lines[2].split()
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
    assert lines[4:] == [
        "totals running: 2,000 records read and 1,800 rows written in 2 batches, 6 dead letters",
        "lake waiting: 0 records read and 0 rows written in 0 batches",
    ]


def test_the_table_is_cut_to_the_terminal_and_messages_are_not() -> None:
    """12:SP-63: a wrapped line would be drawn over at the wrong place; a reason is read whole."""
    out = io.StringIO()
    display = TableDisplay(out, ["totals"], DEAD, width=20)
    display.on_failure("totals", Failure("IOException", "x" * 100, place="shop.yaml:3:1"), None)
    display.on_poll({"totals": QueryState.FAILED})
    told, *table = plain(out.getvalue())
    assert told == "totals failed: shop.yaml:3:1: IOException: " + "x" * 100
    assert all(len(line) < 20 for line in table)
    before = len(out.getvalue())
    display.on_batch(row("totals", 0))
    display.on_poll({"totals": QueryState.FAILED})
    assert "failed:" not in out.getvalue()[before:]


def test_what_ctrl_c_leaves_on_the_line_is_drawn_over() -> None:
    out = io.StringIO()
    display = TableDisplay(out, ["totals"], DEAD, width=200, clock=ManualClock())
    display.on_poll({"totals": QueryState.RUNNING})
    display.on_stop()
    before = len(out.getvalue())
    display.on_poll({"totals": QueryState.RUNNING})
    shown = out.getvalue()[before:]
    assert shown.startswith("\r\x1b[3A")
    assert "stopping after the current batch; Ctrl-C again stops at once" in shown
    display.close({"totals": QueryState.STOPPED})
    assert "Ctrl-C" not in out.getvalue()[before + len(shown) :]
    assert out.getvalue().endswith(
        "totals stopped: 0 records read and 0 rows written in 0 batches\n"
    )


def test_a_pipe_keeps_what_is_for_people_apart() -> None:
    """12:SP-63: standard output has JSON only; the reason of a failure is on standard error."""
    out, err = io.StringIO(), io.StringIO()
    display = JsonDisplay(out, DEAD, ["totals", "lake"], err)
    display.on_batch(row("totals", 0))
    display.on_failure("totals", Failure("IOException", "x"), 1_000)
    display.on_failure("totals", Failure("CAST", "y", "a-0 from 1 to 3", "shop.yaml:3:1"), None)
    display.close({"totals": QueryState.FAILED, "lake": QueryState.FINISHED})
    assert [json.loads(line)["sink"] for line in out.getvalue().splitlines()] == ["totals"] * 3
    assert err.getvalue().splitlines() == [
        "totals failed: shop.yaml:3:1: CAST: y (in the batch of a-0 from 1 to 3)",
        "totals failed: 1,000 records read and 900 rows written in 1 batch, 3 dead letters",
        "lake finished: 0 records read and 0 rows written in 0 batches",
    ]
    JsonDisplay(out, DEAD, ["totals"], err).close()
    assert len(err.getvalue().splitlines()) == 3


def test_a_spinner_leaves_nothing_behind() -> None:
    shown = threading.Event()

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            if "starting Spark, 0 s" in text:
                shown.set()
            return super().write(text)

    out = Terminal()
    spinner = Spinner(out, 80, ManualClock())
    spinner.end()
    assert not out.getvalue()
    spinner.say("asking the brokers")
    spinner.say("starting Spark")
    assert shown.wait(60)
    spinner.end()
    assert out.getvalue().endswith("\r\x1b[K")
    assert "\n" not in out.getvalue()
    assert [frame(now_ms, "UTF-8") for now_ms in (0, 120, 1_200)] == ["⠋", "⠙", "⠋"]


def plain(text: str) -> list[str]:
    return text.replace("\x1b[K", "").replace("\x1b[J", "").splitlines()
