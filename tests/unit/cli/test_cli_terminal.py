"""What a terminal shows: tables that fit, colours for what matters, counts as people read them."""

import sys
from collections.abc import Iterator

import pytest

from odradek.cli.output import (
    bad,
    counted,
    good,
    print_error,
    print_table,
    set_color,
    sized,
    styled,
    warn,
)
from tests.support.commands import run_command


@pytest.fixture(autouse=True)
def _terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[None]:
    """The output that `capsys` reads is a terminal without colours."""
    # Its class, because each phase of a test has a stream of its own.
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "0")  # Unknown.
    yield
    set_color("auto")


WIDE = ("GROUP", "CONSUMER-ID", "LAG")
ROWS = [("billing", "consumer-5f0c2a61-53d5-4b34-9b1c-58e5ba6f2f7e", 1234567), ("b", "x", 0)]


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 79, 80])
def test_a_table_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(WIDE, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(len(line) <= columns for line in lines)
    assert (columns >= 65) is ("…" not in lines[1])
    # The widest text is cut; numbers are whole as long as that is enough.
    assert (columns < 30) is ("1,234,567" not in lines[1])


def test_a_pipe_gets_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    monkeypatch.setenv("COLUMNS", "20")
    print_table(WIDE, ROWS)
    print_table(WIDE, [])
    print_table(("SIZE", "STATE"), [(sized(1536), bad("offline"))])
    assert capsys.readouterr().out == (f"billing\t{ROWS[0][1]}\t1234567\nb\tx\t0\n1536\toffline\n")


def test_numbers_are_grouped_unless_they_are_names(capsys: pytest.CaptureFixture[str]) -> None:
    headings = ("PRODUCER-ID", "PARTITION", "START-TIME-MS", "OFFSET", "SIZE")
    print_table(headings, [(4000, 1000, 1700000000000, 1234567, sized(1536))])
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "4000", "1000", "1700000000000", "1,234,567", "1.5", "KiB",
    ]  # fmt: skip


def test_missing_numbers_leave_a_column_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("LAG", "TOPIC"), [(12, "a"), ("-", "b"), (None, "c")])
    assert capsys.readouterr().out == "LAG  TOPIC\n 12  a\n  -  b\n     c\n"


def test_control_characters_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("KEY", "VALUE"), [("a\x1b[2J", "b\nc\td")])
    assert capsys.readouterr().out.splitlines()[1] == "a\\x1b[2J  b\\nc\\td"


def test_nothing_to_show_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("TOPIC",), [], nothing="no topics")
    assert capsys.readouterr().out == "no topics\n"


def test_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (0, 1023, 1024, 3 << 20, 5 << 40, 6 << 50, None, -1)
    assert [sized(size).text for size in sizes] == [
        "0 B", "1023 B", "1.0 KiB", "3.0 MiB", "5.0 TiB", "6,144.0 TiB", "-", "-",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 messages"), (1, "1 message"), (2, "2 messages"), (1200, "1,200 messages")],
)
def test_counts(number: int, expected: str) -> None:
    assert counted(number, "message") == expected


def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> str:
        print_table(("A", "B", "C"), [(bad("x"), warn("y"), good("z"))])
        return capsys.readouterr().out

    plain = "A  B  C\nx  y  z\n"
    assert shown() == plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    coloured = shown()
    assert coloured.splitlines() == [
        "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m  \x1b[1mC\x1b[0m",
        "\x1b[31mx\x1b[0m  \x1b[33my\x1b[0m  \x1b[32mz\x1b[0m",
    ]
    monkeypatch.setenv("TERM", "dumb")
    assert shown() == plain
    set_color("always")
    assert shown() == coloured
    assert styled(bad("x")) == "\x1b[31mx\x1b[0m"
    print_error("topics list", "broken")
    assert capsys.readouterr().err == "\x1b[31modradek topics list:\x1b[0m broken\n"
    monkeypatch.setenv("TERM", "xterm")
    set_color("never")
    assert shown() == plain


@pytest.mark.parametrize(
    "words",
    ["--color never profile list", "profile --color never list", "profile list --color never"],
)
def test_color_can_be_anywhere(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr("odradek.cli.main.set_color", modes.append)
    assert run_command(*words.split()).code == 0
    assert modes == ["never"]


@pytest.mark.parametrize(
    ("words", "usage", "guess"),
    [
        ("topcis list", "usage: odradek [", "did you mean topics?"),
        ("topics lst", "usage: odradek topics [", "did you mean list?"),
        ("topics list --interal", "usage: odradek topics list [", "did you mean --internal?"),
        ("consume --form-beginning", "usage: odradek consume [", "did you mean --from-beginning?"),
        ("produce t --compression zstandard", "usage: odradek produce [", "did you mean zstd?"),
        (
            "configs alter topic t --sett a=b",
            "usage: odradek configs alter [",
            "did you mean --set",
        ),
    ],
)
def test_a_mistyped_word_gets_its_own_usage_and_a_guess(words: str, usage: str, guess: str) -> None:
    outcome = run_command(*words.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(usage)
    *_, more, error = outcome.err.splitlines()
    assert guess in error
    assert more.endswith("--help` has more")


def test_a_bare_command_prints_help() -> None:
    bare = run_command()
    assert (bare.code, bare.err) == (0, "")
    assert bare.out == run_command("--help").out
    topics = run_command("topics")
    assert (topics.code, topics.out) == (2, "")
    assert topics.err.startswith(run_command("topics", "--help").out)
    assert topics.err.endswith("the following arguments are required: ACTION\n")
