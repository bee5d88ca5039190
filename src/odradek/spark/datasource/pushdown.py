"""Filters of a query that reduce the records to read, with `pushFilters=true`.

Filters can narrow the partition, the offset, and the earliest timestamp. Brokers find the first
record at or after a time, so records before it are not read; records after it may still have an
earlier time, so Spark checks them again. Filters on partition and offset are exact and need no
check.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.spark.datasource.lookup import Lookup
from odradek.spark.datasource.splits import Split

__all__ = ["Pushed", "push_filters"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Range:
    """Whole numbers from `start` up to `end`, exclusive."""

    start: int = 0
    end: int = _MAX_OFFSET

    def narrowed(self, one: Filter, value: int) -> "_Range":
        """The part of the range that passes a comparison."""
        match one:
            case EqualTo():
                return _Range(max(self.start, value), min(self.end, value + 1))
            case GreaterThan():
                return _Range(max(self.start, value + 1), self.end)
            case GreaterThanOrEqual():
                return _Range(max(self.start, value), self.end)
            case LessThan():
                return _Range(self.start, min(self.end, value))
            case LessThanOrEqual():
                return _Range(self.start, min(self.end, value + 1))
        return self


_COMPARISONS: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filters of a query that are applied here."""

    partitions: _Range = field(default_factory=_Range)
    # None: any.
    listed: frozenset[int] | None = None
    offsets: _Range = field(default_factory=_Range)
    not_before_ms: int | None = None

    def narrowed(self, ranges: Sequence[Split], lookup: Lookup) -> list[Split]:
        """The parts of ranges that may contain matching records."""
        left = [
            replace(
                one,
                start=max(one.start, self.offsets.start),
                end=min(one.end, self.offsets.end),
            )
            for one in ranges
            if self.partitions.start <= one.partition < self.partitions.end
            and (self.listed is None or one.partition in self.listed)
        ]
        left = [one for one in left if one.size > 0]
        if self.not_before_ms is not None and left:
            first = lookup.offsets({one.tp: self.not_before_ms for one in left})
            left = [
                replace(one, start=max(one.start, first[one.tp]))
                for one in left
                if first[one.tp] >= 0
            ]
        return [one for one in left if one.size > 0]


def push_filters(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """Returns the filters that can be applied here, and those Spark still has to check."""
    pushed, rest = Pushed(), []
    for one in filters:
        taken, is_exact = _push(pushed, one)
        pushed = taken
        if not is_exact:
            rest.append(one)
    return pushed, rest


def _push(pushed: Pushed, one: Filter) -> tuple[Pushed, bool]:
    """Adds one filter; returns the result, and whether Spark need not check the filter again."""
    if isinstance(one, In):
        values = [value for value in one.value if _is_whole(value)]
        if one.attribute == ("partition",) and len(values) == len(one.value):
            listed = frozenset(values)
            return replace(
                pushed, listed=listed if pushed.listed is None else pushed.listed & listed
            ), True
        return pushed, False
    if not isinstance(one, _COMPARISONS):
        return pushed, False
    match one.attribute:
        case ("partition",) if _is_whole(one.value):
            return replace(pushed, partitions=pushed.partitions.narrowed(one, one.value)), True
        case ("offset",) if _is_whole(one.value):
            return replace(pushed, offsets=pushed.offsets.narrowed(one, one.value)), True
        case ("timestamp",) if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            return _with_timestamp(pushed, one.value), False
    return pushed, False


def _with_timestamp(pushed: Pushed, value: object) -> Pushed:
    if not isinstance(value, datetime) or value.tzinfo is None or value < _EPOCH:
        return pushed
    not_before_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    return replace(pushed, not_before_ms=max(pushed.not_before_ms or 0, not_before_ms))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
