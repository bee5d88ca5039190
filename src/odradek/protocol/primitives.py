"""The wire types, and the few readers and writers that are not one `struct` call.

===============================  ==========================================================
type                             encoding
===============================  ==========================================================
int8 … int64, uint16/32, float64 fixed size, big-endian
bool                             1 byte; 0 is false, anything else is true
uuid                             16 bytes; all zero means absent
string                           int16 length, UTF-8; -1 is null
bytes, records                   int32 length; -1 is null
array                            int32 count; -1 is null
compact string, bytes, records   unsigned varint of length + 1; 0 is null
compact array                    unsigned varint of count + 1; 0 is null
nullable struct (flexible)       int8: -1 null, 1 present
tagged fields                    varint count, then tag, size, data each; tags ascend strictly
===============================  ==========================================================

A string has at most 32,767 bytes in both forms (`MAX_STRING_BYTES`), though the length of a compact
one could be larger: the receiver hashes, compares and keeps names.

An unsigned varint has 7 bits a byte, low bits first, the top bit set on all but the last byte;
300 is `ac 02`. It holds at most 32 bits, so it ends with the fifth byte.

Readers take `(buffer, position)` and return the value and the position after it. They may raise
`IndexError` and `struct.error`: `codec.parse_message` turns both into `DecodeError`.
"""

from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from odradek.errors import ApiError, DecodeError, ErrorCode

__all__ = [
    "BOOL",
    "BYTES",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "MAX_ELEMENTS",
    "MAX_STRING_BYTES",
    "MAX_TAGS",
    "RECORDS",
    "STRING",
    "UINT16",
    "UINT32",
    "UUID",
    "ZERO_UUID",
    "Buffer",
    "WireType",
    "encode_uvarint",
    "fail_count",
    "fail_excess",
    "fail_length",
    "fail_null",
    "fail_string",
    "fail_tag",
    "parse_uvarint",
    "parse_uvarint_tail",
    "skip_tagged_fields",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

# The absent topic id, directory id and the like.
ZERO_UUID: Final = bytes(16)

# The largest int16 length; longer compact strings are refused, as Kafka's readers do.
MAX_STRING_BYTES: Final = 32_767

# Elements of all arrays of a long request together. Each takes 1 to 20 microseconds of the loop, to
# read and to answer, and some steps, such as making a set of all, are not divided. A client that
# wants more, such as 10,000 partitions with replicas that it chooses, divides its request.
MAX_ELEMENTS: Final = 1 << 14
# Tagged fields that one struct may have; Kafka's declare a dozen at most.
MAX_TAGS: Final = 128


class WireType(NamedTuple):
    """One primitive type; those of variable size have no `code`."""

    name: str
    # Format character(s) of `struct`, without the byte order; "" when the size varies.
    code: str
    # Size when fixed, else 0.
    size_bytes: int
    # The value of a field without a declared default; that of Kafka's definitions.
    default: Any


INT8: Final = WireType("int8", "b", 1, 0)
INT16: Final = WireType("int16", "h", 2, 0)
INT32: Final = WireType("int32", "i", 4, 0)
INT64: Final = WireType("int64", "q", 8, 0)
UINT16: Final = WireType("uint16", "H", 2, 0)
UINT32: Final = WireType("uint32", "I", 4, 0)
FLOAT64: Final = WireType("float64", "d", 8, 0.0)
BOOL: Final = WireType("bool", "?", 1, False)
UUID: Final = WireType("uuid", "16s", 16, ZERO_UUID)
STRING: Final = WireType("string", "", 0, "")
BYTES: Final = WireType("bytes", "", 0, b"")
# Record batches: read as a view into the request, never copied, never parsed here.
RECORDS: Final = WireType("records", "", 0, None)


def encode_uvarint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    low = value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80
    if value < 0x10000000:
        return bytes((*low, value >> 21))
    return bytes((*low, value >> 21 & 0x7F | 0x80, value >> 28))


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def parse_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Reads an unsigned varint.

    Raises:
        DecodeError: It has more than 32 bits.
        IndexError: The buffer ends inside it.
    """
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    return parse_uvarint_tail(buffer, position + 1, value)


def parse_uvarint_tail(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of a varint whose first byte, 0x80 or above, was read already.

    Raises:
        DecodeError: It has more than 32 bits.
        IndexError: The buffer ends inside it.
    """
    byte = buffer[position]
    value = first & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 2
    byte = buffer[position + 2]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 3
    byte = buffer[position + 3]
    if byte < 0x10:
        return value | byte << 28, position + 4
    raise DecodeError(f"varint at byte {position - 1} has more than 32 bits")


def skip_tagged_fields(buffer: Buffer, position: int, count: int) -> int:
    """Skips `count` unknown tagged fields; returns the position after them.

    `count` is the first byte of the varint count, read already; the varint may have more.

    Raises:
        DecodeError: Tags do not ascend, a field exceeds the end, or they are above `MAX_TAGS`.
    """
    if count > 0x7F:
        count, position = parse_uvarint_tail(buffer, position, count)
        if count > MAX_TAGS:
            fail_excess("tags", MAX_TAGS)
    previous = -1
    for _ in range(count):
        tag, position = parse_uvarint(buffer, position)
        size_bytes, position = parse_uvarint(buffer, position)
        if tag <= previous or size_bytes > len(buffer) - position:
            fail_tag(tag, previous, size_bytes, len(buffer) - position)
        previous = tag
        position += size_bytes
    return position


def fail_length(label: str, length: int, position: int, end: int) -> NoReturn:
    """Refuses a string, bytes or records length."""
    if end - position >= length > MAX_STRING_BYTES:
        raise DecodeError(
            f"{label}: a string of {length} bytes at byte {position}, {MAX_STRING_BYTES} at most "
            "are allowed"
        )
    raise DecodeError(
        f"{label}: length {length} at byte {position}, {max(end - position, 0)} bytes are left"
    )


def fail_count(label: str, count: int, position: int, end: int) -> NoReturn:
    """Refuses an array count."""
    raise DecodeError(
        f"{label}: {count} elements at byte {position} cannot fit in the "
        f"{max(end - position, 0)} bytes left"
    )


def fail_excess(label: str, most: int) -> NoReturn:
    """Refuses a request with more elements than the loop has time for."""
    raise DecodeError(f"{label}: more elements than the {most} that a request may have")


def fail_null(label: str, position: int) -> NoReturn:
    """Refuses a null."""
    raise DecodeError(f"{label}: null before byte {position}, which this version does not allow")


def fail_string(label: str, data: bytes) -> NoReturn:
    """Refuses to write a string that no reader accepts."""
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"{label}: a string of {len(data)} bytes, {MAX_STRING_BYTES} at most can be sent; "
        "use a shorter one",
    )


def fail_tag(tag: int, previous: int, size_bytes: int, left_bytes: int) -> NoReturn:
    """Refuses a tagged field."""
    if tag <= previous:
        raise DecodeError(f"tag {tag} after tag {previous}: tags must ascend")
    raise DecodeError(f"tag {tag} announces {size_bytes} bytes, {left_bytes} are left or were used")
