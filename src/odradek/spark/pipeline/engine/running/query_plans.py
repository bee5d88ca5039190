"""The queries of a run: one per sink, and one for the dead letters; the packages they need."""

from collections.abc import Collection, Iterable
from typing import Final

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import (
    Action,
    OnError,
    OutputMode,
    Pipeline,
    RawCodec,
    Sink,
    Source,
    StartPosition,
    TopicInput,
    Transform,
    Trigger,
    TriggerKind,
)
from odradek.spark.pipeline.graph.packages import missing_package
from odradek.spark.pipeline.graph.queries import (
    DEAD_LETTER_SINK,
    checkpoint_path,
    group_id,
    letter_stages,
    letters_mode,
)

__all__ = ["QueryPlan", "dead_rules", "plan_queries", "refuse_without_packages"]

_ONCE: Final = Trigger(TriggerKind.ONCE)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query of a run.

    Attributes:
        name: The name of the sink, or `DEAD_LETTER_SINK`.
        sink: None for the dead letters.
        stages: The stages whose dead letters are written; none for a sink's query.
        checkpoint: Spark's folder.
        group: The group that shows the progress of the query.
        start: Where a new query begins; overrides its sources.
        has_run: Whether the checkpoint has state of an earlier run.
    """

    name: str
    sink: Sink | None
    stages: tuple[str, ...]
    trigger: Trigger
    output_mode: OutputMode
    checkpoint: str
    group: str
    start: StartPosition | None = None
    has_run: bool = False


def plan_queries(
    pipeline: Pipeline, *, sinks: Collection[str] | None = None, is_once: bool = False
) -> tuple[QueryPlan, ...]:
    """The queries of a run.

    Args:
        pipeline: The pipeline that runs.
        sinks: Only these; `DEAD_LETTER_SINK` may be one of them. None for all.
        is_once: Whether every query ends when it has read all records present now.
    """
    plans = [
        QueryPlan(
            name=sink.name,
            sink=sink,
            stages=(),
            trigger=_ONCE if is_once else sink.trigger,
            output_mode=sink.output_mode,
            checkpoint=checkpoint_path(pipeline, sink.name),
            group=group_id(pipeline, sink.name),
        )
        for sink in pipeline.sinks.values()
    ]
    stages = letter_stages(pipeline)
    if stages and pipeline.dead_letters is not None:
        plans.append(
            QueryPlan(
                name=DEAD_LETTER_SINK,
                sink=None,
                stages=stages,
                trigger=_ONCE if is_once else pipeline.trigger,
                output_mode=letters_mode(pipeline),
                checkpoint=checkpoint_path(pipeline, DEAD_LETTER_SINK),
                group=group_id(pipeline, DEAD_LETTER_SINK),
            )
        )
    return tuple(plan for plan in plans if sinks is None or plan.name in sinks)


def refuse_without_packages(sinks: Iterable[Sink]) -> None:
    """Checks the packages of sinks; called before Spark is started, which takes seconds.

    Raises:
        PipelineError: A sink needs a package that is not installed.
    """
    lacking = [
        f"{sink.place}: sink '{sink.name}' needs {missing}"
        for sink in sinks
        if (missing := missing_package(sink.target)) is not None
    ]
    if lacking:
        raise PipelineError("; ".join(lacking))


def dead_rules(pipeline: Pipeline) -> frozenset[tuple[str, str]]:
    """Stage and rule (`decode` for unreadable records) of rows that become dead letters."""
    found = set()
    for name, stage in _stages(pipeline).items():
        if _decodes_to_letters(stage):
            found.add((name, "decode"))
        found |= {(name, rule.name) for rule in stage.expect if rule.action is Action.DLQ}
    return frozenset(found)


def _stages(pipeline: Pipeline) -> dict[str, Source | Transform]:
    return {**pipeline.sources, **pipeline.transforms}


def _decodes_to_letters(stage: Source | Transform) -> bool:
    if not isinstance(stage, Source) or not isinstance(stage.input, TopicInput):
        return False
    topics = stage.input
    is_raw = isinstance(topics.key, RawCodec) and isinstance(topics.value, RawCodec)
    return topics.on_error is OnError.DLQ and not is_raw
