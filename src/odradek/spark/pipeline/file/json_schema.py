"""Converts JSON Schema into Spark's DDL, as far as columns can express it.

`object` becomes a struct, `array`, `string` (`format: date-time` a timestamp, `date` a date),
`integer` a bigint, `number` a double, `boolean`; `null` as an alternative means that a value may be
missing. Every other form is refused. Keywords that only narrow values (`minimum`, `pattern`,
`enum`) are not checked on records, and a warning says so: a rule under `expect` checks values.
"""

import re

from odradek.spark.pipeline.file.nodes import Fields, Items, Node, Scalar
from odradek.spark.pipeline.file.section import Context

__all__ = ["ddl_of_json_schema"]

_SCALARS = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_STRING_FORMATS = {"date-time": "timestamp", "date": "date"}
_MEANINGFUL = {"type", "properties", "required", "items", "format", "anyOf", "oneOf"}
_SILENT = {
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "additionalProperties",
}
_NARROWING = {
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def ddl_of_json_schema(
    node: Node, context: Context, *, reserved: tuple[str, ...] = ()
) -> tuple[str | None, tuple[str, ...]]:
    """The DDL of the fields, and the dotted names of the required ones.

    A name inside of an array's elements is written `items[].name`.
    """
    reader = _Reader(context, reserved)
    columns = reader.columns(node)
    if columns is None:
        return None, ()
    return ", ".join(columns), tuple(sorted(reader.required, key=lambda path: path.count(".")))


class _Reader:
    def __init__(self, context: Context, reserved: tuple[str, ...]) -> None:
        self._context = context
        self._reserved = reserved
        self.required: list[str] = []

    def columns(self, node: Node) -> list[str] | None:
        """The columns of the root, which has to be an object."""
        if self._type_of(node) != "object" or not isinstance(node, Fields):
            if isinstance(node, Fields):
                self._refuse(node, "the root of a JSON Schema has to be an object")
            return None
        self._check_keywords(node)
        return self._properties(node, path="", separator=" ")

    def _properties(self, node: Fields, *, path: str, separator: str) -> list[str] | None:
        properties = node.fields.get("properties")
        if properties is None or not isinstance(properties.node, Fields):
            self._refuse(node, "an object of a JSON Schema needs 'properties'")
            return None
        self._note_required(node, properties.node, path)
        columns: list[str] = []
        for name, field in properties.node.fields.items():
            if not path and name.casefold() in self._reserved:
                message = f"field '{name}' of the JSON Schema is reserved for records"
                self._context.error(field.key_place, "P09", message)
            if any(
                name.casefold() == other.casefold()
                for other in properties.node.fields
                if other != name
            ):
                message = f"field '{name}' is there twice: Spark ignores the case of names"
                self._context.error(field.key_place, "P06", message)
            kind = self._ddl(field.node, path=f"{path}{name}")
            if kind is not None:
                columns.append(f"{_quoted(name)}{separator}{kind}")
        if not columns:
            self._refuse(node, "an object of a JSON Schema needs at least one property")
            return None
        return columns

    def _ddl(self, node: Node, *, path: str) -> str | None:
        chosen = self._without_null(node)
        if chosen is None:
            return None
        self._check_keywords(chosen)
        kind = self._type_of(chosen)
        match kind:
            case None:
                return None
            case "object":
                columns = self._properties(chosen, path=f"{path}.", separator=": ")
                return f"struct<{', '.join(columns)}>" if columns else None
            case "array":
                items = chosen.fields.get("items")
                if items is None:
                    self._refuse(chosen, "an array of a JSON Schema needs 'items'")
                    return None
                element = self._ddl(items.node, path=f"{path}[]")
                return f"array<{element}>" if element else None
            case "string":
                form = chosen.fields.get("format")
                text = form.node.text if form and isinstance(form.node, Scalar) else ""
                return _STRING_FORMATS.get(text, "string")
            case _:
                return _SCALARS[kind]

    def _without_null(self, node: Node) -> Fields | None:
        """The one form that is not `null`, out of `anyOf` and `oneOf`."""
        if not isinstance(node, Fields):
            self._refuse(node, "a JSON Schema has to be a map here")
            return None
        for key in ("anyOf", "oneOf"):
            field = node.fields.get(key)
            if field is None:
                continue
            forms = field.node.items if isinstance(field.node, Items) else ()
            left = [form for form in forms if not _is_null(form)]
            if len(left) != 1 or "type" in node.fields or not isinstance(left[0], Fields):
                self._refuse(field.node, f"'{key}' may only have one form and null")
                return None
            return self._without_null(left[0])
        return node

    def _type_of(self, node: Node) -> str | None:
        if not isinstance(node, Fields):
            self._refuse(node, "a JSON Schema has to be a map")
            return None
        field = node.fields.get("type")
        if field is None:
            self._refuse(node, "a JSON Schema needs 'type' here")
            return None
        nodes = field.node.items if isinstance(field.node, Items) else (field.node,)
        texts = [one.text if isinstance(one, Scalar) else "" for one in nodes]
        kinds = [text for text in texts if text != "null"]
        known = {"object", "array", "string", *_SCALARS}
        if len(kinds) != 1 or kinds[0] not in known:
            came = ", ".join(texts)
            self._refuse(field.node, f"type [{came}] of a JSON Schema has no column type")
            return None
        return kinds[0]

    def _note_required(self, node: Fields, properties: Fields, path: str) -> None:
        field = node.fields.get("required")
        if field is None:
            return
        if not isinstance(field.node, Items):
            self._refuse(field.node, "'required' of a JSON Schema has to be a list of names")
            return
        for item in field.node.items:
            name = item.text if isinstance(item, Scalar) else ""
            if "." in name or name.endswith("[]"):
                self._refuse(item, f"'{name}' cannot be required: its name is like a path")
            elif name not in properties.fields:
                self._refuse(item, f"'{name}' is required but not one of the properties")
            else:
                self.required.append(f"{path}{name}")

    def _check_keywords(self, node: Fields) -> None:
        for key, field in node.fields.items():
            if key in _MEANINGFUL or key in _SILENT or key.startswith("x-"):
                is_map = key == "additionalProperties" and isinstance(field.node, Fields)
                if is_map:
                    self._refuse(field.node, "'additionalProperties' with a schema")
            elif key in _NARROWING:
                message = f"'{key}' of a JSON Schema is not checked: write a rule under 'expect'"
                self._context.problems.warning(field.key_place, "P10", message)
            else:
                message = f"'{key}' of a JSON Schema is not supported"
                self._context.error(field.key_place, "P10", message)

    def _refuse(self, node: Node, message: str) -> None:
        self._context.error(node.place, "P10", message)


def _is_null(node: Node) -> bool:
    if not isinstance(node, Fields) or "type" not in node.fields:
        return False
    kind = node.fields["type"].node
    return isinstance(kind, Scalar) and kind.text == "null"


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"
