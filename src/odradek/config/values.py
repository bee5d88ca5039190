"""Values of settings: their kinds, their text forms, and secrets that print as `[hidden]`."""

import math
import re
from enum import Enum

__all__ = ["HIDDEN", "Kind", "Password", "Value", "format_value", "parse_value"]

# Printed instead of a secret, on terminals and in logs.
HIDDEN = "[hidden]"

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Kind(Enum):
    """Kinds of values, by Kafka's names."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    SHORT = "short"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    PASSWORD = "password"  # noqa: S105 - a kind, not a secret


class Password:
    """A secret: only `reveal` returns it; printing and logging show `[hidden]`."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reveal(self) -> str:
        return self._secret

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self._secret == other._secret

    def __hash__(self) -> int:
        return hash(self._secret)


Value = bool | int | float | str | tuple[str, ...] | Password | None

_INTEGER_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}

_PYTHON_TYPES: dict[Kind, type] = {
    Kind.BOOLEAN: bool,
    Kind.STRING: str,
    Kind.INT: int,
    Kind.SHORT: int,
    Kind.LONG: int,
    Kind.DOUBLE: float,
    Kind.LIST: tuple,
    Kind.PASSWORD: Password,
}


def python_type(kind: Kind) -> type:
    return _PYTHON_TYPES[kind]


def parse_value(kind: Kind, raw: object) -> Value:
    """Reads a value from text, or returns one that has the right type already.

    Numbers, booleans and lists ignore surrounding blanks; strings and passwords keep them.

    Raises:
        ValueError: With the reason, which never repeats the value: it may be a secret.
    """
    if isinstance(raw, str):
        return _parse_text(kind, raw)
    if kind is Kind.LIST and isinstance(raw, list | tuple):
        if not all(isinstance(item, str) for item in raw):
            raise ValueError("expected a list of strings")
        return tuple(raw)
    if kind is Kind.DOUBLE and type(raw) is int:
        return float(raw)
    if isinstance(raw, bool) and kind is not Kind.BOOLEAN:
        raise ValueError(f"expected {_expected(kind)}, not a boolean")
    if not isinstance(raw, _PYTHON_TYPES[kind]):
        raise ValueError(  # noqa: TRY004 - the operator's value is at fault, not the caller
            f"expected {_expected(kind)}, not a {type(raw).__name__}"
        )
    if isinstance(raw, int) and kind in _INTEGER_BITS:
        return _in_range(kind, raw)
    if isinstance(raw, float) and not math.isfinite(raw):
        raise ValueError(f"expected {_expected(kind)}")
    assert isinstance(raw, bool | float | Password)
    return raw


def format_value(value: Value) -> str | None:
    """The text form Kafka's tools show; a secret stays hidden, and None has no text."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _parse_text(kind: Kind, text: str) -> Value:
    match kind:
        case Kind.STRING:
            return text
        case Kind.PASSWORD:
            return Password(text)
        case Kind.LIST:
            stripped = text.strip()
            return tuple(item.strip() for item in stripped.split(",")) if stripped else ()
        case Kind.BOOLEAN:
            match text.strip().lower():
                case "true":
                    return True
                case "false":
                    return False
            raise ValueError("expected true or false")
        case Kind.DOUBLE:
            return _parse_double(text)
        case Kind.INT | Kind.SHORT | Kind.LONG:
            stripped = text.strip()
            # Twenty characters hold every long; converting thousands of digits only takes time.
            if not _WHOLE_NUMBER.fullmatch(stripped) or len(stripped) > 64:
                raise ValueError(f"expected {_expected(kind)}")
            return _in_range(kind, int(stripped))


def _parse_double(text: str) -> float:
    try:
        number = float(text.strip()) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected {_expected(Kind.DOUBLE)}")
    return number


def _in_range(kind: Kind, number: int) -> int:
    limit = 1 << (_INTEGER_BITS[kind] - 1)
    if not -limit <= number < limit:
        raise ValueError(f"expected {_expected(kind)}, between {-limit} and {limit - 1}")
    return number


def _expected(kind: Kind) -> str:
    match kind:
        case Kind.BOOLEAN:
            return "true or false"
        case Kind.INT | Kind.SHORT | Kind.LONG:
            return f"a whole number of {_INTEGER_BITS[kind]} bits"
        case Kind.DOUBLE:
            return "a finite number"
        case Kind.LIST:
            return "a list"
        case Kind.STRING | Kind.PASSWORD:
            return "text"
