"""Converts Avro schemas into Spark's types, and prepares them for `fastavro`.

| Avro | Spark |
|---|---|
| boolean, float, double, string | the same |
| int, long, bytes | int, bigint, binary |
| enum, uuid | string |
| fixed | binary |
| array, map, record | array, map<string, …>, struct |
| a union of null and one other | that other, nullable |
| a union of int and long; of float and double | bigint; double |
| date, decimal | the same |
| timestamp-millis, -micros; local-timestamp-millis, -micros | timestamp; timestamp_ntz |
| time-millis, time-micros | int, bigint, as they are written |

Other unions and types that contain themselves have no counterpart and are refused.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.spark.pipeline.engine.problems import PipelineError

__all__ = ["columns_ddl", "prepared_schema"]

_PRIMITIVES: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_WIDENED: Final = {
    frozenset({"int", "bigint"}): "bigint",
    frozenset({"float", "double"}): "double",
}
# Values that fastavro would turn into objects without a Spark type are read as they are written.
_LEFT_ALONE: Final = frozenset({"time-millis", "time-micros", "uuid", "duration"})
_NAMED: Final = ("record", "enum", "fixed")
_DEFAULT_SCALE: Final = 0


def columns_ddl(schema: str) -> str:
    """The DDL of a record's fields.

    Raises:
        PipelineError: The schema is not a record, or has types without counterpart.
    """
    parsed = _parse(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise PipelineError("expected the Avro schema of a record, found another kind of schema")
    names: dict[str, Any] = {}
    _remember(parsed, names, _namespace(parsed, ""))
    fields = _fields(parsed, names, _namespace(parsed, ""), (_full_name(parsed, ""),))
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in fields)


def prepared_schema(schema: str) -> Any:
    """The schema for `fastavro`, without the logical types that are left as they are written."""
    return _without_logical(_parse(schema))


def _parse(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise PipelineError(f"expected an Avro schema in JSON: {error}") from None


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    drop = schema.get("logicalType") in _LEFT_ALONE
    return {
        key: _without_logical(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if not (drop and key == "logicalType")
    }


def _fields(
    record: Mapping[str, Any], names: dict[str, Any], namespace: str, path: tuple[str, ...]
) -> list[tuple[str, str]]:
    found = []
    for field in record["fields"]:
        try:
            found.append((field["name"], _type(field["type"], names, namespace, path)))
        except PipelineError as error:
            raise PipelineError(f"field {field['name']!r}: {error}") from None
    return found


def _type(schema: Any, names: dict[str, Any], namespace: str, path: tuple[str, ...]) -> str:
    if isinstance(schema, list):
        return _union(schema, names, namespace, path)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        return _reference(schema, names, namespace, path)
    kind = schema.get("type")
    if isinstance(kind, (dict, list)):
        return _type(kind, names, namespace, path)
    if kind in _NAMED:
        _remember(schema, names, namespace)
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return f"decimal({schema['precision']},{schema.get('scale', _DEFAULT_SCALE)})"
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical]
    match kind:
        case "record":
            return _struct(schema, names, namespace, path)
        case "array":
            return f"array<{_type(schema['items'], names, namespace, path)}>"
        case "map":
            return f"map<string,{_type(schema['values'], names, namespace, path)}>"
        case "enum":
            return "string"
        case "fixed":
            return "binary"
        case str():
            return _type(kind, names, namespace, path)
        case _:
            raise PipelineError(f"there is no column type for {schema!r}")


def _struct(
    record: Mapping[str, Any], names: dict[str, Any], namespace: str, path: tuple[str, ...]
) -> str:
    full_name = _full_name(record, namespace)
    if full_name in path:
        raise PipelineError(f"the type {full_name} contains itself, which no column type can")
    fields = _fields(record, names, _namespace(record, namespace), (*path, full_name))
    return "struct<" + ",".join(f"{_quoted(name)}:{kind}" for name, kind in fields) + ">"


def _union(
    branches: list[Any], names: dict[str, Any], namespace: str, path: tuple[str, ...]
) -> str:
    kinds = [_type(one, names, namespace, path) for one in branches if one != "null"]
    if len(kinds) == 1:
        return kinds[0]
    widened = _WIDENED.get(frozenset(kinds))
    if widened is None:
        shown = ", ".join(kinds) or "null alone"
        raise PipelineError(f"there is no column type for a union of {shown}")
    return widened


def _reference(name: str, names: dict[str, Any], namespace: str, path: tuple[str, ...]) -> str:
    full_name = name if "." in name or not namespace else f"{namespace}.{name}"
    found = names.get(full_name) or names.get(name)
    if found is None:
        raise PipelineError(f"the type {name!r} is not defined before it is used")
    schema, outer = found
    return _type(schema, names, outer, path)


def _remember(schema: Mapping[str, Any], names: dict[str, Any], namespace: str) -> None:
    names[_full_name(schema, namespace)] = (schema, namespace)


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name: str = schema["name"]
    inside = _namespace(schema, namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def _namespace(schema: Mapping[str, Any], outer: str) -> str:
    name: str = schema["name"]
    if "." in name:
        return name.rpartition(".")[0]
    found: str = schema.get("namespace", outer)
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
