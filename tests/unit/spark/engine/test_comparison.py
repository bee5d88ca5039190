"""Expected rows against rows that came."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from odradek.spark.pipeline.engine.comparison import compare_rows, is_equal, shown_row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "came", "equal"),
    [
        (None, None, True),
        (None, 0, False),
        (0, None, False),
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (False, False, True),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.0 + 1e-8, False),
        (1e300, 1e300 * (1 + 1e-10), True),
        (float("nan"), float("nan"), True),
        (1.0, float("nan"), False),
        (2**53, 2**53 + 1, False),
        ("1", 1, False),
        ("2026-01-01T12:00:00Z", NOON, True),
        ("2026-01-01T13:00:00+01:00", NOON, True),
        ("2026-01-01T12:00:00", NOON, True),
        ("2026-01-01T12:00:00Z", NOON.replace(tzinfo=None), True),
        ("2026-01-01T12:00:00.000001Z", NOON, False),
        ("noon", NOON, False),
        (12, NOON, False),
        ("2026-01-01", date(2026, 1, 1), True),
        ("2026-01-02", date(2026, 1, 1), False),
        ("é", "é".encode(), True),
        (1, b"1", False),
        (1.5, Decimal("1.50"), True),
        ("1.50", Decimal("1.5"), True),
        ("x", Decimal(1), False),
        ({"a": 1}, {"a": 1, "b": None}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "c": None}, {"a": 1}, False),
        ([1, {"a": "2026-01-01T12:00:00Z"}], [1, {"a": NOON}], True),
        ([1], [1, 1], False),
        ("a", ["a"], False),
        ("a", "a", True),
    ],
)
def test_values(expected: Any, came: Any, equal: bool) -> None:
    """12:SP-60: times are ISO-8601 in UTC, doubles equal within 1e-9."""
    assert is_equal(expected, came) is equal


def test_rows_are_a_multiset_of_the_named_columns() -> None:
    """12:SP-60."""
    came: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 2, "b": "z"}]
    assert not compare_rows("t", [{"a": 2}, {"a": 1}, {"a": 2}], came)
    once = compare_rows("t", [{"a": 2}, {"a": 1}], came)
    assert once.missing == ()
    assert once.surplus == ({"a": 2},)
    twice = compare_rows("t", [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}], came)
    assert twice.missing == ({"a": 1},)
    assert twice.surplus == ()


def test_a_column_that_one_row_names_is_null_in_the_others() -> None:
    """12:SP-60."""
    came: list[dict[str, Any]] = [{"a": 1, "b": None}, {"a": 2, "b": 5}]
    assert not compare_rows("t", [{"a": 1}, {"a": 2, "b": 5}], came)
    assert compare_rows("t", [{"a": 1}, {"a": 2}, {"b": 7}], came)


def test_order_counts_only_where_it_is_asked_for() -> None:
    """12:SP-60."""
    came = [{"a": 1}, {"a": 2}]
    assert not compare_rows("t", [{"a": 2}, {"a": 1}], came)
    wrong = compare_rows("t", [{"a": 2}, {"a": 1}], came, is_ordered=True)
    assert wrong.lines() == ["t: the rows are right, their order is not"]
    assert not compare_rows("t", [{"a": 1}, {"a": 2}], came, is_ordered=True)
    assert compare_rows("t", [{"a": 1}], came, is_ordered=True).surplus == ({"a": 2},)


def test_no_rows_expected_shows_all_of_those_that_came() -> None:
    """12:SP-60."""
    assert not compare_rows("t", [], [])
    assert compare_rows("t", [], [{"a": 1, "b": "x y"}]).lines() == [
        "t: surplus 1 row",
        '  + {a: 1, b: "x y"}',
    ]


def test_many_rows_are_cut() -> None:
    lines = compare_rows("t", [{"a": n} for n in range(30)], []).lines()
    assert lines[0] == "t: missing 30 rows"
    assert lines[-1] == "  - … 10 more"
    assert len(lines) == 22


def test_rows_are_shown_as_the_file_would_have_them() -> None:
    row = {
        "n": None,
        "b": True,
        "t": NOON,
        "d": date(2026, 1, 1),
        "x": b"\xffa",
        "l": [1, "a"],
        "m": {"k": 1.5},
        "e": "",
    }
    assert shown_row(row) == (
        '{n: null, b: true, t: "2026-01-01T12:00:00Z", d: "2026-01-01", '
        "x: '\\\\xffa', l: [1, a], m: {k: 1.5}, e: \"\"}"
    )
