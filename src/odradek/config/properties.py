r"""Configuration as text: Java's .properties files and ``key=value`` arguments.

The file format, as Java reads it:

* A line whose first non-blank character is ``#`` or ``!`` is a comment.
* An odd number of backslashes at its end joins a line with the next, whose leading blanks are
  dropped. Comments are not joined.
* The key ends at the first unescaped ``=``, ``:`` or blank. Blanks around the separator are
  dropped, blanks at the end of the value are not.
* ``\t \n \r \f`` and ``\uXXXX`` are escapes; a backslash before anything else is dropped.
* Of several lines with the same key the last one is used.

Blanks are space, tab and form feed.
"""

import re
from collections.abc import Iterable, Iterator

from odradek.errors import ConfigError

__all__ = ["parse_assignments", "parse_properties"]

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u.{0,4}|.|$)", re.DOTALL)
_HEX = re.compile(r"u[0-9a-fA-F]{4}", re.ASCII)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""The keys and values of a properties file.

    Raises:
        ConfigError: For a malformed ``\uXXXX`` escape, naming the line.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_match = _KEY.match(line)
        assert key_match is not None, "the pattern matches the empty string"
        separator = _SEPARATOR.match(line, key_match.end())
        assert separator is not None, "the pattern matches the empty string"
        key = _unescape(key_match.group(), number)
        properties[key] = _unescape(line[separator.end() :], number)
    return properties


def parse_assignments(arguments: Iterable[str]) -> dict[str, str]:
    """The keys and values of arguments such as ``log.dirs=/a,/b``; values are not unescaped.

    Raises:
        ConfigError: For an argument without ``=`` or without a key.
    """
    assignments: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(argument, None, "expected KEY=VALUE")
        assignments[key] = value
    return assignments


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, comments and blank lines left out; numbered from 1."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if parts:
        yield first, "".join(parts)


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escape = match.group(1)
        if not escape.startswith("u"):
            return _ESCAPED.get(escape, escape)
        if not _HEX.fullmatch(escape):
            raise ConfigError(
                f"line {line_number}", match.group(), "expected \\u and four hexadecimal digits"
            )
        return chr(int(escape[1:], 16))

    plain = _ESCAPE.sub(replace, text)
    # Java writes a character beyond 16 bits as two escapes; one of the two alone has no meaning.
    if any("\ud800" <= character <= "\udfff" for character in plain):
        plain = plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return plain
