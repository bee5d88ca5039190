"""Reads `watermark` and `expect`, which sources and transforms share."""

from odradek.spark.pipeline.file.nodes import Scalar
from odradek.spark.pipeline.file.section import NAME, Section
from odradek.spark.pipeline.graph.model import Action, Expectation, Watermark
from odradek.spark.pipeline.graph.sql import SqlError, UnknownSyntaxError, parse_predicate

__all__ = ["read_expectations", "read_watermark"]


def read_watermark(section: Section) -> Watermark | None:
    """`{column, delay}`."""
    keys = section.section("watermark")
    if keys is None:
        return None
    keys.require("column", "delay")
    column = keys.text("column", "the name of a column")
    delay_ms = keys.duration_ms("delay", 0)
    keys.finish()
    return Watermark(column, delay_ms) if column is not None else None


def read_expectations(section: Section) -> tuple[Expectation, ...]:
    """The rules, each with a name of its own."""
    found: dict[str, Expectation] = {}
    for item in section.items("expect", "a list of rules"):
        keys = Section(section.context, item, f"a rule of {section.what}")
        keys.require("name", "where")
        name = keys.text("name", "a name")
        if name is not None:
            keys.what = f"rule '{name}' of {section.what}"
            if not NAME.fullmatch(name):
                message = f"'{name}' is not allowed as the name of a rule: letters, digits and '_'"
                section.context.error(keys.place_of("name"), "P06", message)
            elif name in found:
                message = f"the name '{name}' of a rule is taken in {section.what}"
                section.context.error(keys.place_of("name"), "P06", message)
        where = keys.scalar("where", "a predicate in SQL")
        if where is not None:
            _check_predicate(keys, where)
        action = keys.choice("action", Action, Action.WARN)
        keys.finish()
        if name is not None and where is not None:
            found.setdefault(name, Expectation(name, where.text.strip(), action, where.place))
    return tuple(found.values())


def _check_predicate(keys: Section, where: Scalar) -> None:
    try:
        parse_predicate(where.text)
    except UnknownSyntaxError as error:
        place = where.place_at(error.offset)
        keys.context.problems.warning(place, "P08", f"'where' of {keys.what}: {error}")
    except SqlError as error:
        message = f"'where' of {keys.what} does not parse: {error}"
        keys.context.error(where.place_at(error.offset), "P08", message)
