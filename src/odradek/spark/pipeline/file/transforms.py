"""Reads `transforms`: SQL, Python functions and dedup."""

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.file.codecs import read_referenced_file
from odradek.spark.pipeline.file.functions import missing_function
from odradek.spark.pipeline.file.nodes import Fields, Node, Origins, Scalar
from odradek.spark.pipeline.file.rules import read_expectations, read_watermark
from odradek.spark.pipeline.file.section import Context, Section
from odradek.spark.pipeline.graph.model import (
    Dedup,
    Place,
    PythonFunction,
    Select,
    Transform,
)
from odradek.spark.pipeline.graph.sql import Query, SqlError, UnknownSyntaxError, parse_select

__all__ = ["DraftTransform", "read_transform", "text_scalar"]

KINDS = ("sql", "sql_file", "python", "dedup")


@dataclass(frozen=True, slots=True)
class DraftTransform:
    """A transform as far as it can be read on its own.

    Attributes:
        inputs: The names as they are written, each with its place; for SQL those in the text.
        declared_inputs: The names in `inputs` beside SQL, or None.
        query: The parsed SQL; None without SQL, or if it does not parse.
        text: The SQL with the places of its characters, or None.
    """

    name: str
    step: Select | PythonFunction | Dedup
    inputs: tuple[tuple[str, Place], ...]
    declared_inputs: tuple[tuple[str, Place], ...] | None
    query: Query | None
    text: Scalar | None
    model: Transform


def read_transform(context: Context, name: str, node: Node) -> DraftTransform:
    """Reads one transform; a wrong value is reported and replaced by its default."""
    section = Section(context, node, f"transform '{name}'")
    kind = section.exactly_one_of(KINDS) if isinstance(node, Fields) else None
    step: Select | PythonFunction | Dedup = Select("", section.place.file, section.place.line)
    inputs: list[tuple[str, Place]] = []
    query = text = None
    declared = section.names_with_places("inputs", "a list of names") or None
    match kind:
        case "sql" | "sql_file":
            text = section.scalar("sql", "SQL") if kind == "sql" else _sql_of_file(section)
            if text is not None:
                first_line = text.place_at(_first_character(text.text)).line
                step = Select(text.text.strip(), text.origins.file, first_line)
                query = _parse(section, text)
            if query is not None and text is not None:
                inputs = [(one.name, text.place_at(one.offset)) for one in query.tables]
            elif declared is not None:
                inputs = declared
        case "python":
            step = _function(section)
            section.require("inputs")
            inputs, declared = declared or [], None
        case "dedup":
            step, inputs = _dedup(section)
            if declared is not None:
                message = f"unknown key 'inputs' in {section.what}: 'dedup' has 'from'"
                context.error(section.key_place("inputs"), "P02", message)
            declared = None
    model = Transform(
        name=name,
        step=step,
        inputs=(),
        watermark=read_watermark(section),
        expect=read_expectations(section),
        place=section.place,
    )
    section.finish()
    return DraftTransform(
        name=name,
        step=step,
        inputs=tuple(inputs),
        declared_inputs=tuple(declared) if declared is not None else None,
        query=query,
        text=text,
        model=model,
    )


def _first_character(text: str) -> int:
    return len(text) - len(text.lstrip())


def _parse(section: Section, text: Scalar) -> Query | None:
    try:
        return parse_select(text.text)
    except UnknownSyntaxError as error:
        place = text.place_at(error.offset)
        section.context.problems.warning(place, "P08", f"SQL of {section.what}: {error}")
    except SqlError as error:
        message = f"SQL of {section.what} does not parse: {error}"
        section.context.error(text.place_at(error.offset), "P08", message)
    return None


def _sql_of_file(section: Section) -> Scalar | None:
    found = read_referenced_file(section, "sql_file")
    if found is None:
        return None
    text, shown = found
    return text_scalar(text, shown, 1, section.context)


def text_scalar(text: str, shown: str, first_line: int, context: Context) -> Scalar:
    """A text in a file of its own, from the start of `first_line` on."""
    starts: list[tuple[int, int, int]] = []
    offset = 0
    for number, line in enumerate(text.split("\n"), first_line):
        starts.append((offset, number, 1))
        offset += len(line) + 1
    place = Place(shown, first_line, 1)
    scalar = Scalar(text, text, place, Origins(shown, tuple(starts)), is_plain=False)
    replaced = context.environment.replace(scalar)
    assert isinstance(replaced, Scalar)
    return replaced


def _function(section: Section) -> PythonFunction:
    node = section.node("python")
    if isinstance(node, Scalar) and callable(node.value):
        return PythonFunction(node.text, node.value)
    reference = section.text("python", "'module:function'") or ""
    if not reference:
        return PythonFunction("")
    module, _, function = reference.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), function]):
        assert node is not None
        section.wrong_type(node, "'python'", "'module:function'")
        return PythonFunction(reference)
    missing = missing_function(module, function, section.context.folder)
    if missing is not None:
        message = f"{section.what}: {missing}"
        section.context.error(section.place_of("python"), "P19", message)
    return PythonFunction(reference)


def _dedup(section: Section) -> tuple[Dedup, list[tuple[str, Place]]]:
    keys = section.section("dedup")
    if keys is None:
        return Dedup((), 0), []
    keys.require("from", "keys", "within")
    inputs = keys.names_with_places("from", "the name of a source or transform")
    if len(inputs) > 1:
        keys.context.error(keys.place_of("from"), "P03", f"'from' of {keys.what} is one name")
    step = Dedup(keys.names("keys"), keys.duration_ms("within", 1, at_least=1))
    keys.finish()
    return step, inputs[:1]
