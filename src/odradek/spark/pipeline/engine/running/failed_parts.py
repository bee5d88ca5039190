"""Finds the part of a pipeline's file, and the offsets, that a failure of a query is about.

Spark names the SQL that failed by its text. The offsets are those of the batch that was begun and
is not done, which Spark has noted in the checkpoint before it read a record.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.graph.model import Pipeline, Place, Select, Transform
from odradek.spark.pipeline.graph.queries import stages_of

__all__ = ["batch_text", "located", "offsets_of_batch"]

_MAX_PLACES: Final = 10  # Partitions that a message shows.
_STAGE: Final = re.compile(r"^(?:source|transform) (\w+): ")


def located(failure: Failure, pipeline: Pipeline, plan: QueryPlan) -> Failure:
    """A failure with its place in the file, and with the offsets of its batch if they are known."""
    place = _place_of(failure, pipeline, plan)
    return replace(
        failure,
        place=failure.place or str(place),
        position=batch_text(CheckpointFolder(plan.checkpoint)) or failure.position,
    )


def _place_of(failure: Failure, pipeline: Pipeline, plan: QueryPlan) -> Place:
    names = stages_of(pipeline, plan.name)
    if (told := _STAGE.match(failure.message)) and told[1] in names:
        return (pipeline.sources.get(told[1]) or pipeline.transforms[told[1]]).place
    steps = [pipeline.transforms[name] for name in names if name in pipeline.transforms]
    if failure.fragment and (found := _place_of_sql(failure.fragment, steps)) is not None:
        return found
    if plan.sink is not None:
        return plan.sink.place
    letters = pipeline.dead_letters
    return (letters.place if letters else None) or Place(pipeline.file, 1, 1)


def _place_of_sql(fragment: str, steps: Iterable[Transform]) -> Place | None:
    """The line of the first SELECT that has the text; Spark cuts long ones with dots."""
    wanted = fragment.strip().strip(".").strip()
    for step in steps:
        if isinstance(step.step, Select) and wanted and (at := step.step.sql.find(wanted)) >= 0:
            line = step.step.first_line + step.step.sql.count("\n", 0, at)
            return Place(step.step.file, line, 1)
    return None


def batch_text(folder: CheckpointFolder) -> str:
    """The offsets of the batch that is not done: `orders-0 from 3 to 5`; empty if there is none."""
    try:
        ranges = offsets_of_batch(folder)
    except PipelineError:
        return ""
    places = [
        f"{tp} from {start} to {end}" if start is not None else f"{tp} up to {end}"
        for tp, (start, end) in ranges.items()
        if start != end
    ]
    if len(places) > _MAX_PLACES:
        places = [*places[:_MAX_PLACES], f"… {len(places) - _MAX_PLACES} more"]
    return ", ".join(places)


def offsets_of_batch(
    folder: CheckpointFolder,
) -> dict[TopicPartition, tuple[int | None, int]]:
    """First offset and end of each partition in the batch that is not done.

    The first is None in the first batch of a query, whose start is not in the checkpoint.
    """
    begun, ended = folder.newest("offsets"), folder.newest("commits")
    if begun is None or (ended is not None and ended[0] >= begun[0]):
        return {}
    before = _offsets(folder.file("offsets", begun[0] - 1) if begun[0] else None)
    return {tp: (before.get(tp), end) for tp, end in sorted(_offsets(begun[1]).items())}


def _offsets(text: str | None) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    # The file has a version, Spark's settings of the batch, then a line for each source.
    for line in (text or "").splitlines()[2:]:
        try:
            found |= Position.parse(json.loads(line)).offsets()
        except ValueError:
            continue  # Of another kind of source.
    return found
