"""Runs of plain batches for compaction, and a batch without some of its records.

A plain batch is whole, of magic 2, matches its checksum, and is neither compressed nor part of a
transaction nor a control batch: its records are all that compaction has to know. The pure twin of
`KeyTable` steps over such batches here; the compiled one has loops of its own.
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
    """Builds an uncompressed batch from the records that are left; returns its header and bytes.

    Args:
        header: That of the original batch.
        region: The records that are left.
        record_count: How many are left.
        max_timestamp: Their largest; ignored in a batch of append time.
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
