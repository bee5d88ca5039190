"""Checks on a setting's value: each gives the reason of a refusal, and its text for the docs."""

from collections.abc import Callable
from typing import Protocol

from odradek.config.values import Value
from odradek.lazy_dataclass import dataclass

__all__ = ["AtLeast", "Between", "EachOneOf", "NonEmpty", "OneOf", "Rule", "ValueCheck"]


class ValueCheck(Protocol):
    """A condition on one value. `str(check)` describes the values that pass."""

    def why_not(self, value: Value) -> str | None:
        """Why the value is refused, without repeating it; None if it passes."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeast:
    minimum: float

    def why_not(self, value: Value) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= self.minimum else f"must be at least {self.minimum}"

    def __str__(self) -> str:
        return f"at least {self.minimum}"


@dataclass(frozen=True, slots=True)
class Between:
    """Both ends pass."""

    low: float
    high: float

    def why_not(self, value: Value) -> str | None:
        assert isinstance(value, int | float)
        if self.low <= value <= self.high:
            return None
        return f"must be between {self.low} and {self.high}"

    def __str__(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    choices: tuple[str, ...]

    def why_not(self, value: Value) -> str | None:
        return None if value in self.choices else f"must be one of {', '.join(self.choices)}"

    def __str__(self) -> str:
        return ", ".join(self.choices)


@dataclass(frozen=True, slots=True)
class EachOneOf:
    """For lists: every item is among the choices."""

    choices: tuple[str, ...]

    def why_not(self, value: Value) -> str | None:
        assert isinstance(value, tuple)
        if all(item in self.choices for item in value):
            return None
        return f"each must be one of {', '.join(self.choices)}"

    def __str__(self) -> str:
        return f"any of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """For text and lists: the value has content, and no item of a list is empty."""

    def why_not(self, value: Value) -> str | None:
        if isinstance(value, tuple):
            return None if value and all(value) else "must not be empty or have empty items"
        return None if value else "must not be empty"

    def __str__(self) -> str:
        return "not empty"


@dataclass(frozen=True, slots=True)
class Rule:
    """Any other check: a predicate and its description, which completes "must be …"."""

    description: str
    holds: Callable[[Value], bool]

    def why_not(self, value: Value) -> str | None:
        return None if self.holds(value) else f"must be {self.description}"

    def __str__(self) -> str:
        return self.description
