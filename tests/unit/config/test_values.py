"""Values from text and from Python, and what is refused with which reason."""

import pytest

from odradek.config import HIDDEN, Kind, Password, Value, format_value
from odradek.config.values import parse_value


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.BOOLEAN, True, True),
        (Kind.STRING, " kept ", " kept "),
        (Kind.STRING, "", ""),
        (Kind.INT, " 42 ", 42),
        (Kind.INT, "+7", 7),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.INT, 5, 5),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, 2, 2.0),
        (Kind.DOUBLE, 2.5, 2.5),
        (Kind.LIST, "a, b ,c", ("a", "b", "c")),
        (Kind.LIST, "  ", ()),
        (Kind.LIST, "a,,b", ("a", "", "b")),
        (Kind.LIST, ["a", "b"], ("a", "b")),
        (Kind.PASSWORD, " s ", Password(" s ")),
        (Kind.PASSWORD, Password("s"), Password("s")),
    ],
)
def test_values(kind: Kind, raw: object, value: Value) -> None:
    parsed = parse_value(kind, raw)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        (Kind.BOOLEAN, "yes", "expected true or false"),
        (Kind.BOOLEAN, 1, "not a int"),
        (Kind.INT, "", "a whole number of 32 bits"),
        (Kind.INT, "1.0", "a whole number"),
        (Kind.INT, "1_000", "a whole number"),
        (Kind.INT, "٣", "a whole number"),
        (Kind.INT, "9" * 5000, "a whole number"),
        (Kind.INT, "2147483648", "between -2147483648 and 2147483647"),
        (Kind.INT, True, "not a boolean"),
        (Kind.INT, 1.5, "not a float"),
        (Kind.SHORT, 32768, "between -32768 and 32767"),
        (Kind.LONG, str(2**63), "64 bits"),
        (Kind.DOUBLE, "fast", "a finite number"),
        (Kind.DOUBLE, "1_0", "a finite number"),
        (Kind.DOUBLE, "nan", "a finite number"),
        (Kind.DOUBLE, float("inf"), "a finite number"),
        (Kind.DOUBLE, True, "not a boolean"),
        (Kind.LIST, [1], "a list of strings"),
        (Kind.LIST, 1, "expected a list"),
        (Kind.STRING, 1, "expected text"),
        (Kind.PASSWORD, 1, "expected text"),
    ],
)
def test_refused_values(kind: Kind, raw: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_value(kind, raw)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (0.5, "0.5"),
        ("s", "s"),
        (("a", "b"), "a,b"),
        ((), ""),
        (Password("secret"), HIDDEN),
        (None, None),
    ],
)
def test_text_forms(value: Value, text: str | None) -> None:
    assert format_value(value) == text


def test_a_password_does_not_show_itself() -> None:
    password = Password("secret")
    assert f"{password} {password!r}" == f"{HIDDEN} {HIDDEN}"
    assert password.reveal() == "secret"
    assert password == Password("secret")
    assert password != Password("other")
    assert password != "secret"
    assert len({password, Password("secret")}) == 1
