"""What a run comes to."""

from dataclasses import dataclass

from tests.chaos.checker import Report

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The verdict over a run."""

    report: Report
    can_cut: bool
    took_s: float
