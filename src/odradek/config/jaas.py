"""Reads the login sections of a JAAS file, in which Kafka's operators keep credentials. Pure.

::

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A section has one or more modules: class, flag, options, and a semicolon. Comments and escapes are
those of Java; a value with a `${property}`, which Java would replace, is refused. No error shows a
value.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.lazy_dataclass import dataclass

__all__ = ["JaasError", "LoginModule", "parse_jaas"]

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |"(?P<double>(?:[^"\\\n]|\\.)*)"
    |'(?P<single>(?:[^'\\\n]|\\.)*)'
    |(?P<mark>[{};=])
    |(?P<word>(?:(?!//|/\*)[^\s{};="'])+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


class JaasError(ValueError):
    """The text is no JAAS file; the message has the line."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One module of a section."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"


class _Token(NamedTuple):
    text: str
    is_mark: bool
    line: int


def parse_jaas(text: str) -> Mapping[str, tuple[LoginModule, ...]]:
    """The modules of each section, by its name.

    Raises:
        JaasError: Naming the line, and what is expected there.
    """
    tokens = _Tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while not tokens.is_at_end():
        name = tokens.word("the name of a section")
        if name in sections:
            raise tokens.error("a section of another name")
        tokens.mark("{")
        modules: list[LoginModule] = []
        while not tokens.takes("}"):
            modules.append(_module(tokens))
        tokens.mark(";")
        sections[name] = tuple(modules)
    return sections


def _module(tokens: "_Tokens") -> LoginModule:
    name = tokens.word("the class of a login module")
    if tokens.word("required or another flag").lower() not in _FLAGS:
        raise tokens.error(f"one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    while not tokens.takes(";"):
        option = tokens.word("an option or ;")
        tokens.mark("=")
        options[option] = tokens.word("the option's value")
        if "${" in options[option]:
            raise tokens.error("a value without ${…}: properties of Java are not known here")
    return LoginModule(name, options)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)


class _Tokens:
    """Takes tokens from the front."""

    def __init__(self, text: str) -> None:
        self._tokens: list[_Token] = []
        self._next = 0
        self._line = 1
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise JaasError(f"line {self._line}: expected the end of a quoted value or comment")
            kind = match.lastgroup
            if kind in ("double", "single"):
                value = _ESCAPE.sub(_unescaped, match[kind])
                self._tokens.append(_Token(value, False, self._line))
            elif kind != "space":
                self._tokens.append(_Token(match[0], kind == "mark", self._line))
            self._line += match[0].count("\n")
            position = match.end()

    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def word(self, expected: str) -> str:
        if self.is_at_end() or self._tokens[self._next].is_mark:
            raise self.error(expected, is_next=True)
        self._next += 1
        return self._tokens[self._next - 1].text

    def mark(self, mark: str) -> None:
        if not self.takes(mark):
            raise self.error(mark, is_next=True)

    def takes(self, mark: str) -> bool:
        """Takes the mark if it is next."""
        if self.is_at_end() or self._tokens[self._next][:2] != (mark, True):
            return False
        self._next += 1
        return True

    def error(self, expected: str, *, is_next: bool = False) -> JaasError:
        index = self._next if is_next else self._next - 1
        line = self._tokens[index].line if index < len(self._tokens) else self._line
        return JaasError(f"line {line}: expected {expected}")
