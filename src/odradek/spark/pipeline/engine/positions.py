"""Positions as the command line takes them and notes keep them. Pure.

`earliest`, `latest`, an ISO-8601 instant, or JSON like the pipeline file's map:
`{"orders": {"0": 123}}`. An instant without a zone is in UTC.
"""

import json
from datetime import UTC, datetime

from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import Position

__all__ = ["parse_position", "position_text"]


def parse_position(text: str) -> Position:
    """Reads a position.

    Raises:
        PipelineError: it is none.
    """
    text = text.strip()
    if text in ("earliest", "latest"):
        return Position(edge=text)
    if text.startswith("{"):
        return Position(offsets=_offsets(text))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(
            f"expected a position: earliest, latest, an instant such as 2026-01-31T12:00:00Z, or"
            f' offsets such as {{"orders": {{"0": 123}}}}; came {text!r}'
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return Position(timestamp_ms=round(instant.timestamp() * 1000))


def position_text(position: Position) -> str:
    """The text that `parse_position` reads."""
    if position.edge is not None:
        return position.edge
    if position.timestamp_ms is not None:
        instant = datetime.fromtimestamp(position.timestamp_ms / 1000, UTC)
        return instant.isoformat(timespec="milliseconds")
    return json.dumps(
        {
            topic: {str(partition): offset for partition, offset in sorted(held.items())}
            for topic, held in sorted((position.offsets or {}).items())
        }
    )


def _offsets(text: str) -> dict[str, dict[int, int]]:
    try:
        told = json.loads(text)
        offsets = {
            str(topic): {int(partition): offset for partition, offset in held.items()}
            for topic, held in told.items()
        }
        numbers = [offset for held in offsets.values() for offset in held.values()]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("an offset is a whole number and not negative")
    except (ValueError, AttributeError) as error:
        raise PipelineError(
            f'expected offsets such as {{"orders": {{"0": 123}}}}, came {text!r}: {error}'
        ) from None
    return offsets
