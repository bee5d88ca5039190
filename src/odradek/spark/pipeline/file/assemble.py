"""Assembles the parts of a file: looks names up, orders steps, checks the whole."""

from collections.abc import Iterable, Mapping

from odradek.spark.pipeline.file.checks import check_draft
from odradek.spark.pipeline.file.draft import Draft
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.file.section import Context
from odradek.spark.pipeline.file.streams import (
    check_exactly_once,
    check_output_mode,
    check_state,
    settle_output_mode,
)
from odradek.spark.pipeline.file.transforms import DraftTransform
from odradek.spark.pipeline.graph.analysis import Analysis, analyse_parts
from odradek.spark.pipeline.graph.model import (
    OutputMode,
    Pipeline,
    Place,
    Select,
    Sink,
    Transform,
)
from odradek.spark.pipeline.graph.order import find_cycle, in_order
from odradek.spark.pipeline.graph.relations import Operator

__all__ = ["assemble"]


def assemble(context: Context, draft: Draft, path: str) -> Pipeline:
    """The pipeline; complete only if no errors were reported."""
    names = {name.casefold(): name for name in _names(draft)}
    inputs = {one.name: _inputs(context, one, names) for one in draft.transforms}
    cycle = find_cycle(inputs)
    if cycle is not None:
        place = next(one.model.place for one in draft.transforms if one.name == cycle[0])
        chain = " -> ".join(cycle)
        context.error(place, "P12", f"transforms read each other in a circle: {chain}")
    drafts = {one.name: one for one in draft.transforms}
    transforms = {name: _transform(drafts[name], inputs[name]) for name in in_order(inputs)}
    sources = {one.name: one for one in draft.sources}
    queries = {one.name: one.query for one in draft.transforms if one.query is not None}
    # Steps in a cycle have no rows to check.
    known = transforms if cycle is None else {}
    unknown = [one.name for one in draft.transforms if _is_unknown(one, inputs[one.name])]
    analysis = analyse_parts(sources, known, queries, unknown)
    check_draft(context, draft, transforms, analysis)
    sinks = _sinks(context, draft, names, analysis)
    _check_state(context, draft, sinks, analysis)
    check_exactly_once(context, draft)
    return Pipeline(
        name=draft.name,
        file=path,
        bootstrap=draft.bootstrap,
        kafka=draft.kafka,
        registry=draft.registry,
        checkpoint=draft.checkpoint,
        trigger=draft.trigger,
        spark=draft.spark,
        restart=draft.restart,
        sources=sources,
        transforms=transforms,
        sinks=sinks,
        dead_letters=draft.dead_letters,
        tests=tuple(one.fixture for one in draft.tests),
        secrets=frozenset(context.environment.secrets),
    )


def _sinks(
    context: Context, draft: Draft, names: Mapping[str, str], analysis: Analysis
) -> dict[str, Sink]:
    """The sinks, with output modes chosen and checked."""
    sinks: dict[str, Sink] = {}
    for one in draft.sinks:
        input_ = _look_up(context, one.input, one.input_place, f"sink '{one.name}'", names)
        relation = analysis.relations.get(input_)
        mode = one.output_mode or OutputMode.APPEND
        if relation is not None:
            mode = settle_output_mode(one, relation)
            check_output_mode(context, one, mode, relation)
            if not relation.is_stream:
                message = f"sink '{one.name}' needs a stream: '{input_}' is not one"
                context.error(one.input_place, "P03", message)
        sinks[one.name] = Sink(
            name=one.name,
            input=input_,
            target=one.target,
            output_mode=mode,
            trigger=one.trigger,
            place=one.place,
        )
    return sinks


def _check_state(
    context: Context, draft: Draft, sinks: Mapping[str, Sink], analysis: Analysis
) -> None:
    """P14 for every operator, once, with the output modes of the sinks that read it."""
    modes: dict[Operator, dict[str, OutputMode]] = {}
    for relation in analysis.relations.values():
        for operator in relation.operators:
            modes.setdefault(operator, {})
    for sink in sinks.values():
        found = analysis.relations.get(sink.input)
        for operator in found.operators if found is not None else ():
            modes[operator][sink.name] = sink.output_mode
    drafts = {one.name: one for one in draft.transforms}
    for operator, readers in modes.items():
        check_state(context, operator, drafts[operator.step], readers)


def _names(draft: Draft) -> list[str]:
    return [*(one.name for one in draft.sources), *(one.name for one in draft.transforms)]


def _inputs(context: Context, draft: DraftTransform, names: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the inputs of a transform, as they are declared."""
    what = f"transform '{draft.name}'"
    found = dict.fromkeys(
        _look_up(context, name, place, what, names) for name, place in draft.inputs
    )
    found.pop("", None)
    if draft.declared_inputs is None:
        return tuple(found)
    declared = dict.fromkeys(
        _look_up(context, name, place, what, names) for name, place in draft.declared_inputs
    )
    if draft.query is not None and set(declared) != set(found):
        message = f"'inputs' of {what} has to be the tables that its SQL reads: {', '.join(found)}"
        context.error(draft.declared_inputs[0][1], "P03", message)
    return tuple(name for name in declared if name)


def _is_unknown(draft: DraftTransform, inputs: tuple[str, ...]) -> bool:
    """Whether the inputs of a transform are not all known."""
    names = dict.fromkeys(name.casefold() for name, _ in draft.inputs)
    is_closed = draft.query is None and not inputs
    return is_closed or len(names) != len(inputs)


def _look_up(context: Context, name: str, place: Place, what: str, names: Mapping[str, str]) -> str:
    """The name as it is declared; an empty one, with the problem reported, if it is not."""
    if not name:
        return ""
    found = names.get(name.casefold())
    if found is None:
        hint = suggestion(name, names.values())
        context.error(place, "P07", f"unknown source '{name}' in {what}{hint}")
        return ""
    return found


def _transform(draft: DraftTransform, inputs: Iterable[str]) -> Transform:
    step = draft.step
    if isinstance(step, Select) and draft.query is not None:
        step = Select(draft.query.sql, step.file, step.first_line)
    return Transform(
        name=draft.name,
        step=step,
        inputs=tuple(inputs),
        watermark=draft.model.watermark,
        expect=draft.model.expect,
        place=draft.model.place,
    )
