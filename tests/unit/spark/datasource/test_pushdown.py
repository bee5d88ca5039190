"""Filters that narrow what is read."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.spark.datasource.pushdown import push_filters
from odradek.spark.datasource.splits import Split
from tests.unit.spark.datasource.fake_lookup import FakeLog, FakeLookup

LOOKUP = FakeLookup({"t": [FakeLog(100), FakeLog(100), FakeLog(100)]})
RANGES = [Split(topic="t", topic_id="", partition=number, start=10, end=90) for number in range(3)]


def narrowed(*filters: Filter) -> tuple[list[tuple[int, int, int]], list[Filter]]:
    pushed, rest = push_filters(filters)
    left = pushed.narrowed(RANGES, LOOKUP)
    return [(one.partition, one.start, one.end) for one in left], rest


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("partition",), 1)], [(1, 10, 90)]),
        ([GreaterThan(("partition",), 0), LessThan(("partition",), 2)], [(1, 10, 90)]),
        ([In(("partition",), (0, 2, 9))], [(0, 10, 90), (2, 10, 90)]),
        ([In(("partition",), (0, 2)), In(("partition",), (2, 1))], [(2, 10, 90)]),
        ([EqualTo(("partition",), 1), EqualTo(("offset",), 17)], [(1, 17, 18)]),
        (
            [GreaterThanOrEqual(("offset",), 50), LessThanOrEqual(("offset",), 60)],
            [(0, 50, 61), (1, 50, 61), (2, 50, 61)],
        ),
        ([GreaterThan(("offset",), 88)], [(0, 89, 90), (1, 89, 90), (2, 89, 90)]),
        ([LessThan(("offset",), 10)], []),
        ([EqualTo(("offset",), 5), EqualTo(("offset",), 50)], []),
    ],
)
def test_partition_and_offset_are_exact(
    filters: list[Filter], expected: list[tuple[int, int, int]]
) -> None:
    """12:SP-30: Spark need not check them again."""
    assert narrowed(*filters) == (expected, [])


@pytest.mark.parametrize("kind", [EqualTo, GreaterThan, GreaterThanOrEqual])
def test_a_time_skips_what_lies_before_it(kind: type[Filter]) -> None:
    """12:SP-30: and Spark checks the rest. Record 40 has the timestamp 1040."""
    later = kind(("timestamp",), datetime.fromtimestamp(1.04, UTC))  # type: ignore[call-arg]
    assert narrowed(EqualTo(("partition",), 0), later) == ([(0, 40, 90)], [later])


def test_a_time_after_all_records_leaves_nothing() -> None:
    """12:SP-30."""
    later = GreaterThan(("timestamp",), datetime.fromtimestamp(9.0, UTC))
    assert narrowed(later) == ([], [later])


@pytest.mark.parametrize(
    "other",
    [
        LessThan(("timestamp",), datetime.fromtimestamp(1.04, UTC)),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),  # noqa: DTZ001 - whose zone nobody knows
        Not(EqualTo(("partition",), 1)),
        In(("offset",), (1, 2)),
        IsNotNull(("key",)),
        EqualTo(("value",), b"x"),
        EqualTo(("partition",), None),
        EqualTo(("headers", "partition"), 1),
    ],
)
def test_other_filters_are_left_to_spark(other: Filter) -> None:
    """12:SP-30."""
    assert narrowed(other) == ([(0, 10, 90), (1, 10, 90), (2, 10, 90)], [other])
