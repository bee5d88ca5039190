"""The header of a record batch: parse it, check the CRC, patch it in place.

A batch is handled as (buffer, position, size) and never re-encoded to be stored: the leader writes
offset and epoch over twelve bytes that the CRC does not cover. Layout of magic 2::

    pos  size  field                 type    CRC
      0     8  base_offset           int64   -     set by the leader, kept through compaction
      8     4  length                int32   -     bytes after this field: size = length + 12
     12     4  leader_epoch          int32   -     set by the leader
     16     1  magic                 int8    -     same place in every format
     17     4  crc                   uint32  -     CRC-32C of [21, size)
     21     2  attributes            int16   x     bits 0-2 codec, 3 append time, 4 transactional,
                                                   5 control, 6 base_timestamp is a delete horizon
     23     4  last_offset_delta     int32   x     survives compaction: may exceed record_count - 1
     27     8  base_timestamp        int64   x     of the first record; -1 in an empty batch
     35     8  max_timestamp         int64   x     largest, or the append time
     43     8  producer_id           int64   x     -1 = none
     51     2  producer_epoch        int16   x     -1 = none
     53     4  base_sequence         int32   x     -1 = none
     57     4  record_count          int32   x     0 once compaction has emptied the batch
     61     …  records                       x     as a whole one compressed stream, or plain

Magic 0 and 1 hold one message each, a *wrapper* if it is compressed (see `legacy`)::

      0     8  offset                int64   -     of a wrapper: that of its last inner message
      8     4  size                  int32   -     bytes after this field: at least 14 (v0), 22 (v1)
     12     4  crc                   uint32  -     CRC-32 (zlib) of [16, end)
     16     1  magic                 int8    x
     17     1  attributes            int8    x     bits 0-2 codec, 3 append time (v1)
     18     8  timestamp             int64   x     v1 only
     18/26  4  key length, key, value length, value

All readers judge bytes in this order: fewer than 17 bytes left, or fewer than the length of the
batch, is a *partial* batch and no error (the end of a fetch response or of a torn file); a length
below the format's minimum or an unknown magic is a `CorruptRecordError`.
"""

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from odradek.errors import CorruptRecordError

