"""`--set KEY=VALUE`: values that override the file's, by dotted path.

`sources.raw.max_records=10`, `tests.0.ordered=true`. Below `kafka`, `options` and `conf`, whose
keys have dots of their own, the rest of the path is one key: `kafka.client.id=x`. The value is
YAML: `trigger={every: 5s}`.
"""

from collections.abc import Mapping

from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Origins, Scalar
from odradek.spark.pipeline.file.problems import Problems
from odradek.spark.pipeline.file.yaml_tree import parse_yaml
from odradek.spark.pipeline.graph.model import Place

__all__ = ["apply_settings"]

_FREE_MAPS = {"kafka", "options", "conf"}


def apply_settings(
    root: Node, settings: Mapping[str, str], problems: Problems, *, option: str = "--set"
) -> Node:
    """The tree with the settings applied; their place is the option, with its number as line."""
    for number, (key, text) in enumerate(settings.items(), 1):
        place = Place(option, number, 1)
        value = _value(text, place, problems)
        if value is None:
            continue
        changed = _put(root, _parts(key), value, place)
        if changed is None:
            problems.error(place, "P02", f"unknown key '{key}': it is not a path to a key of a map")
        else:
            root = changed
    return root


def _value(text: str, place: Place, problems: Problems) -> Node | None:
    if not text.strip():
        return Scalar(text, text, place, Origins(place.file, ((0, place.line, 1),)), is_plain=False)
    node = parse_yaml(text, place.file, problems)
    return _moved(node, place) if node is not None else None


def _moved(node: Node, place: Place) -> Node:
    match node:
        case Scalar():
            origins = Origins(place.file, ((0, place.line, place.column),))
            return Scalar(node.value, node.text, place, origins, is_plain=node.is_plain)
        case Items():
            return Items(tuple(_moved(item, place) for item in node.items), place)
        case Fields():
            fields = {
                key: MapEntry(key, place, _moved(field.node, place))
                for key, field in node.fields.items()
            }
            return Fields(fields, place)


def _parts(key: str) -> list[str]:
    parts = key.split(".")
    for index, part in enumerate(parts[:-1]):
        if part in _FREE_MAPS:
            return [*parts[: index + 1], ".".join(parts[index + 1 :])]
    return parts


def _put(node: Node, parts: list[str], value: Node, place: Place) -> Node | None:
    """The node with the value at the path; None if a part of the path is not a map or list."""
    if not parts:
        return value
    first, rest = parts[0], parts[1:]
    if isinstance(node, Items) and first.isdecimal() and int(first) < len(node.items):
        inner = _put(node.items[int(first)], rest, value, place)
        if inner is None:
            return None
        items = [*node.items]
        items[int(first)] = inner
        return Items(tuple(items), node.place)
    if not isinstance(node, Fields) or not first:
        return None
    old = node.fields.get(first)
    below: Node = old.node if old is not None else Fields({}, place)
    inner = _put(below, rest, value, place)
    if inner is None:
        return None
    field = MapEntry(first, old.key_place if old is not None else place, inner)
    return Fields({**node.fields, first: field}, node.place)
