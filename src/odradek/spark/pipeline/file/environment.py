"""Replaces `${NAME}` and `${NAME:-default}` in the values of a tree; `$${` means `${`.

Values from the environment are kept as secrets: they are never shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Origins, Scalar
from odradek.spark.pipeline.file.problems import Problems, suggestion
from odradek.spark.pipeline.file.yaml_tree import core_value

__all__ = ["Environment"]

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


@dataclass(slots=True)
class Environment:
    """Replaces names, and keeps their values as secrets."""

    variables: Mapping[str, str] = field(repr=False)
    problems: Problems
    secrets: set[str] = field(default_factory=set, repr=False)

    def replace(self, node: Node) -> Node:
        """The tree with every name replaced."""
        match node:
            case Scalar():
                return self._scalar(node)
            case Items():
                return Items(tuple(self.replace(item) for item in node.items), node.place)
            case Fields():
                fields = {
                    key: MapEntry(key, one.key_place, self.replace(one.node))
                    for key, one in node.fields.items()
                }
                return Fields(fields, node.place)

    def _scalar(self, node: Scalar) -> Scalar:
        if not isinstance(node.value, str) or "${" not in node.text:
            return node
        pieces: list[str] = []
        starts: list[tuple[int, int, int]] = []
        length = copied = 0
        is_secret = False
        for reference in _REFERENCE.finditer(node.text):
            begin = reference.start()
            starts.extend(node.origins.cut(copied, begin, at=length))
            pieces.append(node.text[copied:begin])
            length += begin - copied
            copied = reference.end()
            text, came_from_outside = self._value_of(reference, node)
            is_secret = is_secret or came_from_outside
            place = node.place_at(begin)
            starts.append((length, place.line, place.column))
            pieces.append(text)
            length += len(text)
        if not pieces:
            return node
        starts.extend(node.origins.cut(copied, len(node.text), at=length))
        pieces.append(node.text[copied:])
        text = "".join(pieces)
        if is_secret:
            self.secrets.add(text)
        return Scalar(
            value=core_value(text) if node.is_plain else text,
            text=text,
            place=node.place,
            origins=Origins(node.origins.file, _without_empty_parts(starts)),
            is_plain=node.is_plain,
            was_replaced=True,
            is_secret=is_secret,
        )

    def _value_of(self, reference: re.Match[str], node: Scalar) -> tuple[str, bool]:
        name = reference["name"]
        if name is None:
            return "${", False
        # Set but empty counts as not set, as `:-` means in a shell.
        value = self.variables.get(name, "")
        if value:
            self.secrets.add(value)
            return value, True
        if reference["default"] is not None:
            return reference["default"], False
        if name in self.variables:
            return "", False
        hint = suggestion(name, self.variables)
        self.problems.error(
            node.place_at(reference.start()),
            "P04",
            f"environment name {name} is not set{hint}; set it, or write ${{{name}:-default}}",
        )
        return "", False


def _without_empty_parts(
    starts: list[tuple[int, int, int]],
) -> tuple[tuple[int, int, int], ...]:
    """Keeps the last of several starts at one offset."""
    return tuple({offset: (offset, line, column) for offset, line, column in starts}.values())
