"""Counts of the errors in an answer, for the metric ErrorsPerSec.

Every ``error_code`` counts, that of the whole as well as that of each row, and NONE like the
others. Their places are taken from the declaration, once per message:

    CreateTopicsResponse   ->  topics[*].error_code
    DescribeLogDirsResponse -> error_code, results[*].error_code
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from odradek.errors import ErrorCode
from odradek.protocol.schema import ArrayOf, Message, MessageType

__all__ = ["count_errors"]

_Collector: TypeAlias = Callable[[Any, dict[ErrorCode, int]], None]


def count_errors(message: Message) -> Mapping[ErrorCode, int]:
    """Errors of an answer with their number; empty if it has no field for one."""
    counts: dict[ErrorCode, int] = {}
    collector = _collector(type(message))
    if collector is not None:
        collector(message, counts)
    return counts


@cache
def _collector(cls: MessageType) -> _Collector | None:
    """A function that counts the errors of a message and its rows; None if they have none."""
    has_error = any(field.name == "error_code" for field in cls.wire_fields)
    lists: list[tuple[str, _Collector]] = []
    for field in cls.wire_fields:
        if isinstance(field.type, ArrayOf) and isinstance(field.type.element, MessageType):
            inner = _collector(field.type.element)
            if inner is not None:
                lists.append((field.name, inner))
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
