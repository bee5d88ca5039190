"""Messages of magic 0 and 1, which an imported data directory may contain. Read, never written.

A message carries one key and value; a compressed set is one *wrapper* message, whose value is the
compressed concatenation of ordinary messages. One level only. Layout: see `batch`.

=================  =====================  =====================================================
..                 magic 0                magic 1
=================  =====================  =====================================================
inner offsets      absolute               relative: base = wrapper offset - last inner offset,
                                          and 0 if a producer left the wrapper offset unset;
                                          absolute ones give base 0 by the same rule
inner timestamps   none: -1               their own, or the wrapper's with append time
=================  =====================  =====================================================
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from odradek.errors import CorruptRecordError, InvalidRecordError
from odradek.records.batch import CODEC_MASK, LOG_OVERHEAD, BatchHeader, Buffer, parse_header
from odradek.records.compression import decompress, parse_codec

__all__ = ["Message", "read_messages"]

# Offset, timestamp, key, value.
Message: TypeAlias = tuple[int, int, bytes | None, bytes | None]

_INT32: Final = Struct(">i")
_KEY_POSITION: Final = (18, 26)  # By magic.


def read_messages(
    batch: Buffer, position: int, header: BatchHeader, max_size: int
) -> Iterator[Message]:
    """Reads the message, or the inner messages of the wrapper, at `position`.

    Raises:
        InvalidRecordError: A message, or one inside a wrapper, is malformed.
    """
    key, value = _read_key_and_value(batch, position, header)
    if not header.is_compressed:
        yield header.base_offset, header.max_timestamp, key, value
        return
    inner = list(_read_inner(value, header, max_size))
    if not inner:
        raise InvalidRecordError(f"wrapper at offset {header.base_offset} has no messages")
    base_offset = 0
    if header.magic == 1:
        base_offset = max(0, header.base_offset - inner[-1][0])
    for offset, timestamp, inner_key, inner_value in inner:
        yield base_offset + offset, timestamp, inner_key, inner_value


def _read_inner(value: bytes | None, wrapper: BatchHeader, max_size: int) -> Iterator[Message]:
    where = f"wrapper at offset {wrapper.base_offset}"
    if value is None:
        raise InvalidRecordError(f"{where} has no value")
    codec = parse_codec(wrapper.attributes & CODEC_MASK, magic=wrapper.magic)
    messages = decompress(codec, value, max_size=max_size, magic=wrapper.magic)
    position = 0
    while position < len(messages):
        try:
            header = parse_header(messages, position)
        except CorruptRecordError as error:
            raise InvalidRecordError(f"{where}: {error}") from None
        if header is None:
            raise InvalidRecordError(f"{where}: its last message is cut at {len(messages)}")
        if header.magic != wrapper.magic:
            raise InvalidRecordError(f"{where}: magic {header.magic} inside magic {wrapper.magic}")
        if header.is_compressed:
            raise InvalidRecordError(f"{where}: a wrapper inside a wrapper")
        key, inner_value = _read_key_and_value(messages, position, header)
        stamped_by = wrapper if wrapper.is_log_append_time else header
        yield header.base_offset, stamped_by.max_timestamp, key, inner_value
        position += header.length + LOG_OVERHEAD


def _read_key_and_value(
    buffer: Buffer, position: int, header: BatchHeader
) -> tuple[bytes | None, bytes | None]:
    end = position + header.length + LOG_OVERHEAD
    key, at = _read_bytes(buffer, position + _KEY_POSITION[header.magic], end, "key")
    value, at = _read_bytes(buffer, at, end, "value")
    if at != end:
        raise InvalidRecordError(
            f"message at position {position}: {end - at} bytes more than its fields take"
        )
    return key, value


def _read_bytes(buffer: Buffer, position: int, end: int, field: str) -> tuple[bytes | None, int]:
    if position + _INT32.size > end:
        raise InvalidRecordError(f"{field} length at position {position} is cut at {end}")
    length: int = _INT32.unpack_from(buffer, position)[0]
    position += _INT32.size
    if not -1 <= length <= end - position:
        raise InvalidRecordError(f"{field} length {length}, {end - position} bytes are left")
    if length == -1:
        return None, position
    return bytes(buffer[position : position + length]), position + length
