"""Avro as JSON: the same values as `fastavro` writes, and errors for anything else."""

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.avro import AvroError, AvroSchema

NESTED: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "namespace": "a.b",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["X", "Y"]}},
        {"name": "again", "type": "Kind"},
        {"name": "sum", "type": {"type": "fixed", "name": "Sum", "size": 3}},
        {"name": "raw", "type": "bytes"},
        {"name": "ok", "type": "boolean"},
        {"name": "real", "type": "double"},
        {"name": "small", "type": "float"},
        {"name": "labels", "type": {"type": "map", "values": "int"}},
        {"name": "children", "type": {"type": "array", "items": "Node"}},
    ],
}

LONG = st.integers(-(2**63), 2**63 - 1)
LEAF: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "id": LONG,
        "name": st.none() | st.text(max_size=8),
        "kind": st.sampled_from("XY"),
        "again": st.sampled_from("XY"),
        "sum": st.binary(min_size=3, max_size=3),
        "raw": st.binary(max_size=8),
        "ok": st.booleans(),
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "small": st.floats(allow_nan=False, allow_infinity=False, width=32),
        "labels": st.dictionaries(
            st.text(max_size=3), st.integers(-(2**31), 2**31 - 1), max_size=3
        ),
        "children": st.just([]),
    }
)
NODE = st.builds(
    lambda one, children: one | {"children": children}, LEAF, st.lists(LEAF, max_size=3)
)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


@given(NODE)
def test_what_fastavro_writes_is_read(value: dict[str, Any]) -> None:
    found = AvroSchema(json.dumps(NESTED)).read(written(NESTED, value))
    assert found == plain(value)
    json.dumps(found, allow_nan=False)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    try:
        found = AvroSchema(json.dumps(NESTED)).read(data)
    except AvroError:
        return
    json.dumps(found)


def test_decimals_are_text_and_numbers_that_are_none_too() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    digits = Decimal("-123456789012345678901234567890.12")
    assert AvroSchema(json.dumps(kind)).read(written(kind, digits)) == str(digits)
    assert AvroSchema('"double"').read(written("double", float("nan"))) == "nan"
    time = {"type": "long", "logicalType": "timestamp-millis"}
    assert AvroSchema(json.dumps(time)).read(b"\x02") == 1


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        ('"string"', b"\x06ab", "3 bytes wanted at 1, there are 2"),
        ('"string"', b"\x01", "bytes wanted"),
        ('"string"', b"\x02\xff", "not UTF-8"),
        ('"long"', b"\x80", "has no end"),
        ('"long"', b"\xff" * 11, "has no end"),
        ('"boolean"', b"\x02", "a boolean is 2"),
        ('["null"]', b"\x02", "branch 1 of a union of 1"),
        ('{"type":"enum","name":"e","symbols":["A"]}', b"\x02", "symbol 1 of an enum of 1"),
        ('"null"', b"x", "1 bytes are left"),
        (
            '{"type":"array","items":"null"}',
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "items without a byte",
        ),
        (
            '{"type":"record","name":"r","fields":[{"name":"r","type":"r"}]}',
            b"",
            "records in each other",
        ),
    ],
)
def test_bytes_that_are_no_value_are_told(schema: str, data: bytes, expected: str) -> None:
    with pytest.raises(AvroError, match=expected):
        AvroSchema(schema).read(data)


@pytest.mark.parametrize(
    "text",
    ["", "7", "{}", '"what"', '{"type": "record", "name": "r"}', '{"type": {}}', "[" * 100_000],
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(AvroError):
        AvroSchema(text)
