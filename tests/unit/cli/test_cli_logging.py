"""What clients choose reaches the log as part of a line, never as a line of its own."""

import json
import logging
import sys

import pytest

from odradek.cli.logging_setup import JsonFormatter, RateLimit, TextFormatter, set_up_logging

FORGED = (
    "x\n2026-01-01T00:00:00.000Z ERROR   odradek.storage: log directory /data is offline\x1b[2J"
)


def record_of(
    message: str, *args: object, created: float = 0.0, line: int = 1, name: str = "odradek.broker"
) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.INFO, "a.py", line, message, args, None)
    record.created = created
    return record


@pytest.mark.parametrize("separator", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\udc80"])
def test_a_message_is_one_line(separator: str) -> None:
    line = TextFormatter().format(record_of("topic %s is created", f"a{separator}b"))

    assert len(line.splitlines()) == 1
    assert separator not in line
    line.encode()


def test_a_forged_line_is_seen_as_part_of_another() -> None:
    line = TextFormatter().format(record_of("group %s", FORGED))

    assert "\n" not in line
    assert "\x1b" not in line
    assert r"x\n2026-01-01" in line


def test_a_forged_line_in_an_exception_does_not_begin_a_line() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "a.py", 1, "failed", (), sys.exc_info())
    first, *others = TextFormatter().format(record).splitlines()

    assert first.endswith("failed")
    assert any("ERROR   odradek.storage" in line for line in others)
    assert all(line.startswith("  ") for line in others)


def test_a_json_line_is_one_line_and_has_the_fields_as_they_are() -> None:
    record = record_of("topic %s", FORGED)
    record.topic = FORGED + "\u2028"
    line = JsonFormatter().format(record)

    assert len(line.splitlines()) == 1
    assert json.loads(line)["topic"] == FORGED + "\u2028"


def test_a_long_name_is_cut() -> None:
    line = TextFormatter().format(record_of("group %s", "g" * 32_767))

    assert len(line) < 4_300
    assert line.endswith("ggg… (28677 characters left out)")


def test_one_statement_logs_so_many_lines_a_second() -> None:
    limit = RateLimit()
    passed = [limit.filter(record_of("row %d", row)) for row in range(700)]
    assert passed == [True] * 50 + [False] * 650
    assert limit.filter(record_of("another statement", line=2))

    following = record_of("row %d", 700, created=1.5)
    assert limit.filter(following)
    assert following.getMessage() == "row 700 (650 lines like this were left out)"
    last = record_of("row %d", 701, created=1.5)
    assert limit.filter(last)
    assert last.getMessage() == "row 701"


def test_lines_about_data_are_never_left_out() -> None:
    limit = RateLimit()
    lines = [record_of("cut %d", row, name="odradek.storage.recovery.loader") for row in range(700)]
    assert all(limit.filter(line) for line in lines)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_lines_of_a_process_are_escaped_and_bounded(
    format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_logging("info", format_)
        [handler] = root.handlers
        logging.getLogger("odradek.broker").warning("topic %s", FORGED)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)

    [line] = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line
    assert any(isinstance(each, RateLimit) for each in handler.filters)
