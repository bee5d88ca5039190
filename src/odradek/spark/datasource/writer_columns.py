"""Columns of the topic sink: which column becomes which part of a record. Pure.

=========  ===========================================  ==========================================
column     type                                         meaning
=========  ===========================================  ==========================================
value      string or binary                             required; null is a tombstone
key        string or binary                             chooses the partition, unless null
headers    array<struct<key:string,value:binary>>       null or empty: none
topic      string                                       wins over the option; null: the option
partition  int                                          null: by the key
=========  ===========================================  ==========================================

`offset`, `timestamp` and `timestampType` of a source are allowed and ignored: the topic assigns
them. Any other column is an error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from odradek.spark.datasource.option_values import OptionsError

__all__ = ["SinkColumns", "parse_sink_columns"]

_TEXT: Final = ("string", "binary")
_HEADERS: Final = ("array<struct<key:string,value:binary>>",)
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": _HEADERS,
    "topic": ("string",),
    "partition": ("int",),
}
_LEFT_OUT: Final = frozenset({"offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The columns that exist beside `value`."""

    has_key: bool = False
    has_headers: bool = False
    has_topic: bool = False
    has_partition: bool = False


def parse_sink_columns(
    schema: Iterable[tuple[str, str]], *, topic: str | None, is_writing_headers: bool
) -> SinkColumns:
    """Checks the columns of the rows to write.

    Args:
        schema: Names and types of the columns, as Spark writes types.
        topic: The value of the option.
        is_writing_headers: Whether `headers` is written.

    Raises:
        OptionsError: A column is missing, duplicate, of a wrong type or unknown.
    """
    columns = list(schema)
    problems = [problem for column in columns if (problem := _problem_of(*column)) is not None]
    names = [name for name, _ in columns]
    problems += [
        f"column {name}: there {names.count(name)} times"
        for name in _TYPES
        if names.count(name) > 1
    ]
    if "value" not in names:
        came = ", ".join(names) or "none"
        problems.append(f"column value: required, of type string or binary; there are {came}")
    if topic is None and "topic" not in names:
        problems.append("topic: required, as an option or as a column")
    if problems:
        raise OptionsError(problems)
    return SinkColumns(
        has_key="key" in names,
        has_headers=is_writing_headers and "headers" in names,
        has_topic="topic" in names,
        has_partition="partition" in names,
    )


def _problem_of(name: str, kind: str) -> str | None:
    if name in _LEFT_OUT:
        return None
    expected = _TYPES.get(name)
    if expected is None:
        near = get_close_matches(name.lower(), _TYPES, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"column {name}: unknown{hint}; a sink takes {', '.join(_TYPES)}: select these"
    # A collation, which follows a space, affects comparisons, not bytes.
    if kind.partition(" ")[0] not in expected:
        return f"column {name}: expected {' or '.join(expected)}, found {kind}; cast it"
    return None
