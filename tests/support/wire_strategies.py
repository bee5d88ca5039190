"""Hypothesis strategies for messages, derived from their declarations."""

from typing import Any

from hypothesis import strategies as st

from odradek.errors import ErrorCode
from odradek.protocol.primitives import WireType
from odradek.protocol.schema import ArrayOf, Field, MessageType

__all__ = ["messages"]

_SIGNED_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
# Times a foreign library can hold in its own types of time.
_TIMES_MS = st.integers(0, 1 << 41)
# Sets of operations as bits, 3 (read) to 12 (idempotent write), and "nobody asked".
_OPERATIONS = st.one_of(
    st.just(-(1 << 31)), st.integers(1, (1 << 10) - 1).map(lambda bits: bits << 3)
)
# Around the border between one and two varint bytes: 126 is the longest with one.
_TEXT = st.one_of(st.text(max_size=5), st.sampled_from(["é" * 63, "a" * 126, "a" * 127]))
_BYTES = st.one_of(st.binary(max_size=5), st.sampled_from([bytes(126), bytes(127), bytes(300)]))


def messages(cls: MessageType, version: int) -> st.SearchStrategy[Any]:
    """Messages that `version` can carry whole: fields it lacks keep their default."""
    fields = [field for field in cls.wire_fields if version in field.versions]
    return st.builds(cls, **{field.name: _values(field, version) for field in fields})


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _typed(field.type, field.name, version)
    if version in field.nullable:
        return st.none() | values
    return values


def _typed(
    type_: WireType | ArrayOf | MessageType, name: str, version: int
) -> st.SearchStrategy[Any]:
    if isinstance(type_, ArrayOf):
        return st.lists(_typed(type_.element, name, version), max_size=2).map(tuple)
    if isinstance(type_, MessageType):
        return messages(type_, version)
    return _primitive(type_, name)


def _primitive(type_: WireType, name: str) -> st.SearchStrategy[Any]:
    if name.endswith("error_code"):
        return _ERROR_CODES
    if type_.name == "int32" and name.endswith("authorized_operations"):
        return _OPERATIONS
    if type_.name == "int64" and name.endswith("_ms"):
        return _TIMES_MS
    if bits := _SIGNED_BITS.get(type_.name):
        return st.integers(-1 << bits - 1, (1 << bits - 1) - 1)
    return {
        "uint16": st.integers(0, 0xFFFF),
        "uint32": st.integers(0, 0xFFFFFFFF),
        "float64": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": _TEXT,
        "bytes": _BYTES,
        "records": _BYTES,
    }[type_.name]
