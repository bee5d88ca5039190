"""Checks between the parts of a file: columns exist, dead letters have a topic, and more.

Names are looked up before; the checks of streams are in `streams`.
"""

from collections.abc import Iterable, Mapping

from sqlglot import exp

from odradek.spark.pipeline.file.draft import Draft
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.graph.analysis import Analysis
from odradek.spark.pipeline.graph.locations import CHECKPOINT_SCHEMES, is_uri
from odradek.spark.pipeline.graph.model import (
    Action,
    Dedup,
    OnError,
    Place,
    RowsInput,
    Source,
    TopicInput,
    TopicTarget,
    Transform,
)
from odradek.spark.pipeline.graph.order import upstream_of
from odradek.spark.pipeline.graph.relations import Relation
from odradek.spark.pipeline.graph.sql import SqlError, parse_predicate

__all__ = ["check_draft"]


def check_draft(
    context: Context, draft: Draft, transforms: Mapping[str, Transform], analysis: Analysis
) -> None:
    """Reports all parts that contradict each other."""
    _check_columns(context, draft, transforms, analysis)
    _check_bootstrap(context, draft)
    _check_dead_letters(context, draft, analysis)
    _check_checkpoint(context, draft)
    _check_use(context, draft, transforms)
    _check_tests(context, draft, transforms, analysis)


def _check_columns(
    context: Context, draft: Draft, transforms: Mapping[str, Transform], analysis: Analysis
) -> None:
    for one in draft.transforms:
        for problem in analysis.problems.get(one.name, ()):
            place = one.text.place_at(problem.offset) if one.text is not None else one.model.place
            hint = suggestion(problem.name, problem.known)
            message = f"unknown column '{problem.name}' in transform '{one.name}'{hint}"
            context.error(place, "P07", message)
        if isinstance(one.step, Dedup) and one.name in transforms:
            inputs = [analysis.relations[name] for name in transforms[one.name].inputs]
            for key in one.step.keys:
                if inputs:
                    what = f"'keys' of transform '{one.name}'"
                    _check_column(context, inputs[0], key, one.model.place, what)
    stages: list[Source | Transform] = [*draft.sources, *(one.model for one in draft.transforms)]
    for stage in stages:
        relation = analysis.relations.get(stage.name)
        if relation is None:
            continue
        kind = "source" if isinstance(stage, Source) else "transform"
        if stage.watermark is not None:
            what = f"'watermark' of {kind} '{stage.name}'"
            place = draft.watermark_places.get(stage.name, stage.place)
            _check_column(context, relation, stage.watermark.column, place, what)
            _check_time(context, relation, stage.watermark.column, place, what)
        for rule in stage.expect:
            what = f"rule '{rule.name}' of {kind} '{stage.name}'"
            for name, offset in _columns_of(rule.where):
                place = Place(rule.place.file, rule.place.line, rule.place.column)
                texts = draft.rule_texts.get((stage.name, rule.name))
                if texts is not None:
                    place = texts.place_at(offset)
                _check_column(context, relation, name, place, what)
    for sink in draft.sinks:
        found = analysis.relations.get(_declared(sink.input, analysis.relations))
        for use in sink.columns if found is not None else ():
            assert found is not None
            what = f"'{use.key}' of sink '{sink.name}'"
            _check_column(context, found, use.column, use.place, what)


def _declared(name: str, names: Iterable[str]) -> str:
    folded = name.casefold()
    return next((one for one in names if one.casefold() == folded), "")


def _check_column(context: Context, relation: Relation, name: str, place: Place, what: str) -> None:
    if relation.lacks(name):
        hint = suggestion(name, [one.name for one in relation.columns or ()])
        context.error(place, "P07", f"unknown column '{name}' in {what}{hint}")


def _check_time(context: Context, relation: Relation, name: str, place: Place, what: str) -> None:
    column = relation.column(name)
    kind = column.type if column is not None else None
    if kind is not None and not kind.startswith("timestamp"):
        message = f"column '{name}' in {what} has to be a timestamp, is {kind}"
        context.error(place, "P03", message)


def _columns_of(predicate: str) -> list[tuple[str, int]]:
    """The columns of a predicate, each with its offset; fields of structs by their struct."""
    try:
        expression = parse_predicate(predicate)
    except SqlError:
        return []
    if expression.find(exp.Query, exp.Lambda) is not None:
        return []
    found: list[tuple[str, int]] = []
    for column in expression.find_all(exp.Column):
        if isinstance(column.this, exp.Identifier):
            first = column.parts[0]
            found.append((first.name, int(first.meta.get("start", 0))))
    return found


