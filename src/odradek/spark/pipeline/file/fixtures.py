"""Reads `tests`: rows of the inputs, and the expected rows."""

from collections.abc import Mapping
from typing import Any

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.file.nodes import Fields, Items, Node, plain_value
from odradek.spark.pipeline.file.section import Context, Section
from odradek.spark.pipeline.graph.model import Fixture, Place

__all__ = ["DraftFixture", "read_fixtures"]

RAW_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class DraftFixture:
    """A test; the places are those of the names under `given` and `expect`.

    Attributes:
        given_columns: The columns under each source, with the place of the first row that has it.
    """

    fixture: Fixture
    given_places: Mapping[str, Place]
    expect_places: Mapping[str, Place]
    given_columns: tuple[tuple[str, str, Place], ...]
    expect_columns: tuple[tuple[str, str, Place], ...]


def read_fixtures(context: Context, nodes: tuple[Node, ...]) -> tuple[DraftFixture, ...]:
    """All tests of a file."""
    found: dict[str, DraftFixture] = {}
    for number, node in enumerate(nodes, 1):
        draft = _fixture(context, node, number)
        name = draft.fixture.name
        if name.casefold() in found:
            context.error(node.place, "P06", f"the name '{name}' of a test is taken")
        found.setdefault(name.casefold(), draft)
    return tuple(found.values())


def _fixture(context: Context, node: Node, number: int) -> DraftFixture:
    section = Section(context, node, f"test {number}")
    if isinstance(node, Fields):
        section.require("name", "given", "expect")
    name = section.text("name") or f"test {number}"
    section.what = f"test '{name}'"
    raw = section.boolean("raw", False)
    given, given_places, given_columns = _tables(section, "given")
    expect, expect_places, expect_columns = _tables(section, "expect")
    if raw:
        for source, column, place in given_columns:
            if column not in RAW_COLUMNS:
                message = (
                    f"unknown key '{column}' in a record of '{source}' in {section.what}: "
                    f"with 'raw' it is one of {', '.join(RAW_COLUMNS)}"
                )
                context.error(place, "P02", message)
    fixture = Fixture(
        name=name,
        given=given,
        expect=expect,
        dlq=_dead_letters(section),
        raw=raw,
        ordered=section.boolean("ordered", False),
        place=section.place,
    )
    section.finish()
    return DraftFixture(
        fixture,
        given_places,
        expect_places,
        () if raw else tuple(given_columns),
        tuple(expect_columns),
    )


def _dead_letters(section: Section) -> tuple[dict[str, Any], ...] | None:
    if not section.has("dlq"):
        return None
    rows, _ = _rows(section, "'dlq'", section.node("dlq"))
    return rows


_Tables = tuple[
    dict[str, tuple[dict[str, Any], ...]], dict[str, Place], list[tuple[str, str, Place]]
]


def _tables(section: Section, key: str) -> _Tables:
    node = section.node(key)
    if node is None:
        return {}, {}, []
    if not isinstance(node, Fields):
        section.wrong_type(node, f"'{key}'", "a map of names to lists of rows")
        return {}, {}, []
    tables: dict[str, tuple[dict[str, Any], ...]] = {}
    columns: list[tuple[str, str, Place]] = []
    for name, field in node.fields.items():
        rows, places = _rows(section, f"'{key}.{name}'", field.node)
        tables[name] = rows
        columns.extend((name, column, place) for column, place in places.items())
    return tables, {name: field.key_place for name, field in node.fields.items()}, columns


def _rows(
    section: Section, what: str, node: Node | None
) -> tuple[tuple[dict[str, Any], ...], dict[str, Place]]:
    if not isinstance(node, Items):
        if node is not None:
            section.wrong_type(node, what, "a list of rows")
        return (), {}
    rows: list[dict[str, Any]] = []
    places: dict[str, Place] = {}
    for item in node.items:
        if not isinstance(item, Fields):
            section.wrong_type(item, f"a row of {what}", "a map of columns")
            continue
        rows.append(plain_value(item))
        for column, field in item.fields.items():
            places.setdefault(column, field.key_place)
    return tuple(rows), places
