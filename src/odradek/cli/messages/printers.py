"""Printers of messages for `odradek consume`, one per format."""

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from odradek.cli.messages.content import Content, Decoder
from odradek.cli.messages.escapes import escape, escape_json
from odradek.cli.messages.group_records import GROUP_FORMATS, GroupPrinter
from odradek.cli.messages.json_lines import write_decoded, write_json
from odradek.cli.messages.templates import TemplateError, parse_template, unescape

if TYPE_CHECKING:
    from odradek.records.codec import ConsumerRecord

__all__ = ["FORMATS", "Printer", "make_printer", "parse_format"]

FORMATS: Final = ("value", "key-value", "json", "offsets", "group-metadata")


def parse_format(text: str) -> str:
    """The name of a format, or a template."""
    if text in FORMATS:
        return text
    if "{" not in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected {', '.join(FORMATS)} or a template such as "
            "'{partition} {offset} {value:json}'"
        )
    try:
        parse_template(text, b"")
    except TemplateError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class Printer(Protocol):
    """Writes messages in some format."""

    def print(self, records: "Sequence[ConsumerRecord]") -> None:
        """Writes each as a line; a format may leave records out."""
        ...


def make_printer(
    arguments: argparse.Namespace,
    out: BinaryIO,
    *,
    decode_key: Decoder | None = None,
    decode_value: Decoder | None = None,
    is_terminal: bool = False,
) -> Printer:
    """The printer for the chosen format.

    Args:
        decode_key: For keys that are not text; likewise for values.
        is_terminal: Whether what a terminal would obey is escaped.
    """
    if arguments.format in GROUP_FORMATS:
        return GroupPrinter(
            out,
            shows_offsets=arguments.format.startswith("offsets"),
            is_text=arguments.format.endswith("-text"),
        )
    if arguments.format == "json":
        return _JsonPrinter(out, decode_key, decode_value, is_terminal=is_terminal)
    return _LinePrinter(arguments, out, decode_key, decode_value, is_terminal=is_terminal)


class _JsonPrinter:
    """Writes an object per line, with all of a message."""

    def __init__(
        self,
        out: BinaryIO,
        decode_key: Decoder | None,
        decode_value: Decoder | None,
        *,
        is_terminal: bool,
    ) -> None:
        self._out = out
        self._decoders = (decode_key, decode_value)
        self._is_terminal = is_terminal

    def print(self, records: "Sequence[ConsumerRecord]") -> None:
        if self._decoders == (None, None):
            text = write_json(records)
        else:
            text = "".join([write_decoded(Content(one, *self._decoders)) for one in records])
        if self._is_terminal:
            text = escape_json(text)
        # Text of a topic's own cannot have halves of surrogate pairs; decoded JSON may.
        self._out.write(text.encode("utf-8", "surrogatepass"))


class _LinePrinter:
    """Writes values, keys and values, or what a template says."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        out: BinaryIO,
        decode_key: Decoder | None,
        decode_value: Decoder | None,
        *,
        is_terminal: bool,
    ) -> None:
        self._out = out
        self._null = arguments.null_marker.encode("utf-8", "surrogateescape")
        self._separator = unescape(arguments.key_separator).encode("utf-8", "surrogateescape")
        self._end = unescape(arguments.delimiter).encode("utf-8", "surrogateescape")
        self._shows_key = arguments.format == "key-value"
        self._shows_headers = arguments.headers
        self._decoders = (decode_key, decode_value)
        self._is_terminal = is_terminal
        self._template = None
        if arguments.format not in FORMATS:
            self._template = parse_template(arguments.format, self._null)
        self._is_plain = not (
            self._template or self._shows_key or self._shows_headers or decode_key or decode_value
        )

    def print(self, records: "Sequence[ConsumerRecord]") -> None:
        if self._is_plain:
            lines = [self._null if one.value is None else one.value for one in records]
        else:
            contents = [Content(one, *self._decoders) for one in records]
            if self._template is not None:
                lines = [self._template(one) for one in contents]
            else:
                lines = [self._separator.join(self._columns(one)) for one in contents]
        if self._is_terminal:
            lines = [escape(line) for line in lines]
        end = self._end
        self._out.write(b"".join([part for line in lines for part in (line, end)]))

    def _columns(self, one: Content) -> Iterable[bytes]:
        if self._shows_headers:
            yield b",".join(
                name.encode("utf-8", "surrogateescape") + b"=" + self._bytes(content)
                for name, content in one.record.headers
            )
        if self._shows_key:
            yield self._bytes(one.key)
        yield self._bytes(one.value)

    def _bytes(self, content: bytes | None) -> bytes:
        return self._null if content is None else content