def _check_bootstrap(context: Context, draft: Draft) -> None:
    if draft.bootstrap is not None or draft.has_bootstrap:
        return
    uses = [f"source '{one.name}'" for one in draft.sources if one.is_stream]
    uses += [f"sink '{one.name}'" for one in draft.sinks if isinstance(one.target, TopicTarget)]
    uses += ["'dlq'"] if draft.dead_letters is not None else []
    if uses:
        message = f"the pipeline needs 'bootstrap': {uses[0]} has a topic"
        context.error(draft.place, "P05", message)


def _check_dead_letters(context: Context, draft: Draft, analysis: Analysis) -> None:
    stages: list[Source | Transform] = [*draft.sources, *(one.model for one in draft.transforms)]
    for stage in stages:
        kind = "source" if isinstance(stage, Source) else "transform"
        uses: list[tuple[str, Place]] = [
            (f"rule '{rule.name}' of {kind} '{stage.name}'", rule.place)
            for rule in stage.expect
            if rule.action is Action.DLQ
        ]
        relation = analysis.relations.get(stage.name)
        if relation is not None and not relation.is_stream:
            for what, place in uses:
                message = f"{what} cannot have the action 'dlq': its rows are not a stream"
                context.error(place, "P03", message)
            continue
        topics = stage.input if isinstance(stage, Source) else None
        if isinstance(topics, TopicInput) and topics.on_error is OnError.DLQ:
            place = draft.on_error_places.get(stage.name, stage.place)
            uses.append((f"'on_error' of source '{stage.name}'", place))
        if draft.dead_letters is None and not draft.has_dead_letters:
            for what, place in uses:
                context.error(place, "P18", f"{what} is 'dlq', but the pipeline has no 'dlq'")


def _check_checkpoint(context: Context, draft: Draft) -> None:
    master = draft.spark.master
    scheme = draft.checkpoint.partition(":")[0] if is_uri(draft.checkpoint) else "file"
    if scheme.lower() not in CHECKPOINT_SCHEMES:
        hint = suggestion(scheme, CHECKPOINT_SCHEMES)
        message = (
            f"the checkpoint {draft.checkpoint} cannot be opened: expected a path, or a URI of "
            f"{', '.join(CHECKPOINT_SCHEMES)}, found '{scheme}'{hint}"
        )
        context.error(draft.checkpoint_place, "P15", message)
    if not master.startswith("local") and not is_uri(draft.checkpoint):
        message = (
            f"the checkpoint {draft.checkpoint} is a folder of this machine, which the master "
            f"{master} cannot use: name a shared file system by its URI (file:///... if the path "
            "is the same everywhere)"
        )
        context.error(draft.checkpoint_place, "P15", message)


def _check_use(context: Context, draft: Draft, transforms: Mapping[str, Transform]) -> None:
    names = [*(one.name for one in draft.sources), *(one.name for one in draft.transforms)]
    starts = [_declared(one.input, names) for one in draft.sinks]
    starts += [_declared(name, names) for test in draft.tests for name in test.expect_places]
    used = set(upstream_of(starts, {name: one.inputs for name, one in transforms.items()}))
    for one in draft.transforms:
        if one.name not in used:
            message = f"transform '{one.name}' is used by no sink and no test"
            context.problems.warning(one.model.place, "P13", message)


def _check_tests(
    context: Context, draft: Draft, transforms: Mapping[str, Transform], analysis: Analysis
) -> None:
    sources = {one.name: one for one in draft.sources}
    for draft_test in draft.tests:
        what = f"test '{draft_test.fixture.name}'"
        for name, place in draft_test.given_places.items():
            if name not in sources:
                hint = suggestion(name, sources)
                context.error(place, "P20", f"unknown source '{name}' in {what}{hint}")
        for name, place in draft_test.expect_places.items():
            if name not in sources and name not in transforms:
                hint = suggestion(name, [*sources, *transforms])
                message = f"unknown source or transform '{name}' in {what}{hint}"
                context.error(place, "P20", message)
        for name, column, place in (*draft_test.given_columns, *draft_test.expect_columns):
            relation = analysis.relations.get(name)
            source = sources.get(name)
            is_free = source is not None and isinstance(source.input, RowsInput)
            if relation is not None and not is_free:
                _check_column(context, relation, column, place, f"rows of '{name}' of {what}")
