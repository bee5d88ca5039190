"""Reads Avro's binary encoding into what JSON can say, by the schema it was written with. Pure.

==================  ==============================================================================
record, map         an object; fields in the order of the schema
array               a list
union               the value of its branch, without the branch's name
enum                its symbol
bytes, fixed        text, a character from U+0000 to U+00FF per byte, as Avro's own JSON has it
decimal             text, such as ``"12.50"``
float, double       a number; text for NaN and the infinities
anything else       its number, boolean, text or null; dates and times are numbers
==================  ==============================================================================

The bytes are those of a peer: every length is checked against what is left.
"""

import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any, Final

from odradek.errors import OdradekError

__all__ = ["AvroError", "AvroSchema"]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_MAX_VARINT_BYTES: Final = 10
_MAX_DEPTH: Final = 100
# Of items that take no bytes, such as nulls: nothing else bounds their count.
_MAX_EMPTY_ITEMS: Final = 1_000_000


class AvroError(OdradekError, ValueError):
    """Bytes that are not of the schema, or a schema that is none."""


class _Cursor:
    __slots__ = ("at", "data", "depth", "empty_items")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = bytes(data)
        self.at = 0
        self.depth = 0
        self.empty_items = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise AvroError(
                f"{count} bytes wanted at {self.at}, there are {len(self.data) - self.at}"
            )
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self) -> int:
        data, at = self.data, self.at
        result = shift = 0
        for place in range(at, min(at + _MAX_VARINT_BYTES, len(data))):
            byte = data[place]
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = place + 1
                return (result >> 1) ^ -(result & 1)
            shift += 7
        raise AvroError(f"a number at {at} has no end")


_Read = Callable[[_Cursor], Any]


class AvroSchema:
    """A schema, ready to read values.

    Raises:
        AvroError: The text is no schema of Avro.
    """

    def __init__(self, text: str) -> None:
        self._named: dict[str, _Read] = {}
        try:
            self._read = self._compile(json.loads(text), "", 0)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, AvroError):
                raise
            raise AvroError(f"not a schema of Avro: {error!r}") from error

    def read(self, data: bytes | memoryview) -> Any:
        """The value that the bytes are.

        Raises:
            AvroError: They are no value of this schema, or more than one.
        """
        cursor = _Cursor(data)
        try:
            value = self._read(cursor)
        except UnicodeDecodeError as error:
            raise AvroError(f"a text at {cursor.at} is not UTF-8: {error.reason}") from None
        if cursor.at < len(cursor.data):
            raise AvroError(f"{len(cursor.data) - cursor.at} bytes are left after the value")
        return value

    def _compile(self, schema: Any, namespace: str, depth: int) -> _Read:
        if depth > _MAX_DEPTH:
            raise AvroError(f"a schema of more than {_MAX_DEPTH} levels")
        if isinstance(schema, list):
            return _union([self._compile(one, namespace, depth + 1) for one in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._reference(schema, namespace)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, namespace, depth)
            case "enum":
                symbols = [str(one) for one in schema["symbols"]]
                return self._define(schema, namespace, lambda one: _symbol(one, symbols))
            case "fixed":
                size = int(schema["size"])
                read = _decimal(schema, lambda one: one.take(size)) or (
                    lambda one: one.take(size).decode("latin-1")
                )
                return self._define(schema, namespace, read)
            case "array":
                item = self._compile(schema["items"], namespace, depth + 1)
                return lambda one: _array(one, item)
            case "map":
                content = self._compile(schema["values"], namespace, depth + 1)
                return lambda one: dict(_array(one, lambda at: (_text(at), content(at))))
            case "bytes":
                return _decimal(schema, lambda one: one.take(one.number())) or _bytes
        return self._compile(kind, namespace, depth + 1)

    def _record(self, schema: Any, namespace: str, depth: int) -> _Read:
        fields: list[tuple[str, _Read]] = []

        def read(one: _Cursor) -> dict[str, Any]:
            one.depth += 1
            if one.depth > _MAX_DEPTH:
                raise AvroError(f"more than {_MAX_DEPTH} records in each other")
            found = {name: content(one) for name, content in fields}
            one.depth -= 1
            return found

        # Before its fields, which may refer to it.
        self._define(schema, namespace, read)
        inner = _full_name(schema, namespace).rpartition(".")[0]
        fields += [
            (str(field["name"]), self._compile(field["type"], inner, depth + 1))
            for field in schema["fields"]
        ]
        return read

    def _define(self, schema: Any, namespace: str, read: _Read) -> _Read:
        self._named[_full_name(schema, namespace)] = read
        return read

    def _reference(self, name: str, namespace: str) -> _Read:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full) or self._named.get(name)
        if found is None:
            raise AvroError(f"the schema names a type {name!r} that it does not define")
        return found


def _full_name(schema: Any, namespace: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    own = schema.get("namespace", namespace)
    return f"{own}.{name}" if own else name


def _boolean(one: _Cursor) -> bool:
    byte = one.take(1)[0]
    if byte > 1:
        raise AvroError(f"a boolean is {byte}")
    return byte == 1


def _bytes(one: _Cursor) -> str:
    return one.take(one.number()).decode("latin-1")


def _text(one: _Cursor) -> str:
    return one.take(one.number()).decode()


def _real(layout: struct.Struct) -> _Read:
    def read(one: _Cursor) -> float | str:
        (number,) = layout.unpack(one.take(layout.size))
        return number if math.isfinite(number) else str(number)

    return read


_PRIMITIVES: Final[dict[str, _Read]] = {
    "null": lambda _one: None,
    "boolean": _boolean,
    "int": _Cursor.number,
    "long": _Cursor.number,
    "float": _real(_FLOAT),
    "double": _real(_DOUBLE),
    "bytes": _bytes,
    "string": _text,
}


def _union(branches: list[_Read]) -> _Read:
    def read(one: _Cursor) -> Any:
        branch = one.number()
        if not 0 <= branch < len(branches):
            raise AvroError(f"branch {branch} of a union of {len(branches)}")
        return branches[branch](one)

    return read


def _symbol(one: _Cursor, symbols: list[str]) -> str:
    number = one.number()
    if not 0 <= number < len(symbols):
        raise AvroError(f"symbol {number} of an enum of {len(symbols)}")
    return symbols[number]


def _array(one: _Cursor, item: _Read) -> list[Any]:
    found: list[Any] = []
    while count := one.number():
        if count < 0:  # The size of the block follows, for those that pass over it.
            count = -count
            one.number()
        for _ in range(count):
            before = one.at
            found.append(item(one))
            if one.at == before:
                one.empty_items += 1
                if one.empty_items > _MAX_EMPTY_ITEMS:
                    raise AvroError(f"more than {_MAX_EMPTY_ITEMS} items without a byte")
    return found


def _decimal(schema: Any, take: Callable[[_Cursor], bytes]) -> _Read | None:
    """How a decimal is read; None if the schema is of none."""
    if schema.get("logicalType") != "decimal":
        return None
    scale = int(schema.get("scale", 0))

    def read(one: _Cursor) -> str:
        digits = take(one)
        number = int.from_bytes(digits, "big", signed=True)
        with localcontext() as context:
            context.prec = max(len(digits) * 3, 28)  # A byte has fewer than three digits.
            return str(Decimal(number).scaleb(-scale))

    return read
