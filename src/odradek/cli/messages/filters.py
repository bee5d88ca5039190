r"""The expressions of `consume --filter`: which messages are printed.

::

    expression  =  all { "or" all }
    all         =  one { "and" one }
    one         =  "not" one | "(" expression ")" | operand [ operator operand ]
    operator    =  "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "starts" | "ends" | "~"
    operand     =  field | text in quotes | number | "true" | "false" | "null"
    field       =  "topic" | "partition" | "offset" | "timestamp"
                |  ( "key" | "value" ) { "." name | "[" number "]" | "[" text "]" }
                |  ( "header" | "headers" ) ( "." name | "[" text "]" )

``key`` and ``value`` alone are their text; with a path behind them, a part of their JSON. ``~`` is
a regular expression that is found anywhere. A field that is not there is null; a field alone asks
whether it is there and neither false nor null. Values of different types are never equal, and
neither is less; nothing is evaluated but this.
"""

import re
from collections.abc import Callable
from typing import Final

from odradek.cli.messages.content import ABSENT, Content, PathStep, walk

__all__ = ["FilterError", "parse_filter", "parse_path"]

Read = Callable[[Content], object]
Holds = Callable[[Content], bool]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<operator>==|!=|<=|>=|<|>|~)
      | (?P<mark>[().\[\]])
      | (?P<word>[\w$@-]+)
    )""",
    re.VERBOSE,
)
_WORD_OPERATORS: Final = ("contains", "starts", "ends")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_MAX_DEPTH: Final = 100
_PLAIN_FIELDS: Final = ("topic", "partition", "offset", "timestamp")


class FilterError(ValueError):
    """An expression that cannot be understood."""


def parse_filter(text: str) -> Holds:
    """Reads an expression.

    Raises:
        FilterError: It is malformed.
    """
    parser = _Parser(text)
    holds = parser.expression()
    parser.expect_end()
    return holds


def parse_path(text: str) -> Read:
    """Reads a field, as templates name it.

    Raises:
        FilterError: It is malformed, or there is no such field.
    """
    parser = _Parser(text)
    read = parser.field()
    parser.expect_end()
    return read


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []  # Kind, text, position.
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise FilterError(f"{text!r}: cannot read {text[at:].strip()[:20]!r}")
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind], found.start(kind)))
            at = found.end()
        self._at = 0
        self._depth = 0

    # Expressions

    def expression(self) -> Holds:
        parts = [self._all()]
        while self._take_word("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda one: any(part(one) for part in parts)

    def _all(self) -> Holds:
        parts = [self._one()]
        while self._take_word("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda one: all(part(one) for part in parts)

    def _one(self) -> Holds:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FilterError(f"more than {_MAX_DEPTH} parentheses, or words `not`")
        try:
            if self._take_word("not"):
                inner = self._one()
                return lambda one: not inner(one)
            if self._take("mark", "("):
                inner = self.expression()
                if not self._take("mark", ")"):
                    raise self._unexpected("a closing parenthesis")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Holds:
        left = self._operand()
        kind, word, _ = self._peek()
        if kind != "operator" and not (kind == "word" and word in _WORD_OPERATORS):
            return lambda one: _is_there(left(one))
        self._at += 1
        if word == "~":
            return _matching(left, self._pattern())
        return _comparing(left, word, self._operand())

    def _pattern(self) -> re.Pattern[str]:
        kind, word, _ = self._peek()
        if kind != "text":
            raise self._unexpected("a regular expression in quotes")
        self._at += 1
        # Backslashes belong to the expression, but for those before the quote.
        pattern = word[1:-1].replace("\\" + word[0], word[0])
        try:
            return re.compile(pattern)
        except re.error as error:
            raise FilterError(f"{pattern!r} is no regular expression: {error}") from None

    # Operands

    def _operand(self) -> Read:
        kind, word, _ = self._peek()
        if kind == "number":
            self._at += 1
            number = float(word) if re.search(r"[.eE]", word) else int(word)
            return lambda _one: number
        if kind == "text":
            self._at += 1
            text = _unquote(word)
            return lambda _one: text
        if kind == "word" and word in ("true", "false", "null"):
            self._at += 1
            fixed = {"true": True, "false": False, "null": None}[word]
            return lambda _one: fixed
        return self.field()

    def field(self) -> Read:
        kind, word, _ = self._peek()
        if kind == "word" and word in _PLAIN_FIELDS:
            self._at += 1
            return lambda one: getattr(one.record, word)
        if kind == "word" and word in ("header", "headers"):
            self._at += 1
            path = self._path()
            if len(path) != 1 or not isinstance(path[0], str):
                raise FilterError(f"{word} needs one name, as in {word}.trace")
            name = path[0]
            return lambda one: _text(one.header(name))
        if kind == "word" and word in ("key", "value"):
            self._at += 1
            path = self._path()
            if not path:
                return (lambda one: _text(one.key)) if word == "key" else _value_text
            if word == "key":
                return lambda one: walk(one.key_json, path)
            return lambda one: walk(one.value_json, path)
        raise self._unexpected(
            "a field (key, value, header.NAME, topic, partition, offset, timestamp), "
            "a number or a text in quotes"
        )

    def _path(self) -> tuple[PathStep, ...]:
        path: list[PathStep] = []
        while True:
            if self._take("mark", "."):
                kind, word, _ = self._peek()
                # `0.5` behind a dot is a number; a name may have digits in front.
                if kind not in ("word", "number") or "." in word:
                    raise self._unexpected("a name")
                path.append(word)
                self._at += 1
            elif self._take("mark", "["):
                kind, word, _ = self._peek()
                if kind == "text":
                    path.append(_unquote(word))
                elif kind == "number" and re.fullmatch(r"-?\d{1,9}", word):
                    path.append(int(word))
                else:
                    raise self._unexpected("a place or a name in quotes")
                self._at += 1
                if not self._take("mark", "]"):
                    raise self._unexpected("`]`")
            else:
                return tuple(path)

    # Tokens

    def _peek(self) -> tuple[str, str, int]:
        if self._at < len(self._tokens):
            return self._tokens[self._at]
        return "end", "", len(self._text)

    def _take(self, kind: str, text: str) -> bool:
        is_next = self._peek()[:2] == (kind, text)
        self._at += is_next
        return is_next

    def _take_word(self, word: str) -> bool:
        return self._take("word", word)

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unexpected("`and`, `or` or the end")

    def _unexpected(self, expected: str) -> FilterError:
        _, word, at = self._peek()
        found = repr(word) if word else "the end"
        return FilterError(f"{self._text!r}: expected {expected}, found {found} at {at + 1}")


def _unquote(word: str) -> str:
    return re.sub(
        r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), word[1:-1], flags=re.DOTALL
    )


def _value_text(one: Content) -> object:
    return _text(one.value)


def _text(content: object) -> object:
    """Bytes as text; those that are not UTF-8 keep their bytes and equal no text in quotes."""
    return content.decode("utf-8", "surrogateescape") if isinstance(content, bytes) else content


def _matching(left: Read, pattern: re.Pattern[str]) -> Holds:
    def holds(one: Content) -> bool:
        found = left(one)
        return isinstance(found, str) and pattern.search(found) is not None

    return holds


def _comparing(left: Read, operator: str, right: Read) -> Holds:
    compare = _OPERATORS[operator]
    return lambda one: compare(_plain(left(one)), _plain(right(one)))


def _plain(found: object) -> object:
    return None if found is ABSENT else found


def _is_there(found: object) -> bool:
    return found is not ABSENT and found is not None and found is not False


def _is_number(found: object) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool)


def _equal(left: object, right: object) -> bool:
    if _is_number(left) and _is_number(right):
        return left == right
    return type(left) is type(right) and left == right


def _ordered(compare: Callable[[object, object], bool]) -> Callable[[object, object], bool]:
    def holds(left: object, right: object) -> bool:
        are_texts = isinstance(left, str) and isinstance(right, str)
        if not are_texts and not (_is_number(left) and _is_number(right)):
            return False
        return compare(left, right)

    return holds


def _contains(left: object, right: object) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return isinstance(left, list | dict) and any(_equal(one, right) for one in left)


def _both_text(compare: Callable[[str, str], bool]) -> Callable[[object, object], bool]:
    return lambda left, right: (
        isinstance(left, str) and isinstance(right, str) and compare(left, right)
    )


_OPERATORS: Final[dict[str, Callable[[object, object], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: left < right),  # type: ignore[operator]  # of one type
    "<=": _ordered(lambda left, right: left <= right),  # type: ignore[operator]
    ">": _ordered(lambda left, right: left > right),  # type: ignore[operator]
    ">=": _ordered(lambda left, right: left >= right),  # type: ignore[operator]
    "contains": _contains,
    "starts": _both_text(str.startswith),
    "ends": _both_text(str.endswith),
}
