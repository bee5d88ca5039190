"""Strings, counts and tags for the hand-tuned codecs; the hottest loops have them inline."""

from struct import Struct
from typing import Final

from odradek.protocol.primitives import (
    MAX_STRING_BYTES,
    encode_uvarint,
    fail_count,
    fail_length,
    fail_null,
    parse_uvarint,
    skip_tagged_fields,
)

__all__ = [
    "encode_compact_string",
    "encode_string",
    "parse_compact_count",
    "parse_compact_string",
    "parse_count",
    "parse_string",
    "pass_tags",
    "present",
]

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_MAX_COMPACT_LENGTH: Final = MAX_STRING_BYTES + 1


def parse_string(view: memoryview, position: int, label: str) -> tuple[str | None, int]:
    """Reads a nullable string with an int16 length."""
    (length,) = _INT16.unpack_from(view, position)
    position += 2
    if length < 0:
        if length < -1:
            fail_length(label, length, position, len(view))
        return None, position
    end = position + length
    if end > len(view):
        fail_length(label, length, position, len(view))
    return str(view[position:end], "utf-8"), end


def parse_compact_string(view: memoryview, position: int, label: str) -> tuple[str | None, int]:
    """Reads a nullable compact string."""
    length, position = parse_uvarint(view, position)
    if not length:
        return None, position
    end = position + length - 1
    if end > len(view) or length > _MAX_COMPACT_LENGTH:
        fail_length(label, length - 1, position, len(view))
    return str(view[position:end], "utf-8"), end


def parse_count(view: memoryview, position: int, label: str, least_bytes: int) -> tuple[int, int]:
    """Reads an int32 count of elements of at least `least_bytes` each; -1 is null."""
    (count,) = _INT32.unpack_from(view, position)
    position += 4
    if count < -1:
        fail_length(label, count, position, len(view))
    if count * least_bytes > len(view) - position:
        fail_count(label, count, position, len(view))
    return count, position


def parse_compact_count(
    view: memoryview, position: int, label: str, least_bytes: int
) -> tuple[int, int]:
    """Reads a compact count of elements of at least `least_bytes` each; -1 is null."""
    count, position = parse_uvarint(view, position)
    count -= 1
    if count * least_bytes > len(view) - position:
        fail_count(label, count, position, len(view))
    return count, position


def pass_tags(view: memoryview, position: int) -> int:
    """Skips a tag section, which is nearly always one zero byte."""
    if tag_count := view[position]:
        return skip_tagged_fields(view, position + 1, tag_count)
    return position + 1


def encode_string(value: str | None) -> bytes:
    """Writes a nullable string with an int16 length."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _INT16.pack(len(data)) + data


def encode_compact_string(value: str | None) -> bytes:
    """Writes a nullable compact string."""
    if value is None:
        return b"\0"
    data = value.encode()
    return encode_uvarint(len(data) + 1) + data


def present(value: str | None, label: str, position: int) -> str:
    """Refuses a null string where none is allowed."""
    if value is None:
        fail_null(label, position)
    return value
