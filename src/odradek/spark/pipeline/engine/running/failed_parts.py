"""Finds the part of a pipeline's file, and the offsets, that a failure of a query is about.

Spark names the SQL that failed by its text. The offsets are those of the batch that was begun and
is not done, which Spark has noted in the checkpoint before it read a record.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from odradek import Admin
from odradek.client.offsets import EARLIEST
from odradek.errors import ApiError, OdradekError
from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder
from odradek.spark.pipeline.engine.operations.clusters import Cluster, cluster_of
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.query_plans import QueryPlan
from odradek.spark.pipeline.graph.model import Pipeline, Place, Select, Transform
from odradek.spark.pipeline.graph.queries import stages_of
from odradek.spark.pipeline.graph.topics import reads, topic_sources

__all__ = ["batch_text", "located", "offsets_of_batch"]

# The first offset of each partition, None if it is not known, and the end.
Ranges = dict[TopicPartition, tuple[int | None, int]]

_ANSWER_S: Final = 5.0
_MAX_PLACES: Final = 10  # Partitions that a message shows.
_STAGE: Final = re.compile(r"^(?:source|transform) (\w+): ")


def located(failure: Failure, pipeline: Pipeline, plan: QueryPlan) -> Failure:
    """A failure with its place in the file, and with the offsets of its batch if they are known."""
    place = _place_of(failure, pipeline, plan)
    try:
        ranges = offsets_of_batch(CheckpointFolder(plan.checkpoint))
    except PipelineError:
        ranges = {}
    unknown = [tp for tp, (start, _) in ranges.items() if start is None]
    firsts = _first_offsets(pipeline, plan, unknown) if unknown else {}
    known = {
        tp: (firsts.get(tp) if start is None else start, end) for tp, (start, end) in ranges.items()
    }
    return replace(
        failure,
        place=failure.place or str(place),
        position=batch_text(known) or failure.position,
    )


def _first_offsets(
    pipeline: Pipeline, plan: QueryPlan, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a new query has begun to read partitions, as far as the log or the file says it."""
    found: dict[TopicPartition, int] = {}
    for topics in topic_sources(pipeline, plan.name).values():
        wanted = [tp for tp in partitions if reads(topics, tp.topic, tp.partition)]
        start = plan.start or topics.start
        if start.offsets is not None:
            given = [(tp, start.offsets.get(tp.topic, {}).get(tp.partition)) for tp in wanted]
            found |= {tp: offset for tp, offset in given if offset is not None}
        elif start.edge == "earliest":
            found |= _log_starts(cluster_of(pipeline, topics), wanted)
    return found


def _log_starts(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The first offsets of logs; none if the brokers do not answer soon."""
    try:
        with Admin(dict(cluster)) as admin:
            told = admin.list_offsets(dict.fromkeys(partitions, EARLIEST), timeout=_ANSWER_S)
    except OdradekError:
        return {}
    return {tp: one.offset for tp, one in told.items() if not isinstance(one, ApiError)}


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


def batch_text(ranges: Ranges) -> str:
    """The offsets of a batch: `orders-0 from 3 to 5`, `up to 5` if its first one is not known."""
    places = [
        f"{tp} from {start} to {end}" if start is not None else f"{tp} up to {end}"
        for tp, (start, end) in ranges.items()
        if start != end
    ]
    if len(places) > _MAX_PLACES:
        places = [*places[:_MAX_PLACES], f"… {len(places) - _MAX_PLACES} more"]
    return ", ".join(places)


def offsets_of_batch(folder: CheckpointFolder) -> Ranges:
    """First offset and end of each partition in the batch that is not done.

    The first is None in the first batch of a query, whose start Spark does not note.
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
