"""Java's properties format, corner by corner, and KEY=VALUE arguments."""

import pytest

from odradek.config import parse_assignments, parse_properties
from odradek.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param("a=1\nb=2\n", {"a": "1", "b": "2"}, id="equals"),
        pytest.param("a:1\rb : 2\r\nc 3", {"a": "1", "b": "2", "c": "3"}, id="separators"),
        pytest.param("a\t\f=\t1", {"a": "1"}, id="blanks around the separator"),
        pytest.param("a==1\nb=:2\nc  :  =3", {"a": "=1", "b": ":2", "c": "=3"}, id="one separator"),
        pytest.param("  a = 1  ", {"a": "1  "}, id="blanks at the end stay"),
        pytest.param("# x=1\n  ! y=2\n\n \t\nz=3", {"z": "3"}, id="comments and blank lines"),
        pytest.param("a=1 # no comment", {"a": "1 # no comment"}, id="comments are whole lines"),
        pytest.param("# comment \\\na=1", {"a": "1"}, id="comments are not joined"),
        pytest.param("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}, id="continuation"),
        pytest.param("a=1\\\n#2", {"a": "1#2"}, id="no comment in a continuation"),
        pytest.param("a=1\\\n\nb=2", {"a": "1", "b": "2"}, id="blank line ends a continuation"),
        pytest.param("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}, id="even backslashes do not join"),
        pytest.param("a=1\\\\\\\n2", {"a": "1\\2"}, id="odd backslashes join"),
        pytest.param("a=1\\", {"a": "1"}, id="continuation at the end"),
        pytest.param("lo\\\n  ng = v", {"long": "v"}, id="continuation in the key"),
        pytest.param("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}, id="escaped separators"),
        pytest.param("a=\\t\\n\\r\\f\\q\\=", {"a": "\t\n\r\fq="}, id="escapes"),
        pytest.param("a=\\u00e9\\u4E2d", {"a": "é中"}, id="unicode escapes"),
        pytest.param("a=\\ud83d\\ude00", {"a": "😀"}, id="surrogate pair"),
        pytest.param("a=\\ud83d!", {"a": "\ufffd!"}, id="lone surrogate"),
        pytest.param("a", {"a": ""}, id="key alone"),
        pytest.param("=v", {"": "v"}, id="empty key"),
        pytest.param("a=1\na=2", {"a": "2"}, id="last one counts"),
        pytest.param("a=é\u2028b", {"a": "é\u2028b"}, id="only CR and LF end a line"),
        pytest.param(
            "log.dirs=/a,/b\nlisteners=PLAINTEXT://:9092",
            {"log.dirs": "/a,/b", "listeners": "PLAINTEXT://:9092"},
            id="as in server.properties",
        ),
    ],
)
def test_properties(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("escape", ["\\u12", "\\u12g4", "\\u", "\\u 123"])
def test_malformed_unicode_escape(escape: str) -> None:
    with pytest.raises(ConfigError, match=r"line 2.*four hexadecimal digits"):
        parse_properties(f"a=1\nsecret=hunter{escape}")


def test_assignments() -> None:
    assert parse_assignments(["log.dirs=/a,/b", " x =a=b ", "y="]) == {
        "log.dirs": "/a,/b",
        "x": "a=b ",
        "y": "",
    }


@pytest.mark.parametrize("argument", ["log.dirs", "=v", ""])
def test_refused_assignments(argument: str) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        parse_assignments([argument])
