r"""The templates of `consume --format`: what is printed of a message.

A template is text with fields in braces, and a line end behind it::

    {topic} {partition} {offset} {timestamp} {key} {value} {headers} {header.NAME} {value.a.b[0]}

A field may have a form behind a colon, as ``{value:hex}``:

=========  =====================================================================================
text       the bytes as they are; what `--null-marker` says for null. The form if none is named
json       a JSON value: text in quotes, a number, null; bytes that are not UTF-8 are an object
           ``{"base64": "…"}``; a part of JSON is printed as JSON
hex        the bytes in hexadecimal
base64     the bytes in base64
size       the number of bytes, -1 for null
iso        a timestamp as date and time, in UTC
=========  =====================================================================================

``{{`` and ``}}`` are braces, and ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` what they are elsewhere.
"""

import base64
import re
from collections.abc import Callable
from typing import Final

from odradek.cli.messages.content import ABSENT, Content, dump
from odradek.cli.messages.filters import FilterError, parse_path

__all__ = ["TemplateError", "parse_template", "unescape"]

Part = Callable[[Content], bytes]

_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_FORMS: Final = ("text", "json", "hex", "base64", "size", "iso")


class TemplateError(ValueError):
    """A template that cannot be understood."""


def unescape(text: str) -> str:
    r"""Replaces `\n`, `\t`, `\r`, `\0` and `\\`, which are hard to type in shells."""
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), text)


def parse_template(text: str, null: bytes) -> Callable[[Content], bytes]:
    """Reads a template.

    Args:
        null: Printed for null, and for what is not there.

    Raises:
        TemplateError: It is malformed, or names an unknown field or form.
    """
    parts: list[Part] = []
    for found in _PIECE.finditer(text):
        piece = found[0]
        if found[1] is not None:
            parts.append(_field(found[1], null))
        elif piece in ("{", "}"):
            raise TemplateError(f"{text!r}: a single {piece}; write {piece}{piece} for a brace")
        else:
            fixed = (piece[0] if piece in ("{{", "}}") else unescape(piece)).encode(
                "utf-8", "surrogateescape"
            )
            parts.append(lambda _one, fixed=fixed: fixed)  # type: ignore[misc]  # its own default
    return lambda one: b"".join([part(one) for part in parts])


def _field(named: str, null: bytes) -> Part:
    # A colon within brackets and quotes belongs to the path.
    path, colon, form = named.rpartition(":")
    if not colon or "]" in form or '"' in form:
        path, form = named, "text"
    if form not in _FORMS:
        raise TemplateError(
            f"{{{named}}}: there is no form {form!r}; there are {', '.join(_FORMS)}"
        )
    read = _reader(path.strip(), named)
    if form == "iso":
        if path.strip() != "timestamp":
            raise TemplateError(f"{{{named}}}: iso is for the timestamp")
        return lambda one: _iso(one.record.timestamp)
    if form == "json":
        return lambda one: _json(read(one))
    write = _WRITERS[form]

    def part(one: Content) -> bytes:
        content = _bytes(read(one))
        if content is None:
            return b"-1" if form == "size" else null
        return write(content)

    return part


def _reader(path: str, named: str) -> Callable[[Content], object]:
    # The bytes of these, which need not be text.
    match path:
        case "key":
            return lambda one: one.key
        case "value":
            return lambda one: one.value
        case "headers":
            return lambda one: dict_of_headers(one)
    if found := re.fullmatch(r"headers?\.([\w$@-]+)", path):
        name = found[1]
        return lambda one: one.header(name)
    try:
        return parse_path(path)
    except FilterError as error:
        raise TemplateError(f"{{{named}}}: {error}") from None


def dict_of_headers(one: Content) -> list[tuple[str, bytes | None]]:
    """All headers, in order."""
    return list(one.record.headers)


def _bytes(found: object) -> bytes | None:
    """What the forms but JSON print."""
    if found is None or found is ABSENT:
        return None
    if isinstance(found, bytes):
        return found
    if isinstance(found, str):
        return found.encode("utf-8", "surrogateescape")
    if _is_headers(found):
        return b",".join(
            name.encode("utf-8", "surrogateescape") + b"=" + (b"null" if value is None else value)
            for name, value in found  # type: ignore[attr-defined]  # it is a list
        )
    return dump(found).encode("utf-8", "surrogatepass")


def _is_headers(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(one, tuple) for one in found)


def _json(found: object) -> bytes:
    if found is ABSENT:
        found = None
    elif isinstance(found, bytes):
        found = _text_or_base64(found)
    elif _is_headers(found):
        found = [
            {
                "key": _text_or_base64(name.encode("utf-8", "surrogateescape")),
                "value": None if value is None else _text_or_base64(value),
            }
            for name, value in found  # type: ignore[attr-defined]  # it is a list
        ]
    return dump(found).encode("utf-8", "surrogatepass")


def _text_or_base64(content: bytes) -> object:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _unchanged(content: bytes) -> bytes:
    return content


def _hex(content: bytes) -> bytes:
    return content.hex().encode()


def _size(content: bytes) -> bytes:
    return b"%d" % len(content)


_WRITERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "text": _unchanged,
    "hex": _hex,
    "base64": base64.b64encode,
    "size": _size,
}


def _iso(timestamp_ms: int) -> bytes:
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:  # Beyond the year 9999.
        return b"%d" % timestamp_ms
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
