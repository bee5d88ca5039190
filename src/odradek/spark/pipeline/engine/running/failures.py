"""Extracts the reason from Spark's report of a failed query. Pure.

Such a report is pages long: the plan, the Java stack, and the traceback of Python code that ran on
a worker. The reason is one line of it.
"""

import re
from typing import Final

from odradek.lazy_dataclass import dataclass

__all__ = ["Failure", "parse_failure"]

_MAX_MESSAGE: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(
    r"^(?:[a-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Warning|Exit))\b:? ?(.*)"
)
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ?(.*)")
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"})
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_CAUSED: Final = re.compile(r"^Caused by: ([\w.$]+)(?:: (.*))?$")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended.

    Attributes:
        kind: Spark's error condition, or the class of the exception.
        message: The reason in one line.
        position: The start of the batch that failed, as `topic-partition@offset, …`.
    """

    kind: str
    message: str
    position: str = ""

    def __str__(self) -> str:
        place = f" (batch from {self.position})" if self.position else ""
        return f"{self.kind}: {self.message}{place}"


def parse_failure(text: str, *, position: str = "") -> Failure:
    """The reason in Spark's report."""
    lines = [line.strip() for line in text.splitlines()]
    python = _python_error(lines)
    if python is not None:
        return Failure(*python, position)
    for line in lines:
        for kind, message in _conditions(line):
            if kind not in _WRAPPERS and message:
                return Failure(kind, _short(message), position)
    first = next((line for line in lines if line), "no reason given")
    kind, _, rest = first.partition(": ")
    if rest and re.fullmatch(r"[\w.$]+", kind):
        return Failure(kind.rpartition(".")[2], _short(rest), position)
    return Failure("Error", _short(first), position)


def _python_error(lines: list[str]) -> tuple[str, str] | None:
    """The last error of the last traceback: the one that was not caught."""
    # Spark Connect adds a text before it, on the same line.
    tracebacks = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not tracebacks:
        return None
    begin = tracebacks[-1] + 1
    found = None
    for line in lines[begin:]:
        if line.startswith(("at ", "Caused by:", "===")):
            break
        if match := _PYTHON_ERROR.match(line):
            found = match[1], _short(match[2])
    return found


def _conditions(line: str) -> list[tuple[str, str]]:
    """Spark's conditions in a line, the outermost first."""
    found = []
    rest = line
    while match := _CONDITION.search(rest):
        found.append((match[1], _NOISE.sub("", match[2])))
        rest = match[2]
    return found


def _short(message: str) -> str:
    plain = _NOISE.sub("", message).strip()
    return plain if len(plain) <= _MAX_MESSAGE else plain[: _MAX_MESSAGE - 1] + "…"
