"""Scenarios of the controller and of consumer groups lead to the traces in their files.

A trace that differs is either a mistake or a change that is meant: `make rewrite`, and the
difference shows what becomes of it.
"""

from pathlib import Path

import pytest

from tests.scenarios.rewrite import FILES, trace_anew
from tests.scenarios.scripts import Step, parse, render, rewritten

STEPS = "# Says what it is about.\n\ngiven a\nb\n----\ntrace of b\n\nc\n----\nnothing happens\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    assert trace_anew(path) == path.read_text(), "if that is meant: make rewrite"


def test_a_file_that_is_read_and_written_stays_as_it_is() -> None:
    assert render(parse(STEPS)) == STEPS


def test_the_trace_of_another_run_is_another_file() -> None:
    asked = []

    def run(steps: object) -> list[list[str]]:
        asked.append(steps)
        return [[], ["trace of b"], ["trace of c"]]

    assert rewritten(STEPS, run) == STEPS.replace("nothing happens", "trace of c")
    assert asked == [[[], ["given a", "b"], ["c"]]]


def test_a_step_that_has_no_trace_yet_gets_one() -> None:
    assert parse("a\n\nb") == [Step(("a",)), Step(("b",))]
    assert rewritten("a", lambda _steps: [["x"]]) == "a\n----\nx\n"
