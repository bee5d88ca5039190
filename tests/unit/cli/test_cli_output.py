"""What commands print, and the log lines of a broker."""

import json
import logging
import sys

import pytest

from odradek.cli.connecting import CommandError, explain, parse_pairs
from odradek.cli.logging_setup import JsonFormatter, TextFormatter, set_up_logging
from odradek.cli.output import print_error, print_json, print_table
from odradek.errors import ApiError, ErrorCode

ROWS = [("a-long-name", 3, None), ("b", 12, "x")]


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_table_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch)
    print_table(("NAME", "COUNT", "NOTE"), ROWS)
    print_table(("NAME", "COUNT"), [])

    assert capsys.readouterr().out == (
        "NAME         COUNT  NOTE\na-long-name      3\nb               12  x\nnothing to show\n"
    )


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "COUNT", "NOTE"), ROWS)

    assert capsys.readouterr().out == "a-long-name\t3\t\nb\t12\tx\n"


def test_json_is_one_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"größe": [1, None]}
    print_json(value)
    as_terminal(monkeypatch)
    print_json(value)

    first, _, rest = capsys.readouterr().out.partition("\n")
    assert first == '{"größe": [1, null]}'
    assert json.loads(rest) == value
    assert rest.count("\n") > 1


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("topics list", "it\n  broke")

    assert capsys.readouterr().err == "odradek topics list: it broke\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "t: 3 replicas, 1 broker"),
            "t: 3 replicas, 1 broker (INVALID_REPLICATION_FACTOR); "
            "lower --replication-factor or start more brokers",
        ),
        (ApiError(ErrorCode.INVALID_CONFIG, "INVALID_CONFIG: no"), "INVALID_CONFIG: no"),
    ],
)
def test_an_error_tells_its_name_once_and_what_to_do(error: ApiError, expected: str) -> None:
    assert explain(error) == expected


def test_pairs() -> None:
    assert parse_pairs("--set", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    for bad in ("a", "=a", ""):
        with pytest.raises(CommandError, match="expected KEY=VALUE"):
            parse_pairs("--set", [bad])


def record(**extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "odradek.x", "levelname": "WARNING", "msg": "%s left", "args": (3,)} | extra
    )
    made.created = 0.5
    return made


def test_log_lines_for_people() -> None:
    assert TextFormatter().format(record()) == (
        "1970-01-01T00:00:00.500Z WARNING odradek.x: 3 left"
    )


def test_log_lines_for_collectors() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        failed = record(exc_info=sys.exc_info(), topic="t")

    line = JsonFormatter().format(failed)

    assert "\n" not in line
    fields = json.loads(line)
    assert fields.pop("exception").endswith("ValueError: why")
    assert fields == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "warning",
        "logger": "odradek.x",
        "message": "3 left",
        "topic": "t",
    }


def test_logging_is_set_up_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    set_up_logging("info", "text")
    set_up_logging("warning", "json")
    logging.getLogger("odradek.test").info("not shown")
    logging.getLogger("odradek.test").warning("shown")
    logging.shutdown()

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "shown"
