"""Templates of `consume --format`, and times as options name them."""

import argparse
import time
from collections.abc import Iterator

import pytest

from odradek.cli.messages.content import Content
from odradek.cli.messages.templates import TemplateError, parse_template, unescape
from odradek.cli.messages.times import parse_time
from odradek.records.codec import ConsumerRecord, TimestampType

HEADERS = (("a", b"1"), ("b", None), ("c", b"\xff"))
RECORD = ConsumerRecord(
    "t", 1, 2, 1_500, TimestampType.CREATE_TIME, None, b'{"a": {"b": [1, null]}}', HEADERS
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", b""),
        (r"a\tb\n\\", b"a\tb\n\\"),
        ("{{{offset}}}", b"{2}"),
        ("{key}|{key:json}|{key:size}|{key:hex}", b"NULL|null|-1|NULL"),
        ("{value.a}{value.a.b[0]}{value.a.b[1]}{value.a.x:json}", b'{"b":[1,null]}1NULLnull'),
        ("{headers}", b"a=1,b=null,c=\xff"),
        ("{header.c}{headers.a:base64}{header.x}", b"\xffMQ==NULL"),
        ("{timestamp:iso}", b"1970-01-01T00:00:01.500Z"),
        ('{value["a"]:size}', b"14"),
        ("{partition:json}{topic:json}", b'1"t"'),
    ],
)
def test_fields_and_forms(template: str, expected: bytes) -> None:
    assert parse_template(template, b"NULL")(Content(RECORD)) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{", "a single {"),
        ("a}", "a single }"),
        ("{}", "expected a field"),
        ("{name}", "expected a field"),
        ("{value:xml}", "there is no form 'xml'"),
        ("{value:iso}", "iso is for the timestamp"),
        ("{value.}", "expected a name"),
    ],
)
def test_a_wrong_template_is_told(template: str, expected: str) -> None:
    with pytest.raises(TemplateError, match=expected):
        parse_template(template, b"")


def test_only_known_escapes_are_replaced() -> None:
    assert unescape(r"\0\t\n\r\\t\x") == "\0\t\n\r\\t\\x"


@pytest.fixture
def zone_of_india(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone_of_india")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", 10_000_000 - 3_600_000),
        ("1h30m10s5ms", 10_000_000 - 5_410_005),
        ("9999w", 0),
        ("now", 10_000_000),
        ("1767225600000", 1_767_225_600_000),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01T05:30", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000 - 19_800_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text)(10_000_000) == expected


@pytest.mark.parametrize("text", ["", "h", "1", "1x", "-1h", "2026-13-01", "1969-01-01Z", "soon"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
        parse_time(text)
