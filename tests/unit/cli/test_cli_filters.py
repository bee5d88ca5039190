"""The expressions of `consume --filter`."""

import json
from typing import Any

import pytest

from odradek.cli.messages.content import Content
from odradek.cli.messages.filters import FilterError, parse_filter
from odradek.records.codec import ConsumerRecord, TimestampType

VALUE = {
    "n": 5,
    "price": 1.5,
    "who": {"name": "Ann", "ok": True, "off": False, "none": None},
    "tags": ["a", "b", 3],
    "odd name": {"x.y": 1},
    "7": "seven",
}


def message(value: Any = VALUE, key: bytes | None = b"k-1") -> Content:
    encoded = value if isinstance(value, bytes | None) else json.dumps(value).encode()
    headers = (("h", b"1"), ("h", b"2"), ("empty", b""), ("null", None))
    return Content(
        ConsumerRecord("t", 3, 17, 1_000, TimestampType.CREATE_TIME, key, encoded, headers)
    )


@pytest.mark.parametrize(
    "expression",
    [
        "value.n == 5",
        "value.n == 5.0",
        "value.n != 4 and value.n <= 5 and value.n >= 5",
        "value.price > 1 and value.price < 1.6e0 and -1 < value.price",
        "value.who.name == 'Ann' and value.who.name == \"Ann\"",
        "value.who.name starts 'A' and value.who.name ends 'n' and value.who.name contains 'n'",
        r"value.who.name ~ '^A\w+$'",
        "value.who.ok and not value.who.off and not value.who.none and not value.gone.further",
        "value.who.ok == true and value.who.off == false",
        "value.who.none == null and value.gone == null and value[0] == null",
        "value.tags[0] == 'a' and value.tags[-1] == 3 and value.tags contains 'b'",
        "value['odd name']['x.y'] == 1 and value[\"7\"] == 'seven' and value.7 == 'seven'",
        "value.who contains 'name'",
        "key == 'k-1' and key contains '-'",
        "header.h == '2' and headers['h'] == '2' and header.empty == '' and header.null == null",
        "header.empty",
        "not header.gone",
        "topic == 't' and partition == 3 and offset >= 17 and timestamp == 1000",
        "false or (true and not false)",
        "false and false or true",
        r"value.who.name != 'it\'s' and 'a\nb' != 'ab'",
    ],
)
def test_it_holds(expression: str) -> None:
    assert parse_filter(expression)(message())


@pytest.mark.parametrize(
    "expression",
    [
        "value.n == '5'",
        "value.who.ok == 1",
        "value.who.name < 5",
        "value.n contains 5",
        "value.gone < 1",
        "value.tags[9] == 1",
        "value.who.name ~ 'nobody'",
        "(true or true) and false",
        "not (true or false)",
        "value.n.deeper",
    ],
)
def test_it_does_not_hold(expression: str) -> None:
    assert not parse_filter(expression)(message())


def test_what_is_no_json_and_no_text() -> None:
    assert not parse_filter("value.a")(message(b"no json"))
    assert parse_filter("value == 'no json'")(message(b"no json"))
    assert parse_filter("value == null and key == null")(message(None, None))
    assert not parse_filter("value == '\xff'")(message(b"\xff"))
    assert not parse_filter("value.a == 1")(message(b"[" * 100_000))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", "expected a field .*found the end at 1"),
        ("value.n ==", "found the end at 11"),
        ("value.n = 3", "cannot read '= 3'"),
        ("(value.n", "expected a closing parenthesis, found the end"),
        ("value.n 3", "expected `and`, `or` or the end, found '3' at 9"),
        ("what == 3", "expected a field .*found 'what' at 1"),
        ("header == 3", "header needs one name"),
        ("value. == 3", "expected a name"),
        ("value[x] == 3", "expected a place or a name in quotes"),
        ("value[1 == 3", "expected `]`"),
        ("value ~ 3", "expected a regular expression in quotes"),
        ("value ~ '('", "is no regular expression"),
        ("value == 'open", "cannot read"),
        ("not " * 200 + "true", "more than 100"),
        ("(" * 200 + "true" + ")" * 200, "more than 100"),
        ("__import__('os')", "expected a field"),
    ],
)
def test_what_cannot_be_understood_is_told(expression: str, expected: str) -> None:
    with pytest.raises(FilterError, match=expected):
        parse_filter(expression)
