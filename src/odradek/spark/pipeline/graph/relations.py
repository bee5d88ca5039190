"""The known properties of rows between steps, without Spark: columns, event time, state.

A property is true, false, or not known (None): only certain problems become errors.

- A source has the columns of its schema. A SELECT has those it names, `*` being those of its
  inputs; the columns of a Python function are not known.
- Event time: the columns that carry a watermark. `select ts`, `ts as t` and `window(ts, ...)`
  keep it; the result of another expression has none; for `w.start` it is not known.
- Stateful operators: aggregates, joins of two streams, deduplication. Each has the keys of its
  state, as normalised SQL, and whether event time bounds the state.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from odradek.lazy_dataclass import dataclass

__all__ = [
    "RECORD_TIME",
    "Column",
    "Operator",
    "OperatorKind",
    "Relation",
    "any_event_time",
    "both",
    "either",
    "merged",
    "relation_of_dedup",
    "unknown_relation",
    "with_watermark",
]

# The column with the time of a decoded record: dedup uses it where there is no watermark.
RECORD_TIME = "_timestamp"


class OperatorKind(StrEnum):
    """The kinds of stateful operators."""

    AGGREGATE = "aggregate"
    JOIN = "join"
    DEDUP = "dedup"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `event_time` is whether it carries a watermark."""

    name: str
    event_time: bool | None = False
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator.

    Attributes:
        keys: The keys of its state, normalised, in the order of the text.
        bounded: Whether a watermark lets old state be dropped.
        outer: Whether it is a join that also gives rows without a partner.
        step: The transform it is in.
        offset: Its place in the step's SQL.
    """

    kind: OperatorKind
    keys: tuple[str, ...]
    bounded: bool | None
    outer: bool
    step: str
    offset: int


@dataclass(frozen=True, slots=True)
class Relation:
    """The rows of a step.

    Attributes:
        columns: All columns, or None if they are not known.
        event_time: Whether any column carries a watermark.
        operators: The stateful operators up to this step, upstream first.
        streams: The sources that are streams, in the order in which a query reads them; one that
            is read twice is listed twice.
        unrepeatable: Functions up to this step that give another value at each call.
        opaque: Names of the Python functions up to this step.
    """

    is_stream: bool
    columns: tuple[Column, ...] | None
    event_time: bool | None = False
    operators: tuple[Operator, ...] = ()
    streams: tuple[str, ...] = ()
    unrepeatable: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()

    def column(self, name: str) -> Column | None:
        """The column of that name, without regard to case."""
        folded = name.casefold()
        return next((one for one in self.columns or () if one.name.casefold() == folded), None)

    def lacks(self, name: str) -> bool:
        """Whether there is certainly no such column; `a.b` may be a field of `a`."""
        if self.columns is None:
            return False
        return self.column(name) is None and self.column(name.split(".")[0]) is None


def with_watermark(relation: Relation, column: str) -> Relation:
    """The rows with a watermark on one more column."""
    if relation.columns is None:
        columns = None
    else:
        folded = column.casefold()
        columns = tuple(
            Column(one.name, True, one.type) if one.name.casefold() == folded else one
            for one in relation.columns
        )
    return replace(relation, columns=columns, event_time=True)


def unknown_relation(inputs: Iterable[Relation], opaque: tuple[str, ...] = ()) -> Relation:
    """The rows of a step that cannot be analysed."""
    found = tuple(inputs)
    carried = any(one.event_time is not False for one in found)
    return merged(
        found,
        is_stream=any(one.is_stream for one in found),
        columns=None,
        event_time=None if carried else False,
        opaque=opaque,
    )


def relation_of_dedup(relation: Relation, keys: tuple[str, ...], step: str) -> Relation:
    """The rows of a relation after deduplication by keys."""
    if not relation.is_stream:
        return relation
    normalised = tuple(key.casefold() for key in keys)
    bounded = relation.event_time
    if bounded is False and not relation.lacks(RECORD_TIME):
        relation = with_watermark(relation, RECORD_TIME)
        bounded = True if relation.columns is not None else None
    operator = Operator(OperatorKind.DEDUP, normalised, bounded, False, step, 0)
    return replace(relation, operators=(*relation.operators, operator))


def any_event_time(columns: tuple[Column, ...] | None, inputs: Iterable[Relation]) -> bool | None:
    """Whether any column carries a watermark; None if it is not known."""
    if all(one.event_time is False for one in inputs):
        return False
    if columns is None:
        return None
    found: bool | None = False
    for column in columns:
        found = either(found, column.event_time)
    return found


def either(one: bool | None, other: bool | None) -> bool | None:
    """`one or other`, where None means that it is not known."""
    if one or other:
        return True
    return None if one is None or other is None else False


def both(one: bool | None, other: bool | None) -> bool | None:
    """`one and other`, where None means that it is not known."""
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def merged(
    inputs: tuple[Relation, ...],
    *,
    is_stream: bool,
    columns: tuple[Column, ...] | None,
    event_time: bool | None,
    opaque: tuple[str, ...] = (),
) -> Relation:
    """A relation with the operators, streams and functions of all inputs."""
    return Relation(
        is_stream=is_stream,
        columns=columns,
        event_time=event_time,
        operators=tuple(operator for one in inputs for operator in one.operators),
        streams=tuple(stream for one in inputs for stream in one.streams),
        unrepeatable=tuple(dict.fromkeys(name for one in inputs for name in one.unrepeatable)),
        opaque=(*dict.fromkeys(name for one in inputs for name in one.opaque), *opaque),
    )
