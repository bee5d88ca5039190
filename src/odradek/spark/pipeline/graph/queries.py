"""The queries of a pipeline: one per sink, and one for dead letters; checkpoints and groups."""

import posixpath
from collections.abc import Mapping, Sequence

from odradek.spark.pipeline.graph.model import (
    Action,
    OnError,
    OutputMode,
    Pipeline,
    RawCodec,
    Source,
    TopicInput,
    Transform,
)
from odradek.spark.pipeline.graph.order import upstream_of

__all__ = [
    "DEAD_LETTER_SINK",
    "checkpoint_path",
    "group_id",
    "has_dead_letters",
    "letter_stages",
    "letters_mode",
    "query_names",
    "stages_of",
]

# The query that writes dead letters has the place of a sink, with this name.
DEAD_LETTER_SINK = "dlq"


def query_names(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of all queries: those of the sinks, then that of the dead letters."""
    names = tuple(pipeline.sinks)
    is_written = pipeline.dead_letters is not None and letter_stages(pipeline)
    return (*names, DEAD_LETTER_SINK) if is_written else names


def checkpoint_path(pipeline: Pipeline, query: str) -> str:
    """The folder of a query's checkpoint; names of sinks are safe as names of folders."""
    return posixpath.join(pipeline.checkpoint, query)


def group_id(pipeline: Pipeline, query: str) -> str:
    """The consumer group that shows the progress of a query."""
    return f"odradek-pipeline-{pipeline.name}-{query}"


def stages_of(pipeline: Pipeline, query: str) -> tuple[str, ...]:
    """Sources and transforms that a query reads, sources first, in the order of the file."""
    inputs = _inputs(pipeline.transforms)
    if query == DEAD_LETTER_SINK:
        start: Sequence[str] = letter_stages(pipeline)
    else:
        start = (pipeline.sinks[query].input,)
    used = set(upstream_of(start, inputs))
    return tuple(name for name in (*pipeline.sources, *pipeline.transforms) if name in used)


def letter_stages(pipeline: Pipeline) -> tuple[str, ...]:
    """Streams among sources and transforms, read by a sink, whose rows can be dead letters."""
    inputs = _inputs(pipeline.transforms)
    used = set(upstream_of([sink.input for sink in pipeline.sinks.values()], inputs))
    stages: dict[str, Source | Transform] = {**pipeline.sources, **pipeline.transforms}
    return tuple(
        name
        for name, stage in stages.items()
        if name in used
        and has_dead_letters(stage)
        and any(
            pipeline.sources[one].is_stream
            for one in upstream_of([name], inputs)
            if one in pipeline.sources
        )
    )


def letters_mode(pipeline: Pipeline) -> OutputMode:
    """The output mode of the dead letters.

    `update` if a stage with dead letters feeds a sink that does not append: its rows may be the
    result of an aggregate without watermark, which cannot be appended.
    """
    inputs = _inputs(pipeline.transforms)
    steps = set(letter_stages(pipeline)) & set(pipeline.transforms)
    for sink in pipeline.sinks.values():
        changes = sink.output_mode is not OutputMode.APPEND
        if changes and not steps.isdisjoint(upstream_of([sink.input], inputs)):
            return OutputMode.UPDATE
    return OutputMode.APPEND


def has_dead_letters(stage: Source | Transform) -> bool:
    """Whether rows of a stage can become dead letters."""
    if any(rule.action is Action.DLQ for rule in stage.expect):
        return True
    if not isinstance(stage, Source) or not isinstance(stage.input, TopicInput):
        return False
    topics = stage.input
    is_raw = isinstance(topics.key, RawCodec) and isinstance(topics.value, RawCodec)
    return topics.on_error is OnError.DLQ and not is_raw


def _inputs(transforms: Mapping[str, Transform]) -> dict[str, tuple[str, ...]]:
    return {name: one.inputs for name, one in transforms.items()}
