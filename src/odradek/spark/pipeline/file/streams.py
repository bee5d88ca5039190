"""Checks of streams: unbounded state, output modes, guarantees (P14, P16, P17).

Only certain problems are errors: where columns are not known, Spark decides.
"""

from odradek.spark.pipeline.file.draft import Draft
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.file.sinks import DraftSink
from odradek.spark.pipeline.file.transforms import DraftTransform
from odradek.spark.pipeline.graph.guarantees import is_exactly_once, obstacles
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    OutputMode,
    Place,
    Target,
    TopicTarget,
)
from odradek.spark.pipeline.graph.relations import Operator, OperatorKind, Relation

__all__ = ["check_exactly_once", "check_output_mode", "check_state", "settle_output_mode"]

_ALL = (OutputMode.APPEND, OutputMode.UPDATE, OutputMode.COMPLETE)


def settle_output_mode(sink: DraftSink, relation: Relation) -> OutputMode:
    """The mode that the sink sets; else `append`, or `update` where only that can work."""
    if sink.output_mode is not None:
        return sink.output_mode
    is_open = any(
        operator.kind is OperatorKind.AGGREGATE and operator.bounded is False
        for operator in relation.operators
    )
    return OutputMode.UPDATE if is_open and _takes_updates(sink.target) else OutputMode.APPEND


def check_output_mode(
    context: Context, sink: DraftSink, mode: OutputMode, relation: Relation
) -> None:
    """P16: an output mode that the target, or the query before it, does not support."""
    modes = _modes(sink.target)
    what = f"sink '{sink.name}'"
    aggregates = [one for one in relation.operators if one.kind is OperatorKind.AGGREGATE]
    joins = [one for one in relation.operators if one.kind is OperatorKind.JOIN]
    why = ""
    if mode not in modes:
        kind = _kind(sink.target)
        why = f"{kind} takes {' or '.join(modes)}"
    elif mode is OutputMode.COMPLETE and not aggregates and not relation.opaque:
        why = "only an aggregate has a complete result"
    elif mode is OutputMode.COMPLETE and joins:
        why = "a join of two streams has no complete result"
    elif mode is OutputMode.UPDATE and any(join.outer for join in joins):
        why = "an outer join of two streams only appends"
    elif mode is not OutputMode.APPEND and len(relation.operators) > 1:
        why = "several steps that keep state only append"
    if why:
        message = f"{what} cannot have output mode '{mode}': {why}"
        context.error(sink.mode_place, "P16", message)


def check_state(
    context: Context,
    operator: Operator,
    draft: DraftTransform,
    modes: dict[str, OutputMode],
) -> None:
    """P14: state that is never dropped.

    Args:
        context: Collects the problems.
        operator: The operator with the state.
        draft: The transform it is in.
        modes: The output modes of the sinks that read it.
    """
    if operator.bounded is not False:
        return
    place = _place(operator, draft)
    what = f"transform '{operator.step}'"
    match operator.kind:
        case OperatorKind.JOIN:
            message = (
                f"{what} joins two streams, and not both have a watermark: "
                "give each of them 'watermark'"
            )
            context.error(place, "P14", message)
        case OperatorKind.DEDUP if operator.offset == 0 and draft.query is None:
            message = f"{what} drops duplicates of a stream without watermark or '_timestamp'"
            context.error(place, "P14", message)
        case OperatorKind.AGGREGATE:
            appending = [sink for sink, mode in modes.items() if mode is OutputMode.APPEND]
            if appending:
                sinks = ", ".join(f"'{sink}'" for sink in appending)
                message = (
                    f"{what} aggregates a stream without a watermark on a grouping column, and "
                    f"sink {sinks} appends: group by a window of a column with 'watermark', "
                    "or set 'output_mode: update'"
                )
                context.error(place, "P14", message)


def check_exactly_once(context: Context, draft: Draft) -> None:
    """P17: a guarantee that a sink, or the dead letters, cannot give."""
    asked = [
        (f"sink '{sink.name}'", sink.exactly_once_place)
        for sink in draft.sinks
        if is_exactly_once(sink.target)
    ]
    if is_exactly_once(draft.dead_letters):
        asked.append(("'dlq'", draft.exactly_once_letters_place))
    for what, place in asked:
        for why in obstacles(draft.spark):
            context.error(place, "P17", f"{what} cannot be 'exactly_once': {why}")


def _place(operator: Operator, draft: DraftTransform) -> Place:
    if draft.text is None:
        return draft.model.place
    return draft.text.place_at(operator.offset)


def _takes_updates(target: Target) -> bool:
    match target:
        case JdbcTarget() | ConsoleTarget():
            return True
        case TopicTarget():
            return target.key is not None
        case _:
            return False


def _modes(target: Target) -> tuple[OutputMode, ...]:
    match target:
        case FilesTarget():
            return (OutputMode.APPEND,)
        case DeltaTarget():
            upserts = bool(target.merge_key)
            return (OutputMode.APPEND, OutputMode.UPDATE) if upserts else (OutputMode.APPEND,)
        case _:
            return _ALL


def _kind(target: Target) -> str:
    match target:
        case FilesTarget():
            return "a folder of files"
        case DeltaTarget():
            return "a Delta table" if target.merge_key else "a Delta table without 'merge_key'"
        case _:
            return "it"