__all__ = [
    "APPEND_TIME_MASK",
    "ATTRIBUTES_POSITION",
    "BASE_OFFSET_POSITION",
    "BASE_SEQUENCE_POSITION",
    "BASE_TIMESTAMP_POSITION",
    "CODEC_MASK",
    "CONTROL_MASK",
    "CRC_POSITION",
    "CURRENT_MAGIC",
    "DELETE_HORIZON_MASK",
    "HEADER",
    "HEADER_SIZE",
    "LAST_OFFSET_DELTA_POSITION",
    "LEADER_EPOCH_POSITION",
    "LENGTH_POSITION",
    "LOG_OVERHEAD",
    "MAGIC_POSITION",
    "MAX_SEQUENCE",
    "MAX_TIMESTAMP_POSITION",
    "NO_TIMESTAMP",
    "PREFIX_SIZE",
    "PRODUCER_EPOCH_POSITION",
    "PRODUCER_ID_POSITION",
    "RECORDS_POSITION",
    "RECORD_COUNT_POSITION",
    "TRANSACTIONAL_MASK",
    "BatchHeader",
    "Buffer",
    "WritableBuffer",
    "compute_crc",
    "increment_sequence",
    "is_crc_valid",
    "iter_headers",
    "parse_header",
    "patch_max_timestamp",
    "patch_offset_and_epoch",
    "peek_header",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview

CURRENT_MAGIC: Final = 2
LOG_OVERHEAD: Final = 12  # Offset and length: what `length` does not count.
PREFIX_SIZE: Final = 17  # Enough to know size and format of any batch.
HEADER_SIZE: Final = 61
HEADER: Final = Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE

BASE_OFFSET_POSITION: Final = 0
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57
RECORDS_POSITION: Final = 61

CODEC_MASK: Final = 0x07
APPEND_TIME_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NO_TIMESTAMP: Final = -1
MAX_SEQUENCE: Final = 0x7FFF_FFFF

_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
# Smallest `length` of a legacy message and the attribute bits it defines, by magic.
_LEGACY_MIN_LENGTH: Final = (14, 22)
_LEGACY_ATTRIBUTES: Final = (CODEC_MASK, CODEC_MASK | APPEND_TIME_MASK)
_LEGACY_CRC_POSITION: Final = 12
_LEGACY_CRC_START: Final = 16

_LENGTH_AND_MAGIC: Final = Struct(">i4xb")  # At LENGTH_POSITION.
_LEGACY_HEADER: Final = Struct(">qiIbb")
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")


class BatchHeader(NamedTuple):
    """The fixed part of one batch, fields as in the table above.

    A legacy message becomes a header of one record without producer; a legacy wrapper has a count
    of -1 records, because the count is known only once its value is decompressed, and its
    `base_offset` is its last offset.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """All bytes of the batch, offset and length included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, whether or not compaction left it there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The lowest offset at which the next batch may start."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 without one."""
        if self.base_sequence < 0:
            return self.base_sequence
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec_id(self) -> int:
        """Codec number, 0 to 7; 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the time of every record."""
        return self.attributes & APPEND_TIME_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are markers, never shown to applications."""
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > -1

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of a batch may be removed; None before its first cleaning."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


def increment_sequence(sequence: int, delta: int) -> int:
    """Adds `delta` >= 0 to a producer sequence; after 2147483647 comes 0."""
    if sequence > MAX_SEQUENCE - delta:
        return delta - (MAX_SEQUENCE - sequence) - 1
    return sequence + delta


def parse_header(buffer: Buffer, position: int = 0, end: int | None = None) -> BatchHeader | None:
    """Reads the header of the batch at `position`, all of whose bytes lie before `end`.

    Returns:
        The header, or None for a partial batch.

    Raises:
        CorruptRecordError: The length is impossible or the magic unknown.
    """
    available = (len(buffer) if end is None else end) - position
    if available < PREFIX_SIZE:
        return None
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, position + LENGTH_POSITION)
    if magic == CURRENT_MAGIC:
        if length < _MIN_LENGTH:
            raise _too_short(position, length, magic, _MIN_LENGTH)
        if length + LOG_OVERHEAD > available:
            return None
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    if length < _LEGACY_MIN_LENGTH[0]:
        raise _too_short(position, length, magic, _LEGACY_MIN_LENGTH[0])
    if length + LOG_OVERHEAD > available:
        return None
    return _parse_legacy_header(buffer, position, magic, length)


def peek_header(buffer: Buffer, position: int = 0, end: int | None = None) -> BatchHeader | None:
    """Reads a header as `parse_header`, but asks for no more bytes than the header has.

    `HEADER_SIZE` bytes are always enough; a legacy message needs only its own minimum, 26 or 34.

    Returns:
        The header, or None if the bytes end inside it.

    Raises:
        CorruptRecordError: The length is impossible or the magic unknown.
    """
    available = (len(buffer) if end is None else end) - position
    if available < PREFIX_SIZE:
        return None
    length, magic = _LENGTH_AND_MAGIC.unpack_from(buffer, position + LENGTH_POSITION)
    if magic == CURRENT_MAGIC:
        if length < _MIN_LENGTH:
            raise _too_short(position, length, magic, _MIN_LENGTH)
        if available < HEADER_SIZE:
            return None
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    if length < _LEGACY_MIN_LENGTH[0]:
        raise _too_short(position, length, magic, _LEGACY_MIN_LENGTH[0])
    if magic in (0, 1) and available < _LEGACY_MIN_LENGTH[magic] + LOG_OVERHEAD:
        return None
    return _parse_legacy_header(buffer, position, magic, length)


def iter_headers(
    buffer: Buffer, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Steps through whole batches from `start`; stops at a partial one.

    Yields:
        Position and header of each batch.

    Raises:
        CorruptRecordError: A length is impossible or a magic unknown.
    """
    position = start
    while (header := parse_header(buffer, position, end)) is not None:
        yield position, header
        position += header.length + LOG_OVERHEAD


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """The checksum that the batch of `size` bytes at `position` should carry, by its magic."""
    view = memoryview(buffer)
    if buffer[position + MAGIC_POSITION] == CURRENT_MAGIC:
        return crc32c(view[position + ATTRIBUTES_POSITION : position + size])
    return zlib.crc32(view[position + _LEGACY_CRC_START : position + size])


def is_crc_valid(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` carries the checksum of its bytes."""
    if size < PREFIX_SIZE or position + size > len(buffer):
        return False
    if buffer[position + MAGIC_POSITION] != CURRENT_MAGIC:
        crc_position = position + _LEGACY_CRC_POSITION
    elif size >= HEADER_SIZE:
        crc_position = position + CRC_POSITION
    else:
        return False
    stored: int = _UINT32.unpack_from(buffer, crc_position)[0]
    return stored == compute_crc(buffer, position, size)


def patch_offset_and_epoch(
    buffer: WritableBuffer, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Assigns offset and epoch to the magic 2 batch at `position`; the CRC stays valid."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def patch_max_timestamp(
    buffer: WritableBuffer, position: int, *, log_append_time: bool, max_timestamp: int
) -> bool:
    """Sets timestamp type and largest timestamp of the magic 2 batch at `position`.

    Nothing is written, and no checksum computed, if both are right already.

    Returns:
        Whether the batch changed.
    """
    attributes: int = _INT16.unpack_from(buffer, position + ATTRIBUTES_POSITION)[0]
    present: int = _INT64.unpack_from(buffer, position + MAX_TIMESTAMP_POSITION)[0]
    wanted = attributes & ~APPEND_TIME_MASK | (APPEND_TIME_MASK if log_append_time else 0)
    if attributes == wanted and present == max_timestamp:
        return False
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, wanted)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    size: int = _INT32.unpack_from(buffer, position + LENGTH_POSITION)[0] + LOG_OVERHEAD
    _UINT32.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, size))
    return True


def _parse_legacy_header(buffer: Buffer, position: int, magic: int, length: int) -> BatchHeader:
    if magic not in (0, 1):
        raise CorruptRecordError(f"batch at position {position}: magic {magic}, expected 0, 1 or 2")
    if length < _LEGACY_MIN_LENGTH[magic]:
        raise _too_short(position, length, magic, _LEGACY_MIN_LENGTH[magic])
    offset, _, crc, _, attributes = _LEGACY_HEADER.unpack_from(buffer, position)
    timestamp = _INT64.unpack_from(buffer, position + 18)[0] if magic == 1 else NO_TIMESTAMP
    return BatchHeader(
        base_offset=offset,
        length=length,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        # Undefined bits would read as the flags of magic 2.
        attributes=attributes & _LEGACY_ATTRIBUTES[magic],
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1 if attributes & CODEC_MASK else 1,
    )


def _too_short(position: int, length: int, magic: int, minimum: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"batch at position {position}: length {length} with magic {magic}, "
        f"expected at least {minimum}"
    )
