"""Avro schemas as columns."""

import json
from typing import Any

import pytest

from odradek.spark.pipeline.engine.avro.spark_types import columns_ddl, prepared_schema
from odradek.spark.pipeline.engine.problems import PipelineError


def record(*kinds: Any, **more: Any) -> str:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": "R", "fields": fields} | more)


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type} | more


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        ({"type": {"type": "long"}}, "bigint"),
        (["null", "int"], "int"),
        (["string", "null"], "string"),
        (["int", "long"], "bigint"),
        (["null", "double", "float"], "double"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "X", "size": 4}, "binary"),
        ({"type": "array", "items": ["null", "long"]}, "array<bigint>"),
        ({"type": "map", "values": "int"}, "map<string,int>"),
        (
            {"type": "record", "name": "In", "fields": [{"name": "a b", "type": "int"}]},
            "struct<`a b`:int>",
        ),
        (logical("int", "date"), "date"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("bytes", "decimal", precision=9, scale=2), "decimal(9,2)"),
        (logical("fixed", "decimal", precision=5, name="D", size=3), "decimal(5,0)"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "time-micros"), "bigint"),
        (logical("string", "uuid"), "string"),
        (logical("string", "made-up"), "string"),
    ],
)
def test_types(kind: Any, ddl: str) -> None:
    """12:SP-10."""
    assert columns_ddl(record(kind)) == f"`f0` {ddl}"


def test_names_are_found_again() -> None:
    """12:SP-10: in their namespace, and in that of the record around them."""
    inner: dict[str, Any] = {"type": "record", "name": "In", "namespace": "n", "fields": []}
    inner["fields"] = [{"name": "a", "type": "int"}]
    colour = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    schema = record(inner, "n.In", colour, "Colour", ["null", "top.Colour"], namespace="top")
    assert columns_ddl(schema) == (
        "`f0` struct<`a`:int>, `f1` struct<`a`:int>, `f2` string, `f3` string, `f4` string"
    )


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('"int"', "expected the Avro schema of a record"),
        ("{", "expected an Avro schema in JSON"),
        (record(["int", "string"]), "field 'f0': there is no column type for a union"),
        (record(["null"]), "union of null alone"),
        (record("Nobody"), "'Nobody' is not defined"),
        (record(["null", "R"]), "the type R contains itself"),
        (record({"type": 5}), "there is no column type for"),
    ],
)
def test_what_has_no_column_type(schema: str, words: str) -> None:
    """12:SP-10."""
    with pytest.raises(PipelineError, match=words):
        columns_ddl(schema)


def test_logical_types_without_a_column_type_are_left_as_they_are_written() -> None:
    """12:SP-10."""
    schema = record(
        logical("int", "time-millis"),
        ["null", logical("string", "uuid")],
        {"type": "array", "items": logical("long", "time-micros")},
        logical("int", "date"),
    )
    prepared = prepared_schema(schema)
    assert "time-" not in json.dumps(prepared)
    assert "uuid" not in json.dumps(prepared)
    assert prepared["fields"][3]["type"]["logicalType"] == "date"
