"""The progress of a streaming query, and the group that shows it.

A query keeps its position in its checkpoint, which Kafka's tools do not read. With the option
``progressGroup`` of a source, the position is also committed to that group, so that every tool
shows its lag. The group only displays it: no query reads its position from there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.config import ClientConfig
from odradek.config import Definition
from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position

__all__ = ["PROGRESS_GROUP", "ProgressTarget", "lag_of", "parse_position", "target_of"]

PROGRESS_GROUP: Final = "progressGroup"

_KAFKA_PREFIX: Final = "kafka."
# Settings that every client reads; a source has settings of its own beside these.
_CLIENT_SETTINGS: Final = frozenset(Definition(ClientConfig).keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressTarget:
    """The group of a source, and how to reach its cluster."""

    group: str
    # Settings of a client by Kafka's name, sorted, so that equal settings compare equal.
    kafka: tuple[tuple[str, str], ...]


def target_of(options: Mapping[str, str]) -> ProgressTarget | None:
    """The group that the options of a source name; None if they name none."""
    given = {name.lower(): value for name, value in options.items()}
    group = given.get(PROGRESS_GROUP.lower(), "").strip()
    if not group:
        return None
    settings = (
        (name.removeprefix(_KAFKA_PREFIX), value)
        for name, value in given.items()
        if name.startswith(_KAFKA_PREFIX)
    )
    kafka = sorted(one for one in settings if one[0] in _CLIENT_SETTINGS)
    return ProgressTarget(group=group, kafka=tuple(kafka))


def parse_position(told: str | None) -> Position | None:
    """The position in a progress report; None if there is none, or it is of another source."""
    if told is None:
        return None
    try:
        return Position.parse(json.loads(told))
    except ValueError:
        return None


def lag_of(end: str | None, latest: str | None) -> dict[TopicPartition, int] | None:
    """The lag of each partition, in records; None while it is not known.

    Args:
        end: The end of the last batch, as Spark reports it.
        latest: The end of the topics at that time. Not known for the first batch after a restart.
    """
    reached, newest = parse_position(end), parse_position(latest)
    if reached is None or newest is None:
        return None
    # A partition that is not in `end` is new: the next batch reads it from the beginning.
    return {
        tp: max(offset - (reached.offset(tp) or 0), 0) for tp, offset in newest.offsets().items()
    }
