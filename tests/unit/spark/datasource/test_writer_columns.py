"""What the columns of a topic sink may be."""

import pytest

from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.datasource.writer_columns import SinkColumns, parse_sink_columns

HEADERS = "array<struct<key:string,value:binary>>"


def parse(*schema: tuple[str, str], topic: str | None = "t", headers: bool = True) -> SinkColumns:
    return parse_sink_columns(schema, topic=topic, is_writing_headers=headers)


def problems_of(*schema: tuple[str, str], topic: str | None = "t") -> tuple[str, ...]:
    with pytest.raises(OptionsError) as raised:
        parse(*schema, topic=topic)
    return raised.value.problems


@pytest.mark.parametrize("kind", ["string", "binary", "string collate UNICODE"])
def test_a_value_is_enough(kind: str) -> None:
    """12:SP-38."""
    assert parse(("value", kind)) == SinkColumns()


def test_every_column() -> None:
    """12:SP-38."""
    all_of_them = (
        ("key", "string"),
        ("value", "binary"),
        ("headers", HEADERS),
        ("topic", "string"),
        ("partition", "int"),
    )
    assert parse(*all_of_them, topic=None) == SinkColumns(
        has_key=True, has_headers=True, has_topic=True, has_partition=True
    )
    assert not parse(*all_of_them, headers=False).has_headers


def test_columns_of_a_source_that_only_it_can_fill_are_left_out() -> None:
    assert (
        parse(
            ("value", "binary"),
            ("offset", "bigint"),
            ("timestamp", "timestamp"),
            ("timestampType", "int"),
        )
        == SinkColumns()
    )


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("value", "bigint", "string or binary"),
        ("value", "struct<a:int>", "string or binary"),
        ("key", "int", "string or binary"),
        ("topic", "binary", "string"),
        ("partition", "bigint", "int"),
        ("partition", "string", "int"),
        ("headers", "map<string,binary>", HEADERS),
        ("headers", "array<struct<key:string,value:string>>", HEADERS),
    ],
)
def test_refuses_a_wrong_type(name: str, kind: str, expected: str) -> None:
    """12:SP-38."""
    columns = {"value": "binary", name: kind}
    (problem,) = problems_of(*columns.items())
    assert problem == f"column {name}: expected {expected}, found {kind}; cast it"


@pytest.mark.parametrize(
    ("name", "hint"), [("Key", "did you mean key?"), ("values", "did you mean value?"), ("id", "")]
)
def test_refuses_a_column_that_it_does_not_know(name: str, hint: str) -> None:
    """12:SP-38."""
    (problem,) = problems_of(("value", "binary"), (name, "string"))
    assert problem.startswith(f"column {name}: unknown")
    assert hint in problem
    assert "key, headers, topic, partition" in problem


def test_tells_everything_at_once() -> None:
    problems = problems_of(("key", "int"), ("id", "int"), ("key", "string"), topic=None)
    assert [problem.partition(":")[0] for problem in problems] == [
        "column key",
        "column id",
        "column key",
        "column value",
        "topic",
    ]
