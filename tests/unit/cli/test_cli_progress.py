"""The count on the terminal: how often, and how its line ends."""

import io

import pytest

from odradek.cli.output import print_error
from odradek.cli.progress import Progress
from odradek.testing import ManualClock


def test_a_few_times_a_second_and_the_last_count_at_the_end() -> None:
    stream, clock = io.StringIO(), ManualClock()
    with Progress(is_shown=True, stream=stream, clock=clock) as progress:
        for count in range(1, 2001):
            progress.show(count)
            clock.advance(1)
    shown = stream.getvalue().split("\r")[1:]
    counts = [f"{n:,} messages" for n in range(201, 2001, 200)]
    assert shown == ["1 message", *counts, "2,000 messages\n"]


def test_the_last_words() -> None:
    stream = io.StringIO()
    with Progress(is_shown=True, stream=stream, clock=ManualClock()) as progress:
        progress.show(1)
        progress.finish(12_345, " sent")
    assert stream.getvalue() == "\r1 message\r12,345 messages sent\n"


def test_whatever_ends_it_ends_the_line() -> None:
    stream = io.StringIO()

    def work() -> None:
        with Progress(is_shown=True, stream=stream, clock=ManualClock()) as progress:
            progress.show(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert stream.getvalue() == "\r1 message\n"


def test_an_error_in_between_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with Progress(is_shown=True, clock=clock) as progress:
        progress.show(1)
        print_error("consume", "trouble")
        print_error("consume", "more")
        clock.advance(200)
        progress.show(2)
    assert capsys.readouterr().err == (
        "\r1 message\nodradek consume: trouble\nodradek consume: more\n\r2 messages\n"
    )


def test_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(is_shown=False) as progress:
        progress.show(1)
        progress.finish(2, " sent")
    assert capsys.readouterr().err == ""
