"""Counts of the errors in an answer, for the metric ErrorsPerSec.

Every ``error_code`` counts, that of the whole as well as that of each row, and NONE like the
others. Their places are taken from the declaration, once per message:

    CreateTopicsResponse   ->  topics[*].error_code
    DescribeLogDirsResponse -> error_code, results[*].error_code
"""

from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any, TypeAlias

from odradek.errors import ErrorCode
from odradek.protocol.schema import ArrayOf, Message, MessageType

__all__ = ["count_errors", "count_errors_steps"]

_Collector: TypeAlias = Callable[[Any, dict[ErrorCode, int]], None]


def count_errors(message: Message) -> Mapping[ErrorCode, int]:
    """Errors of an answer with their number; empty if it has no field for one."""
    counts: dict[ErrorCode, int] = {}
    collector = _collector(type(message))
    if collector is not None:
        collector(message, counts)
    return counts


def count_errors_steps(message: Message) -> Generator[None, None, Mapping[ErrorCode, int]]:
    """As `count_errors`, for a long answer: yields after each row."""
    counts: dict[ErrorCode, int] = {}
    yield from _collect_steps(message, counts)
    return counts


def _collect_steps(message: Message, counts: dict[ErrorCode, int]) -> Generator[None, None, None]:
    has_error, lists = _places(type(message))
    if has_error:
        code = ErrorCode(message.error_code)  # type: ignore[attr-defined]  # as declared
        counts[code] = counts.get(code, 0) + 1
    for name, row_type in lists:
        has_lists = bool(_places(row_type)[1])
        collect = _collector(row_type)
        for row in getattr(message, name) or ():
            if has_lists:
                yield from _collect_steps(row, counts)
            elif collect is not None:
                collect(row, counts)
            yield


@cache
def _places(cls: MessageType) -> tuple[bool, tuple[tuple[str, MessageType], ...]]:
    """Whether a message has an error of its own, and its lists whose rows have errors."""
    lists = tuple(
        (field.name, field.type.element)
        for field in cls.wire_fields
        if isinstance(field.type, ArrayOf)
        and isinstance(field.type.element, MessageType)
        and any(_places(field.type.element))
    )
    return any(field.name == "error_code" for field in cls.wire_fields), lists


@cache
def _collector(cls: MessageType) -> _Collector | None:
    """A function that counts the errors of a message and its rows; None if they have none."""
    has_error, places = _places(cls)
    lists = [(name, inner) for name, row in places if (inner := _collector(row)) is not None]
    if not has_error and not lists:
        return None

    def collect(message: Any, counts: dict[ErrorCode, int]) -> None:
        if has_error:
            code = ErrorCode(message.error_code)
            counts[code] = counts.get(code, 0) + 1
        for name, inner in lists:
            for row in getattr(message, name) or ():
                inner(row, counts)

    return collect
