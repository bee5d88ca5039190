"""Problems of a pipeline, each with its place and its code; all are reported, not only the first.

| Code | When |
|---|---|
| P01 | not readable YAML, duplicate key, file too large |
| P02 | unknown key |
| P03 | wrong type or value out of range |
| P04 | environment name not set |
| P05 | required key missing |
| P06 | name taken or not allowed |
| P07 | unknown source, transform or column |
| P08 | SQL or DDL that does not parse |
| P09 | reserved column name |
| P10 | schema form not supported |
| P11 | two kinds, or none, where exactly one is asked for |
| P12 | cycle between transforms |
| P13 | transform used by no sink and no test (a warning) |
| P14 | stream-stream join or append aggregate without watermark |
| P15 | checkpoint not usable from this master |
| P16 | output mode the sink cannot take |
| P17 | `exactly_once: true` that cannot be given |
| P18 | `dlq` used without `dlq:` |
| P19 | referenced file or `module:function` not found, or a sink's package (a warning) |
| P20 | test names an unknown source or transform |
"""

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.model import Place

__all__ = ["Problem", "Problems", "Severity", "mask", "suggestion"]

# A shorter text is masked only where it is the whole value: replacing each `1` in a message hides
# the message, not the secret.
_SHORTEST_MASKED_PART = 4


class Severity(StrEnum):
    """Whether the pipeline can be used in spite of a problem."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem; its text is the line that commands print."""

    place: Place
    severity: Severity
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity} {self.code}: {self.message}"


class Problems:
    """Collects problems, in any order."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def error(self, place: Place, code: str, message: str) -> None:
        """Adds a problem with which the pipeline cannot be used."""
        self._found[Problem(place, Severity.ERROR, code, message)] = None

    def warning(self, place: Place, code: str, message: str) -> None:
        """Adds a problem with which the pipeline can be used."""
        self._found[Problem(place, Severity.WARNING, code, message)] = None

    @property
    def has_errors(self) -> bool:
        """Whether the pipeline cannot be used."""
        return any(problem.severity is Severity.ERROR for problem in self._found)

    def in_order(self, *, first_file: str, secrets: Iterable[str]) -> tuple[Problem, ...]:
        """All problems by place, those of `first_file` first, with secrets masked."""
        hidden = sorted(secrets, key=len, reverse=True)
        shown = [
            Problem(one.place, one.severity, one.code, mask(one.message, hidden))
            for one in self._found
        ]
        return tuple(sorted(shown, key=lambda problem: _order(problem, first_file)))


def _order(problem: Problem, first_file: str) -> tuple[bool, str, int, int, str, str]:
    place = problem.place
    is_elsewhere = place.file != first_file
    return is_elsewhere, place.file, place.line, place.column, problem.code, problem.message


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with secrets masked. `secrets` must be sorted, the longest first."""
    for secret in secrets:
        if text == secret:
            return "***"
        if len(secret) >= _SHORTEST_MASKED_PART:
            text = text.replace(secret, "***")
    return text


def suggestion(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` if a known name is close to the name, else empty."""
    by_folded = {one.casefold(): one for one in known}
    close = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return f" (did you mean '{by_folded[close[0]]}'?)" if close else ""
