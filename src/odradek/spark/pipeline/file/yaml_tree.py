"""Parses YAML 1.2 into the tree: one document of the core schema, without duplicate keys.

The parser is ruamel.yaml's; types are decided here, since the core schema has fewer of them (`yes`,
`on`, `12:30`, `1_000` and `2026-01-01` are strings).
"""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from odradek.spark.pipeline.file.nodes import Fields, Items, MapEntry, Node, Origins, Scalar
from odradek.spark.pipeline.file.problems import Problems
from odradek.spark.pipeline.graph.model import Place

__all__ = ["MAX_FILE_BYTES", "core_value", "parse_yaml", "read_text"]

MAX_FILE_BYTES = 1 << 20
# Aliases of aliases may grow exponentially; no handwritten file has this many values.
_MAX_NODES = 300_000

_TAG = "tag:yaml.org,2002:"
_CORE_TAGS = {"str", "null", "bool", "int", "float", "map", "seq"}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE, _FALSE = {"true", "True", "TRUE"}, {"false", "False", "FALSE"}
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+|[&!]\S*[ \t]*(?:#[^\n]*)?\n\s*)+")
_ESCAPE = re.compile(r"\\(?:x..|u.{4}|U.{8}|.)", re.DOTALL)
_BLANK_ESCAPES = ("\\n", "\\t", "\\ ", "\\r", "\\_", "\\N", "\\L", "\\P", "\\\n", "\\\t")


def read_text(path: str, shown: str, problems: Problems) -> str | None:
    """The text of a file; None, with the problem reported, if it is not usable.

    Raises:
        OSError: It cannot be opened.
    """
    with open(path, "rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    start = Place(shown, 1, 1)
    if len(content) > MAX_FILE_BYTES:
        problems.error(start, "P01", f"the file is larger than {MAX_FILE_BYTES} bytes")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        message = f"the file is not UTF-8: byte {content[error.start]:#04x}"
        problems.error(Place(shown, line, column), "P01", message)
        return None


def parse_yaml(text: str, shown: str, problems: Problems) -> Node | None:
    """The tree of a document; None, with the problem reported, if it cannot be read."""
    parser = YAML(typ="safe", pure=True)
    try:
        root = parser.compose(text)
        if root is None:
            problems.error(Place(shown, 1, 1), "P01", "the file is empty")
            return None
        return _Builder(text, shown, problems).build(root)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(shown, mark.line + 1, mark.column + 1) if mark else Place(shown, 1, 1)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        problems.error(place, "P01", f"not readable as YAML: {what}")
    except YAMLError as error:
        problems.error(Place(shown, 1, 1), "P01", f"not readable as YAML: {_one_line(error)}")
    except RecursionError:
        problems.error(Place(shown, 1, 1), "P01", "not readable as YAML: nested too deep")
    except _TooLargeError:
        message = f"the file has more than {_MAX_NODES} values once its aliases are followed"
        problems.error(Place(shown, 1, 1), "P01", message)
    return None


def core_value(text: str) -> Any:
    """The value of a text without quotes, by the core schema."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] in {"0o", "0x"} else 10)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


class _TooLargeError(Exception):
    """The file has too many values once its aliases are followed."""


class _Builder:
    def __init__(self, text: str, shown: str, problems: Problems) -> None:
        self._text = text
        self._shown = shown
        self._problems = problems
        self._open: set[int] = set()
        # Nodes built already, with their total size: an alias is the same node again.
        self._built: dict[int, tuple[Node, int]] = {}
        self._size = 0

    def build(self, node: Any) -> Node:
        known = self._built.get(id(node))
        before = self._size
        if known is None:
            built = self._build(node)
            self._size += 1
            self._built[id(node)] = built, self._size - before
        else:
            built, size = known
            self._size += size
        if self._size > _MAX_NODES:
            raise _TooLargeError
        return built

    def _build(self, node: Any) -> Node:
        place = self._place(node)
        if isinstance(node, ScalarNode):
            return self._scalar(node, place)
        if id(node) in self._open:
            self._problems.error(place, "P01", "an alias is inside of the value it refers to")
            return Items((), place)
        self._open.add(id(node))
        self._check_tag(node, place)
        built: Node
        if isinstance(node, MappingNode):
            built = self._fields(node, place)
        else:
            assert isinstance(node, SequenceNode)
            built = Items(tuple(self.build(item) for item in node.value), place)
        self._open.discard(id(node))
        return built

    def _fields(self, node: Any, place: Place) -> Fields:
        fields: dict[str, MapEntry] = {}
        for key_node, value_node in node.value:
            key_place = self._place(key_node)
            value = self.build(value_node)
            if not isinstance(key_node, ScalarNode):
                self._problems.error(key_place, "P01", "a key has to be a single value")
                continue
            key = key_node.value
            if key in fields:
                first = fields[key].key_place.line
                message = f"duplicate key '{key}' (first in line {first})"
                self._problems.error(key_place, "P01", message)
                continue
            fields[key] = MapEntry(key, key_place, value)
        return Fields(fields, place)

    def _scalar(self, node: Any, place: Place) -> Scalar:
        tag = self._check_tag(node, place)
        text = node.value
        raw = self._text[node.start_mark.index : node.end_mark.index]
        has_own_tag = raw.lstrip("&").startswith("!") or bool(re.match(r"&\S+\s+!", raw))
        is_plain = node.style is None and not has_own_tag
        value = core_value(text) if is_plain else text
        if has_own_tag and tag in {"int", "float", "bool", "null"}:
            value = core_value(text)
        return Scalar(
            value=value,
            text=text,
            place=place,
            origins=Origins(self._shown, tuple(_align(node, raw))),
            is_plain=is_plain,
        )

    def _check_tag(self, node: Any, place: Place) -> str:
        tag = str(node.tag)
        short = tag.removeprefix(_TAG)
        known = tag.startswith(_TAG) and (short in _CORE_TAGS or self._is_implicit(node))
        if not known and tag not in {"!", "?"}:
            self._problems.error(place, "P01", f"tag '{tag}' is not in YAML's core schema")
        return short

    def _is_implicit(self, node: Any) -> bool:
        """Whether ruamel.yaml added the tag, as for timestamps and merge keys, not the file."""
        raw = self._text[node.start_mark.index : node.end_mark.index]
        return isinstance(node, ScalarNode) and "!" not in raw.partition(node.value)[0]

    def _place(self, node: Any) -> Place:
        mark = node.start_mark
        return Place(self._shown, mark.line + 1, mark.column + 1)


def _align(node: Any, raw: str) -> list[tuple[int, int, int]]:
    """The place of each part of a scalar's text.

    Folding and indentation change blanks only, so the other characters of text and file are the
    same ones in the same order; in quotes, an escape is one character of the text.
    """
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    style = node.style
    position = 0
    prefix = _PROPERTIES.match(raw)
    if prefix is not None:
        position = prefix.end()
    if style in {"|", ">"}:
        position = raw.find("\n", position) + 1 or len(raw)
    elif style in {"'", '"'}:
        position += 1
    for character in raw[:position]:
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    starts: list[tuple[int, int, int]] = []
    expected: tuple[int, int] | None = None  # Place of the next character if it is adjacent.
    for offset, character in enumerate(node.value):
        if character.isspace():
            expected = (expected[0], expected[1] + 1) if expected else None
            continue
        while position < len(raw):
            width = _blank_width(raw, position, style)
            if not width:
                break
            for blank in raw[position : position + width]:
                line, column = (line + 1, 1) if blank == "\n" else (line, column + 1)
            position += width
        if expected != (line, column):
            starts.append((offset, line, column))
        width = _character_width(raw, position, style)
        position += width
        column += width
        expected = (line, column) if width == 1 else None
    if not starts or starts[0][0] > 0:
        first = starts[0] if starts else (0, line, column)
        starts.insert(0, (0, first[1], max(first[2] - first[0], 1)))
    return starts


def _blank_width(raw: str, position: int, style: str | None) -> int:
    if raw[position].isspace():
        return 1
    return 2 if style == '"' and raw.startswith(_BLANK_ESCAPES, position) else 0


def _character_width(raw: str, position: int, style: str | None) -> int:
    if style == "'" and raw.startswith("''", position):
        return 2
    if style == '"' and raw.startswith("\\", position):
        escape = _ESCAPE.match(raw, position)
        return len(escape.group()) if escape else 1
    return 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
