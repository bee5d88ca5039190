"""Extracts the reason from Spark's report of a failed query. Pure.

Such a report is pages long: the plan, the Java stack, and the traceback of Python code that ran on
a worker. The reason is one line of it.
"""

import re
from typing import Final

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.engine.problems import PipelineError, StageError

__all__ = ["Failure", "QueryStartError", "failure_of_start", "parse_failure"]

_MAX_MESSAGE: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(
    r"^(?:[a-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Warning|Exit))\b:? ?(.*)"
)
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ?(.*)")
_WRAPPERS: Final = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"})
_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")
_CONTEXT: Final = re.compile(r"== SQL .*==")
_STATE: Final = re.compile(r"SQLSTATE: (\w{5})")
# Classes of SQLSTATE: features, cardinality, data, constraints, the query, errors raised by it.
_FINAL_CLASSES: Final = frozenset({"0A", "21", "22", "23", "42", "P0"})
_FINAL_KINDS: Final = frozenset(
    {
        "DataLossError",
        "JdbcTableError",
        "OptionsError",
        "RecordTooLargeError",
        "StageError",
        "TableMismatchError",
    }
)
_CODE_NAME: Final = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")
_FINAL_CODES: Final = frozenset(
    code.name
    for code in (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
# Of a source whose topic is missing at the start of its query.
_NO_TOPIC: Final = "does not exist; create the topic first"
_START_SIGNS: Final = (
    "STREAMING_PYTHON_RUNNER_INITIALIZATION",
    "Python worker failed to connect back",
    "java.net.SocketTimeoutException: Accept timed out",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended.

    Attributes:
        kind: Spark's error condition, or the class of the exception.
        message: The reason in one line.
        position: The offsets of the batch that failed, as `topic-partition from 0 to 9, …`.
        place: The part of the file that failed, as `FILE:LINE:COLUMN`, if it is known.
        is_final: Whether the same would fail again: the data, the query or the checkpoint has to
            change first.
        is_of_start: Whether Spark could not start a Python process, which says nothing about the
            pipeline.
        fragment: The text of the SQL that failed, if Spark says it.
    """

    kind: str
    message: str
    position: str = ""
    place: str = ""
    is_final: bool = False
    is_of_start: bool = False
    fragment: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        batch = f" (in the batch of {self.position})" if self.position else ""
        return f"{place}{self.kind}: {self.message}{batch}"


class QueryStartError(PipelineError):
    """Spark refuses a query, or cannot start it."""

    def __init__(self, name: str, failure: Failure) -> None:
        super().__init__(f"Spark does not start the query of {name!r}: {failure}")
        self.failure = failure


def failure_of_start(error: PipelineError) -> Failure:
    """The failure that a query has which cannot be started again."""
    if isinstance(error, QueryStartError):
        return error.failure
    return Failure(type(error).__name__, str(error), is_final=isinstance(error, StageError))


def parse_failure(text: str, *, position: str = "") -> Failure:
    """The reason in Spark's report."""
    lines = [line.strip() for line in text.splitlines()]
    kind, message = _reason(lines)
    return Failure(
        kind,
        message,
        position,
        is_final=_is_final(text, kind, message),
        is_of_start=any(sign in text for sign in _START_SIGNS),
        fragment=_fragment(text.splitlines()),
    )


def _reason(lines: list[str]) -> tuple[str, str]:
    """Condition or class, and message."""
    if (python := _python_error(lines)) is not None:
        # Spark's own errors in a function of ours come with their condition.
        for kind, message in _conditions(python[1]):
            if message:
                return kind, _short(message)
        return python
    for line in lines:
        for kind, message in _conditions(line):
            if kind not in _WRAPPERS and message:
                return kind, _short(message)
    first = next((line for line in lines if line), "no reason given")
    kind, _, rest = first.partition(": ")
    if rest and re.fullmatch(r"[\w.$]+", kind):
        return kind.rpartition(".")[2], _short(rest)
    return "Error", _short(first)


def _is_final(text: str, kind: str, message: str) -> bool:
    """Whether another attempt fails in the same way."""
    if any(state[:2] in _FINAL_CLASSES for state in _STATE.findall(text)):
        return True
    if kind in _FINAL_KINDS or _NO_TOPIC in message:
        return True
    return any(name in _FINAL_CODES for name in _CODE_NAME.findall(message))


def _fragment(lines: list[str]) -> str:
    """The text that Spark marks with carets below a line of SQL."""
    for number, line in enumerate(lines):
        if not _CONTEXT.match(line.strip()):
            continue
        for snippet, carets in zip(lines[number + 1 :], lines[number + 2 :], strict=False):
            if marked := re.fullmatch(r"( *)(\^+) *", carets):
                return snippet[marked.start(2) : marked.end(2)]
            if not snippet.strip():
                break
    return ""


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
