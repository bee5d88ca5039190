"""Guarantees of sinks: how often a row of a query is written, and the limits of that."""

from collections.abc import Mapping

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    Target,
    TopicTarget,
)
from odradek.spark.pipeline.graph.relations import Relation

__all__ = ["Guarantee", "Obstacle", "guarantee_of", "obstacles"]

# Topic sinks write with an idempotent producer, not in transactions with a marker of the batch.
TRANSACTIONAL_TOPIC_SINK = False


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The guarantee of a sink; `limit` is its condition, or why it is not stronger."""

    name: str
    limit: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a topic sink cannot be exactly-once, or may not be, if not `is_certain`."""

    why: str
    is_certain: bool


def guarantee_of(target: Target | None) -> Guarantee:
    """The guarantee of a sink; None means the dead letters."""
    match target:
        case TopicTarget() if target.exactly_once and TRANSACTIONAL_TOPIC_SINK:
            return Guarantee("exactly-once", "for readers with read_committed, atomic per task")
        case TopicTarget() | None:
            return Guarantee("at-least-once", "a batch or task that is repeated writes again")
        case FilesTarget():
            return Guarantee("exactly-once", "for readers that follow _spark_metadata")
        case DeltaTarget():
            return Guarantee("exactly-once", "a batch is committed once")
        case JdbcTarget():
            return Guarantee("exactly-once", "a batch is merged by key, once")
        case ConsoleTarget():
            return Guarantee("at-least-once", "a batch that is repeated prints again")


def obstacles(relation: Relation, conf: Mapping[str, str]) -> tuple[Obstacle, ...]:
    """All reasons why a topic sink is not exactly-once."""
    found: list[Obstacle] = []
    if not TRANSACTIONAL_TOPIC_SINK:
        why = "topic sinks do not write in transactions: they are at-least-once"
        found.append(Obstacle(why, is_certain=True))
    if relation.unrepeatable:
        names = ", ".join(f"{name}()" for name in relation.unrepeatable)
        why = f"{names} gives other rows when a batch is repeated"
        found.append(Obstacle(why, is_certain=True))
    if relation.opaque:
        names = ", ".join(f"'{name}'" for name in relation.opaque)
        why = f"it is not known whether {names} gives the same rows when a batch is repeated"
        found.append(Obstacle(why, is_certain=False))
    if conf.get("spark.speculation", "false").lower() == "true":
        why = "spark.speculation runs a task twice at a time"
        found.append(Obstacle(why, is_certain=True))
    return tuple(found)
