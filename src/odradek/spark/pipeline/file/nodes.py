"""The tree of values with their places, into which each form of a pipeline is parsed first.

A text has the place of each of its characters, so that an error inside of SQL points into the file,
also after folded lines, escapes and replaced environment names.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.model import Place

__all__ = ["Fields", "Items", "MapEntry", "Node", "Origins", "Scalar", "plain_value"]


@dataclass(frozen=True, slots=True)
class Origins:
    """The places of the characters of a text.

    Attributes:
        starts: (offset in the text, line, column), ascending by offset; from each on, characters
            are adjacent in the file. Never empty, the first offset is 0.
    """

    file: str
    starts: tuple[tuple[int, int, int], ...]

    def place_at(self, offset: int) -> Place:
        """The place of the character at `offset`."""
        index = bisect_right(self.starts, (max(offset, 0), 1 << 60, 0)) - 1
        start, line, column = self.starts[max(index, 0)]
        return Place(self.file, line, column + max(offset - start, 0))

    def cut(self, begin: int, end: int, *, at: int) -> Iterator[tuple[int, int, int]]:
        """The starts of the part from `begin` to `end`, which is moved to offset `at`."""
        place = self.place_at(begin)
        yield at, place.line, place.column
        for offset, line, column in self.starts:
            if begin < offset < end:
                yield at + offset - begin, line, column


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value.

    Attributes:
        value: By the core schema of YAML: a string, a number, a truth value or None; in a tree
            built from Python also a function.
        text: The value as it is written, without quotes.
        is_plain: Whether it has no quotes, so that its type follows from its text.
        was_replaced: Whether part of it is the result of `${...}`.
        is_secret: Whether part of it is from the environment.
    """

    value: Any
    text: str
    place: Place
    origins: Origins
    is_plain: bool = True
    was_replaced: bool = False
    is_secret: bool = False

    def place_at(self, offset: int) -> Place:
        """The place of the character at `offset` of the text."""
        return self.origins.place_at(offset)


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    place: Place


@dataclass(frozen=True, slots=True)
class MapEntry:
    """An entry of a map."""

    key: str
    key_place: Place
    node: "Node"


@dataclass(frozen=True, slots=True)
class Fields:
    """A map, in the order of the file."""

    fields: Mapping[str, MapEntry]
    place: Place


Node = Scalar | Items | Fields


def plain_value(node: Node, scalar: Callable[[Scalar], Any] = lambda node: node.value) -> Any:
    """The tree as lists, dicts and values."""
    match node:
        case Scalar():
            return scalar(node)
        case Items():
            return [plain_value(item, scalar) for item in node.items]
        case Fields():
            return {name: plain_value(one.node, scalar) for name, one in node.fields.items()}
