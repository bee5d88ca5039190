"""Holds the rows a test expects against the rows that came. Pure.

Compared are the columns that the expected rows name; one that a row does not name is expected to be
null. Expected values come from YAML, so they are read as what came in their place: an ISO-8601 text
as a time (UTC where it names no zone), a text as bytes or as a decimal, a map as a struct. Doubles
are equal within 1e-9, relative.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from odradek.values import dataclass

__all__ = ["Difference", "compare_rows", "is_equal", "shown_row"]

_TOLERANCE: Final = 1e-9
_MAX_SHOWN: Final = 20  # Rows of a difference that are printed.


@dataclass(frozen=True, slots=True)
class Difference:
    """What is wrong with the rows of one name; nothing if both are empty and the order is right."""

    name: str
    missing: tuple[Mapping[str, Any], ...]
    surplus: tuple[Mapping[str, Any], ...]
    is_order_wrong: bool = False

    def __bool__(self) -> bool:
        return bool(self.missing or self.surplus or self.is_order_wrong)

    def lines(self) -> list[str]:
        """The difference for a reader."""
        if self.is_order_wrong:
            return [f"{self.name}: the rows are right, their order is not"]
        return [
            *_listed(f"{self.name}: missing", "-", self.missing),
            *_listed(f"{self.name}: surplus", "+", self.surplus),
        ]


def compare_rows(
    name: str,
    expected: Sequence[Mapping[str, Any]],
    came: Sequence[Mapping[str, Any]],
    *,
    is_ordered: bool = False,
) -> Difference:
    """Holds expected rows against those that came, as a multiset unless the order counts."""
    columns = list(dict.fromkeys(column for row in expected for column in row))
    wanted = [{column: row.get(column) for column in columns} for row in expected]
    seen = [_picked(row, columns) for row in came]
    left = list(range(len(seen)))
    missing = []
    for row in wanted:
        found = next((number for number in left if _is_row_equal(row, seen[number])), None)
        if found is None:
            missing.append(row)
        else:
            left.remove(found)
    surplus = [seen[number] for number in left]
    is_wrong = (
        is_ordered
        and not missing
        and not surplus
        and not all(_is_row_equal(*pair) for pair in zip(wanted, seen, strict=True))
    )
    return Difference(name, tuple(missing), tuple(surplus), is_wrong)


def is_equal(expected: Any, came: Any) -> bool:
    """Whether a value of YAML says the same as a value of a row."""
    if expected is None or came is None:
        return expected is None and came is None
    if isinstance(came, bool) or isinstance(expected, bool):
        return isinstance(came, bool) and isinstance(expected, bool) and came == expected
    if isinstance(came, (int, float, Decimal)):
        return _is_number_equal(expected, came)
    if isinstance(came, datetime):
        time = _as_time(expected)
        return time is not None and time == (came if came.tzinfo else came.replace(tzinfo=UTC))
    if isinstance(came, date):
        return str(expected) == came.isoformat()
    if isinstance(came, (bytes, bytearray)):
        return isinstance(expected, (str, bytes)) and _as_bytes(expected) == bytes(came)
    if isinstance(came, Mapping):
        return (
            isinstance(expected, Mapping)
            and {str(key) for key in expected} <= {str(key) for key in came}
            and all(is_equal(expected.get(key), value) for key, value in came.items())
        )
    if isinstance(came, (list, tuple)):
        return (
            isinstance(expected, (list, tuple))
            and len(expected) == len(came)
            and all(map(is_equal, expected, came))
        )
    return bool(expected == came)


def shown_row(row: Mapping[str, Any]) -> str:
    """A row in one line, as it could stand in the file."""
    return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in row.items()) + "}"


def _picked(row: Mapping[str, Any], columns: Sequence[str]) -> Mapping[str, Any]:
    """The columns that are compared; a row of which none is expected is shown whole."""
    if not columns:
        return dict(row)
    return {column: row[column] for column in columns if column in row}


def _is_row_equal(expected: Mapping[str, Any], came: Mapping[str, Any]) -> bool:
    return expected.keys() == came.keys() and all(
        is_equal(value, came[column]) for column, value in expected.items()
    )


def _is_number_equal(expected: Any, came: float | Decimal) -> bool:
    if isinstance(came, Decimal) or isinstance(expected, Decimal):
        try:
            return Decimal(str(expected)) == Decimal(str(came))
        except InvalidOperation:
            return False
    if not isinstance(expected, (int, float)):
        return False
    if isinstance(expected, int) and isinstance(came, int):
        return expected == came
    if math.isnan(expected) or math.isnan(came):
        return math.isnan(expected) and math.isnan(came)
    return math.isclose(expected, came, rel_tol=_TOLERANCE)


def _as_time(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _listed(title: str, sign: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = [f"{title} {len(rows)} {'row' if len(rows) == 1 else 'rows'}"]
    lines += [f"  {sign} {shown_row(row)}" for row in rows[:_MAX_SHOWN]]
    if len(rows) > _MAX_SHOWN:
        lines.append(f"  {sign} … {len(rows) - _MAX_SHOWN} more")
    return lines


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case datetime():
            time = value if value.tzinfo else value.replace(tzinfo=UTC)
            return f'"{time.astimezone(UTC).isoformat().replace("+00:00", "Z")}"'
        case date():
            return f'"{value.isoformat()}"'
        case bytes() | bytearray():
            return repr(bytes(value).decode(errors="backslashreplace"))
        case str():
            return f'"{value}"' if not value or not value.isidentifier() else value
        case Mapping():
            return shown_row(value)
        case list() | tuple():
            return "[" + ", ".join(map(_shown, value)) + "]"
        case _:
            return str(value)
