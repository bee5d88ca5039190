"""Plain batches that follow one another, as compaction meets them, and one that lost records.

A plain batch is whole, of magic 2, matches its checksum, and is neither compressed nor part of a
transaction nor control: all there is to know of it are its records. Of `KeyTable` the pure twin
steps over them here; the compiled one has loops of its own.
"""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
)

__all__ = ["plain_batches", "shrink_batch"]

_MAX_BASE_OFFSET: Final = 1 << 62  # So that sums of offsets stay within an int64.
_NOT_PLAIN: Final = CODEC_MASK | TRANSACTIONAL_MASK | CONTROL_MASK


def plain_batches(data: Buffer, position: int) -> Iterator[tuple[BatchHeader, int]]:
    """The plain batches from `position` on, each with where it ends.

    Raises:
        ValueError: `position` does not lie within `data`.
    """
    available = len(data)
    if not 0 <= position <= available:
        raise ValueError(f"position {position} is not within {available} bytes")
    view = memoryview(data)
    while position + HEADER_SIZE <= available:
        header = BatchHeader._make(HEADER.unpack_from(view, position))
        end = position + header.length + LOG_OVERHEAD
        if (
            header.magic != CURRENT_MAGIC
            or not position + HEADER_SIZE <= end <= available
            or not 0 <= header.base_offset < _MAX_BASE_OFFSET
            or header.attributes & _NOT_PLAIN
            or header.last_offset_delta < 0
            or header.record_count < 0
            or crc32c(view[position + ATTRIBUTES_POSITION : end]) != header.crc
        ):
            return
        yield header, end
        position = end


def shrink_batch(
    header: BatchHeader, region: bytes, record_count: int, max_timestamp: int
) -> tuple[BatchHeader, memoryview]:
    """A batch that is not compressed, of which those records are left: its header, and all of it.

    Args:
        header: Of the batch before.
        region: The records that are left.
        record_count: How many these are.
        max_timestamp: The largest of theirs; counts unless the log sets the time.
    """
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
    data = bytearray(HEADER_SIZE + len(region))
    data[HEADER_SIZE:] = region
    header = header._replace(
        length=len(data) - LOG_OVERHEAD,
        max_timestamp=max(max_timestamp, NO_TIMESTAMP),
        record_count=record_count,
    )
    HEADER.pack_into(data, 0, *header)
    crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
    data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return header, memoryview(data)
