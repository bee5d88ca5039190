"""Reads the keys of one map of the tree, each with its type, and finds the unknown ones.

A getter that finds a wrong value reports the problem and returns the default, so that reading
continues and all problems are found at once.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar
from urllib.parse import urlsplit

from odradek.spark.pipeline.file.environment import Environment
from odradek.spark.pipeline.file.nodes import Fields, Items, Node, Scalar
from odradek.spark.pipeline.file.problems import Problems, suggestion
from odradek.spark.pipeline.file.units import parse_duration_ms, parse_size_bytes
from odradek.spark.pipeline.graph.locations import is_uri
from odradek.spark.pipeline.graph.model import Place

__all__ = ["Context", "Section", "is_secret_key"]

_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECRET_KEYS = ("password", "secret", "token", "jaas.config")
_MAX_INT = (1 << 63) - 1


@dataclass(slots=True)
class Context:
    """Shared by all readers: the collected problems, the folder for relative paths, and secrets."""

    problems: Problems
    environment: Environment
    folder: str  # Of the pipeline's file; absolute.

    def error(self, place: Place, code: str, message: str) -> None:
        """Reports a problem."""
        self.problems.error(place, code, message)

    def resolve(self, path: str) -> str:
        """The absolute path; a URI is returned unchanged."""
        return path if is_uri(path) else os.path.normpath(os.path.join(self.folder, path))


def is_secret_key(key: str) -> bool:
    """Whether the value of a key is never shown."""
    return key.casefold().endswith(_SECRET_KEYS)


class Section:
    """One map; `what` names it in messages: `source 'raw'`."""

    def __init__(self, context: Context, node: Node, what: str) -> None:
        self.context = context
        self.what = what
        self.place = node.place
        self._known: list[str] = []
        self._fields = node.fields if isinstance(node, Fields) else {}
        if not isinstance(node, Fields):
            self.wrong_type(node, what, "a map")

    @property
    def keys(self) -> list[str]:
        """The keys of the map, in the order of the file."""
        return list(self._fields)

    def has(self, key: str) -> bool:
        """Whether the map has the key."""
        return key in self._fields

    def place_of(self, key: str) -> Place:
        """The place of a key's value; that of the map if it lacks the key."""
        return self._fields[key].node.place if key in self._fields else self.place

    def key_place(self, key: str) -> Place:
        """The place of a key; that of the map if it lacks the key."""
        return self._fields[key].key_place if key in self._fields else self.place

    def node(self, key: str) -> Node | None:
        """The value of a key; the key counts as known from now on."""
        self._known.append(key)
        field = self._fields.get(key)
        if field is not None and is_secret_key(key):
            self._hide(field.node)
        return field.node if field is not None else None

    def scalar(self, key: str, expected: str = "a string") -> Scalar | None:
        """A text with the places of its characters."""
        node = self.node(key)
        if node is None:
            return None
        if not isinstance(node, Scalar) or _as_text(node) is None:
            self.wrong_type(node, f"'{key}'", expected)
            return None
        return node

    def text(self, key: str, expected: str = "a string") -> str | None:
        """A text that is not empty, or None."""
        node = self.scalar(key, expected)
        if node is None:
            return None
        text = _as_text(node)
        if not text:
            self.wrong_type(node, f"'{key}'", expected)
            return None
        return text

    def parsed(
        self, key: str, parse: Callable[[str], _Value | None], default: _Value, expected: str
    ) -> _Value:
        """The result of `parse` for a text; the default if it returns None."""
        node = self.scalar(key, expected)
        if node is None:
            return default
        value = parse(_as_text(node) or "")
        if value is None:
            self.wrong_type(node, f"'{key}'", expected)
            return default
        return value

    def duration_ms(self, key: str, default: int, *, at_least: int = 0) -> int:
        """A duration."""
        expected = "a duration such as 500ms, 30s, 15m, 2h or 7d"
        value = self.parsed(key, parse_duration_ms, default, expected)
        if value < at_least:
            self.context.error(
                self.place_of(key), "P03", f"'{key}' of {self.what} is less than {at_least} ms"
            )
        return value

    def size_bytes(self, key: str, default: int | None) -> int | None:
        """A size."""
        expected = "a size such as 512B, 64KB, 128MB or 1GB"
        value = self.parsed(key, parse_size_bytes, -1, expected)
        if value == 0:
            self.context.error(self.place_of(key), "P03", f"'{key}' of {self.what} is 0")
        return value if value > 0 else default

    def integer(self, key: str, default: _Value, *, at_least: int = 0) -> int | _Value:
        """An integer not below `at_least`."""
        node = self.node(key)
        if node is None:
            return default
        value = node.value if isinstance(node, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            self.wrong_type(node, f"'{key}'", "an integer")
            return default
        if not at_least <= value <= _MAX_INT:
            limits = f"at least {at_least}" if value < at_least else f"at most {_MAX_INT}"
            self.wrong_type(node, f"'{key}'", f"an integer of {limits}")
            return default
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """`true` or `false`."""
        node = self.node(key)
        if node is None:
            return default
        if not isinstance(node, Scalar) or not isinstance(node.value, bool):
            self.wrong_type(node, f"'{key}'", "true or false")
            return default
        return node.value

    def choice(self, key: str, choices: type[_Choice], default: _Choice) -> _Choice:
        """One of the words of an enumeration."""
        return choices(self.word(key, [str(one) for one in choices], str(default)))

    def word(self, key: str, words: Sequence[str], default: str) -> str:
        """One of the words."""
        expected = f"one of {', '.join(words)}"
        # A bare `null` is a word if it is one of `words`, not the absence of a value.
        node = self.node(key)
        if node is None:
            return default
        text = node.text if isinstance(node, Scalar) else ""
        if text not in words:
            hint = suggestion(text, words)
            self.wrong_type(node, f"'{key}'", expected, hint)
            return default
        return text

    def names(self, key: str, expected: str = "a name or a list of names") -> tuple[str, ...]:
        """One string, or a list of them."""
        return tuple(text for text, _ in self.names_with_places(key, expected))

    def names_with_places(
        self, key: str, expected: str = "a name or a list of names"
    ) -> list[tuple[str, Place]]:
        """One string, or a list of them, each with its place."""
        node = self.node(key)
        if node is None:
            return []
        nodes = node.items if isinstance(node, Items) else (node,)
        found: list[tuple[str, Place]] = []
        for one in nodes:
            text = _as_text(one) if isinstance(one, Scalar) else None
            if not text:
                self.wrong_type(one, f"'{key}'", expected)
            elif any(text == other for other, _ in found):
                message = f"'{text}' is named twice in '{key}' of {self.what}"
                self.context.error(one.place, "P03", message)
            else:
                found.append((text, one.place))
        return found

    def url(self, key: str, schemes: tuple[str, ...]) -> str:
        """A URL that begins with one of the schemes; a password in it is hidden."""
        wanted = " or ".join(schemes)
        url = self.text(key, f"a URL that begins with {wanted}") or ""
        if url and not url.startswith(schemes):
            scheme = url.partition(":")[0]
            message = f"'{key}' of {self.what} has to begin with {wanted}, found '{scheme}:'"
            self.context.error(self.place_of(key), "P03", message)
            return url
        try:
            password = urlsplit(url).password
        except ValueError as error:
            message = f"'{key}' of {self.what} is not a URL: {error}"
            self.context.error(self.place_of(key), "P03", message)
            return url
        if password:
            self.context.environment.secrets.add(password)
        return url

    def path(self, key: str) -> str | None:
        """A path, made absolute, or a URI."""
        text = self.text(key, "a path or a URI")
        return self.context.resolve(text) if text is not None else None

    def properties(self, key: str) -> dict[str, str]:
        """A free map of settings; each value becomes a string."""
        node = self.node(key)
        if node is None:
            return {}
        if not isinstance(node, Fields):
            self.wrong_type(node, f"'{key}'", "a map")
            return {}
        found: dict[str, str] = {}
        for name, field in node.fields.items():
            if is_secret_key(name):
                self._hide(field.node)
            value = field.node.value if isinstance(field.node, Scalar) else None
            if value is None:
                self.wrong_type(field.node, f"'{key}.{name}'", "a single value", key=name)
            else:
                assert isinstance(field.node, Scalar)
                is_truth = isinstance(value, bool)
                found[name] = field.node.text.lower() if is_truth else field.node.text
        return found

    def property_places(self, key: str, name: str) -> tuple[Place, Place]:
        """The places of one entry of the map under a key: of its name and its value."""
        field = self._fields.get(key)
        inner = field.node.fields.get(name) if field and isinstance(field.node, Fields) else None
        if inner is None:
            return self.place_of(key), self.place_of(key)
        return inner.key_place, inner.node.place

    def section(self, key: str, what: str | None = None) -> "Section | None":
        """A map under a key."""
        node = self.node(key)
        return Section(self.context, node, what or f"'{key}' of {self.what}") if node else None

    def items(self, key: str, expected: str = "a list") -> tuple[Node, ...]:
        """A list under a key."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node, Items):
            self.wrong_type(node, f"'{key}'", expected)
            return ()
        return node.items

    def require(self, *keys: str) -> None:
        """Reports each of the keys that is missing."""
        for key in keys:
            if not self.has(key):
                self.context.error(self.place, "P05", f"{self.what} needs '{key}'")

    def exactly_one_of(self, keys: Sequence[str]) -> str | None:
        """The only one of `keys` in the map; None, with the problem reported, if not one."""
        present = [key for key in keys if self.has(key)]
        self._known.extend(keys)
        if len(present) == 1:
            return present[0]
        wanted = ", ".join(f"'{key}'" for key in keys)
        came = " and ".join(f"'{key}'" for key in present) if present else "none"
        place = self.key_place(present[1]) if present else self.place
        message = f"{self.what} needs exactly one of {wanted}, found {came}"
        self.context.error(place, "P11", message)
        return None

    def finish(self, *, elsewhere: Iterable[str] = (), why: str = "") -> None:
        """Reports every key that no getter read; for those in `elsewhere` with the reason `why`."""
        for key, field in self._fields.items():
            if key in self._known:
                continue
            reason = f": {why}" if key in elsewhere else suggestion(key, self._known)
            message = f"unknown key '{key}' in {self.what}{reason}"
            self.context.error(field.key_place, "P02", message)

    def wrong_type(
        self, node: Node, what: str, expected: str, hint: str = "", *, key: str = ""
    ) -> None:
        """Reports a value of a wrong type."""
        owner = f" of {self.what}" if what != self.what else ""
        message = f"{what}{owner} has to be {expected}, found {_shown(node, key or what)}{hint}"
        self.context.error(node.place, "P03", message)

    def _hide(self, node: Node) -> None:
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.text:
            self.context.environment.secrets.add(node.text)


def _as_text(node: Scalar) -> str | None:
    """The text of a string, or of a value that was replaced from the environment; else None."""
    if isinstance(node.value, str) or (node.was_replaced and node.value is not None):
        return node.text
    return None


def _shown(node: Node, key: str) -> str:
    match node:
        case Scalar() if node.is_secret or is_secret_key(key.strip("'")):
            return "***"
        case Scalar(value=None):
            return "nothing"
        case Scalar() if isinstance(node.value, str):
            text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
            return f"'{' '.join(text.split())}'"
        case Scalar():
            return node.text
        case Items():
            return "a list"
        case Fields():
            return "a map"
