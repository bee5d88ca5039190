"""JSON objects read field by field and by type; unexpected content is `BadNodeData`. Pure."""

import json
import re
from collections.abc import Mapping
from typing import TypeAlias, TypeGuard

from odradek.errors import BadNodeData

__all__ = ["INT32_MAX", "Json", "JsonFields", "encode_object", "parse_integer"]

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


def encode_object(node: dict[str, Json]) -> bytes:
    """Encodes an object as compact UTF-8, fields in the given order."""
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False).encode()


def parse_integer(text: str, what: str, limit: int) -> int:
    """Parses a decimal number of at most `limit`.

    Raises:
        BadNodeData: The text is no such number.
    """
    if not re.fullmatch(r"-?[0-9]{1,19}", text) or abs(int(text)) > limit:
        raise BadNodeData(f"{what}: expected a number up to {limit}, found {text[:40]!r}")
    return int(text)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class JsonFields:
    """A JSON object whose fields are read by type."""

    __slots__ = ("_fields", "_what")

    def __init__(self, fields: dict[str, Json], what: str) -> None:
        self._fields = fields
        self._what = what

    @classmethod
    def of(cls, data: bytes | None, what: str) -> "JsonFields":
        if data is None:
            raise BadNodeData(f"{what}: expected a JSON object, found null")
        try:
            value = json.loads(data, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise BadNodeData(f"{what}: not JSON: {error}: {data[:80]!r}") from None
        return cls.check(value, what)

    @classmethod
    def check(cls, value: Json, what: str) -> "JsonFields":
        if not isinstance(value, dict):
            raise BadNodeData(f"{what}: expected a JSON object, found {_show(value)}")
        return cls(value, what)

    def integer(self, name: str) -> int:
        value = self._fields.get(name)
        if not _is_int32(value):
            raise self._unexpected(name, "a 32-bit integer")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self._fields.get(name) is None else self.integer(name)

    def integers(self, name: str) -> tuple[int, ...]:
        return self._integers(name, self._fields.get(name))

    def integer_text(self, name: str, missing: int | None = None) -> int:
        """A 64-bit number written as a string."""
        value = self._fields.get(name)
        if value is None and missing is not None:
            return missing
        if not isinstance(value, str):
            raise self._unexpected(name, "a number in a string")
        return parse_integer(value, f"{self._what}: {name}", _INT64_MAX)

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not _is_text(value):
            raise self._unexpected(name, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def array(self, name: str) -> list[Json]:
        value = self._fields.get(name)
        if not isinstance(value, list):
            raise self._unexpected(name, "an array")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.array(name)
        texts = [value for value in values if _is_text(value)]
        if len(texts) != len(values):
            raise self._unexpected(name, "an array of strings")
        return texts

    def items(self, name: str) -> list[tuple[str, Json]]:
        """The fields of an object, unchecked."""
        return list(self._object(name, None).items())

    def text_map(self, name: str, missing: dict[str, str] | None = None) -> dict[str, str]:
        pairs = self._object(name, missing).items()
        texts = {key: value for key, value in pairs if _is_text(value)}
        if len(texts) != len(pairs):
            raise self._unexpected(name, "an object of strings")
        return texts

    def replica_map(
        self, name: str, missing: dict[str, Json] | None = None
    ) -> dict[int, tuple[int, ...]]:
        """Partition number in a string to replicas."""
        pairs = self._object(name, missing)
        replicas = {}
        for key, value in pairs.items():
            partition = parse_integer(key, f"{self._what}: {name}", INT32_MAX)
            if partition < 0:
                raise self._unexpected(name, "partition numbers from 0")
            replicas[partition] = self._integers(name, value)
        return replicas

    def _object(self, name: str, missing: Mapping[str, Json] | None) -> Mapping[str, Json]:
        value = self._fields.get(name)
        if value is None and missing is not None:
            return missing
        if not isinstance(value, dict):
            raise self._unexpected(name, "an object")
        return value

    def _integers(self, name: str, value: Json) -> tuple[int, ...]:
        values = value if isinstance(value, list) else [None]
        numbers = tuple(number for number in values if _is_int32(number))
        if len(numbers) != len(values):
            raise self._unexpected(name, "an array of 32-bit integers")
        return numbers

    def _unexpected(self, name: str, expected: str) -> BadNodeData:
        found = _show(self._fields[name]) if name in self._fields else "no such field"
        return BadNodeData(f"{self._what}: {name}: expected {expected}, found {found}")


def _is_int32(value: Json) -> TypeGuard[int]:
    return type(value) is int and abs(value) <= INT32_MAX


def _is_text(value: Json) -> TypeGuard[str]:
    """Whether it is a string that can be encoded: JSON can escape half a character."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _show(value: Json) -> str:
    if isinstance(value, dict | list):  # May be nested deeper than repr() can follow.
        return f"a JSON {'object' if isinstance(value, dict) else 'array'} of {len(value)}"
    return repr(value)[:80]
