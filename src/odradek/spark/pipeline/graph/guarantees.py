"""Guarantees of sinks: how often a row of a query is written, and why."""

from collections.abc import Iterable

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeadLetters,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    SparkSettings,
    Target,
    TopicTarget,
)

__all__ = ["Guarantee", "guarantee_of", "is_exactly_once", "obstacles"]

_SPECULATION = "spark.speculation"


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee of a sink; `limit` is its condition, or why it is not stronger."""

    name: str
    limit: str


def is_exactly_once(target: Target | DeadLetters | None) -> bool:
    """Whether a target is a topic that is written in transactions."""
    return isinstance(target, (TopicTarget, DeadLetters)) and target.exactly_once


def guarantee_of(target: Target | DeadLetters, unrepeatable: Iterable[str] = ()) -> Guarantee:
    """The guarantee of a sink.

    Args:
        unrepeatable: Functions that give a row another value when its batch is repeated.
    """
    match target:
        case TopicTarget() | DeadLetters() if target.exactly_once:
            return Guarantee(
                "exactly-once",
                "for readers with read_committed: a batch and its marker are one transaction",
            )
        case TopicTarget() | DeadLetters():
            limit = "a batch or task that is repeated writes again"
            if names := ", ".join(f"{name}()" for name in unrepeatable):
                limit += f", and other rows because of {names}"
            return Guarantee("at-least-once", limit)
        case FilesTarget():
            return Guarantee("exactly-once", "for readers that follow _spark_metadata")
        case DeltaTarget():
            return Guarantee("exactly-once", "a batch is committed once")
        case JdbcTarget():
            return Guarantee("exactly-once", "a batch is merged by key, once")
        case ConsoleTarget():
            return Guarantee("at-least-once", "a batch that is repeated prints again")


def obstacles(spark: SparkSettings) -> tuple[str, ...]:
    """All reasons why a topic sink cannot be exactly-once."""
    found = []
    if spark.conf.get(_SPECULATION, "false").lower() == "true":
        found.append(f"{_SPECULATION} runs a task twice at a time, and both write")
    if spark.master.startswith("sc://"):
        found.append(
            "Spark Connect has no way to keep the rows of a batch until they are committed"
        )
    return tuple(found)
