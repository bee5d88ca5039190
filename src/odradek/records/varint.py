"""Zigzag variable-length integers, as used inside records.

Base 128, least significant group first, the high bit says that more follows; zigzag folds the sign
into the lowest bit, so that small magnitudes stay short: 0, -1, 1, -2 become 0, 1, 2, 3. A varint
has at most 5 bytes and 32 bits, a varlong 10 and 64; bits beyond are dropped, as the Java reader
does. The *unsigned* varints of the wire protocol's compact types are another encoding and live
with the protocol.
"""

from typing import Final

from odradek.errors import InvalidRecordError
from odradek.records.batch import Buffer

__all__ = [
    "decode_base128",
    "decode_varint",
    "decode_varlong",
    "encode_varint",
    "encode_varlong",
    "wrap_int64",
]

_MASK_32: Final = 0xFFFF_FFFF
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_SIGN_64: Final = 1 << 63
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(0x80))


def encode_varint(value: int) -> bytes:
    """Encodes an int32."""
    assert -0x8000_0000 <= value <= 0x7FFF_FFFF, value
    return _encode((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Encodes an int64."""
    assert -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF, value
    return _encode((value << 1) ^ (value >> 63))


def decode_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Decodes an int32 at `position`.

    Returns:
        The value and the position after it.

    Raises:
        InvalidRecordError: It has more than 5 bytes, or reaches `end`.
    """
    if position < end and (raw := buffer[position]) < 0x80:  # Nearly always.
        return (raw >> 1) ^ -(raw & 1), position + 1
    if position + 1 < end and (high := buffer[position + 1]) < 0x80:
        # Shifted by 7 it meets the continuation bit of the first.
        raw += (high << 7) - 0x80
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw, position = decode_base128(buffer, position, end, 5)
    raw &= _MASK_32
    return (raw >> 1) ^ -(raw & 1), position


def decode_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Decodes an int64 at `position`.

    Returns:
        The value and the position after it.

    Raises:
        InvalidRecordError: It has more than 10 bytes, or reaches `end`.
    """
    if position < end and (raw := buffer[position]) < 0x80:  # Nearly always.
        return (raw >> 1) ^ -(raw & 1), position + 1
    if position + 1 < end and (high := buffer[position + 1]) < 0x80:
        # Shifted by 7 it meets the continuation bit of the first.
        raw += (high << 7) - 0x80
        return (raw >> 1) ^ -(raw & 1), position + 2
    raw, position = decode_base128(buffer, position, end, 10)
    raw &= _MASK_64
    return (raw >> 1) ^ -(raw & 1), position


def decode_base128(buffer: Buffer, position: int, end: int, max_size: int) -> tuple[int, int]:
    """Decodes the unsigned number under a varint, not yet cut to its bits.

    Raises:
        InvalidRecordError: It has more than `max_size` bytes, or reaches `end`.
    """
    value = 0
    shift = 0
    start = position
    while position < end:
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        if position - start == max_size:
            raise InvalidRecordError(f"varint at position {start} is longer than {max_size} bytes")
        value |= (byte & 0x7F) << shift
        shift += 7
    raise InvalidRecordError(f"varint at position {start} does not end before position {end}")


def wrap_int64(value: int) -> int:
    """Wraps a sum that exceeds int64, as the Java reader does."""
    return ((value + _SIGN_64) & _MASK_64) - _SIGN_64


def _encode(zigzag: int) -> bytes:
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
