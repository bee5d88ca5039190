"""Positions in the text form of the command line and of notes.

`earliest`, `latest`, an ISO-8601 instant, or JSON like the pipeline file's map:
`{"orders": {"0": 123}}`. An instant without a zone is in UTC.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.graph.model import Pipeline, StartPosition
from odradek.spark.pipeline.graph.topics import missing_offsets, topic_sources, unread_offsets

__all__ = ["check_position", "parse_position", "position_text"]


def parse_position(text: str) -> StartPosition:
    """Reads a position.

    Raises:
        PipelineError: It is not a position.
    """
    text = text.strip()
    if text in ("earliest", "latest"):
        return StartPosition(edge=text)
    if text.startswith("{"):
        return StartPosition(offsets=_offsets(text))
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(
            f"expected a position: earliest, latest, an instant such as 2026-01-31T12:00:00Z, or"
            f' offsets such as {{"orders": {{"0": 123}}}}; found {text!r}'
        ) from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return StartPosition(timestamp_ms=round(instant.timestamp() * 1000))


def check_position(pipeline: Pipeline, queries: Iterable[str], position: StartPosition) -> None:
    """Checks that offsets are of the topics that the queries read, as far as the file names them.

    Raises:
        PipelineError: No query reads a topic, or a topic that is read has no offsets.
    """
    if position.offsets is None:
        return
    sources = {
        name: one for query in queries for name, one in topic_sources(pipeline, query).items()
    }
    problems = []
    for topic, partition in unread_offsets(sources.values(), position.offsets):
        known = [name for one in sources.values() for name in (*one.topics, *(one.assign or ()))]
        part = f"partition {partition} of " if partition is not None else ""
        hint = suggestion(topic, known) if partition is None else ""
        problems.append(f"{part}topic '{topic}' is read by no source{hint}")
    problems += [
        f"there is no offset of {what}, which source '{name}' reads"
        for name, one in sources.items()
        for what in missing_offsets(one, position.offsets)
    ]
    if problems:
        text = position_text(position)
        raise PipelineError(
            f"expected offsets of exactly the topics that are read, found {text}: "
            + "; ".join(problems)
        )


def position_text(position: StartPosition) -> str:
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
            raise ValueError("an offset is a whole number from 0 on")
    except (ValueError, AttributeError) as error:
        raise PipelineError(
            f'expected offsets such as {{"orders": {{"0": 123}}}}, found {text!r}: {error}'
        ) from None
    return offsets
