"""Builds batches of magic 2 from records: new, recompressed and compacted ones.

Uncompressed, the bytes are those the Java client writes for the same records.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from crc32c import crc32c

from odradek.records.batch import (
    APPEND_TIME_MASK,
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_MASK,
    CRC_POSITION,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
)
from odradek.records.codec import encode_records
from odradek.records.codec_pure import NewRecord, encode_record
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, Codec, compress
from odradek.records.record import Record, read_region
from odradek.records.varint import decode_varint, decode_varlong, encode_varint
from odradek.records.walk import walk_records

__all__ = [
    "NewRecord",
    "build_batch",
    "build_compacted_batch",
    "build_empty_batch",
    "encode_record",
    "rebuild_batch",
    "seal_batch",
]

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1


def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    offset_deltas: Iterable[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Builds a batch of at least one record.

    Args:
        log_append_time_ms: Makes it a batch of append time; the deltas still hold record times.
        delete_horizon_ms: Written in place of the base timestamp.
        offset_deltas: One per record, if they are not 0, 1, 2, ….
        last_offset_delta: Needed if the last offsets of the batch have no records any more.

    Raises:
        TypeError, ValueError, RecordTooLargeError: See `codec_pure.encode_records_pure`.
    """
    items = records if isinstance(records, list) else list(records)
    assert items, "a batch has records; build_empty_batch makes one without"
    deltas = None if offset_deltas is None else list(offset_deltas)
    batch, max_timestamp = encode_records(items, delete_horizon_ms, deltas, HEADER_SIZE)
    base_timestamp = items[0][0] if delete_horizon_ms is None else delete_horizon_ms
    if last_offset_delta is None:
        last_offset_delta = len(items) - 1 if deltas is None else deltas[-1]
    attributes = int(codec)
    if log_append_time_ms is not None:
        attributes |= APPEND_TIME_MASK
        max_timestamp = log_append_time_ms
    if is_transactional:
        attributes |= TRANSACTIONAL_MASK
    if is_control:
        attributes |= CONTROL_MASK
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(items),
    )
    if codec:
        return _assemble(header, compress(codec, memoryview(batch)[HEADER_SIZE:], level))
    return _seal(header, batch)


def seal_batch(
    batch: bytearray,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Writes the header of a producer's batch into the bytes left in front of its records.

    Args:
        batch: `HEADER_SIZE` bytes and the records, compressed already if there is a codec.
    """
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD,
        -1,
        CURRENT_MAGIC,
        0,
        int(codec) | TRANSACTIONAL_MASK if is_transactional else int(codec),
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return batch


def rebuild_batch(
    batch: Buffer,
    header: BatchHeader,
    *,
    codec: Codec,
    level: int | None = None,
    position: int = 0,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> bytearray:
    """Recompresses the magic 2 batch at `position`, with offset deltas 0, 1, 2, ….

    Producer fields, flags, timestamps, offset and epoch stay. Keys, values and headers are copied
    as bytes; if the deltas are right already, so is the whole region.

    Raises:
        InvalidRecordError: Its records are malformed, or more than `max_size` bytes.
    """
    region = read_region(batch, position=position, header=header, max_size=max_size)
    max_timestamp, _, is_consecutive, _ = walk_records(
        region,
        0,
        len(region),
        header.record_count,
        header.base_timestamp,
        _MIN_INT64,
        _MAX_INT64,
        False,
    )
    if header.record_count == 0:
        return build_empty_batch(header)
    if header.is_log_append_time:
        max_timestamp = header.max_timestamp
    if not is_consecutive:
        region = _renumber(region, header.record_count)
    rebuilt = header._replace(
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.record_count - 1,
        max_timestamp=max_timestamp,
    )
    return _assemble(rebuilt, compress(codec, region, level) if codec else region)


def build_compacted_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Builds the batch that compaction leaves: some of its records, its offsets and its producer.

    Without records, an empty batch. Otherwise the largest timestamp is that of these records.
    """
    if not records:
        return build_empty_batch(header)
    return build_batch(
        [record[1:] for record in records],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        codec=codec,
        level=level,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=delete_horizon_ms,
        offset_deltas=[record.offset - header.base_offset for record in records],
        last_offset_delta=header.last_offset_delta,
    )


def build_empty_batch(header: BatchHeader) -> bytearray:
    """The batch without records that keeps a producer's last sequence alive through compaction."""
    kept = APPEND_TIME_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
    empty = header._replace(
        attributes=header.attributes & kept, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return _assemble(empty, b"")


def _assemble(header: BatchHeader, region: Buffer) -> bytearray:
    batch = bytearray(HEADER_SIZE + len(region))
    batch[HEADER_SIZE:] = region
    return _seal(header, batch)


def _seal(header: BatchHeader, batch: bytearray) -> bytearray:
    """Writes the header, with its length and checksum, in front of the records."""
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - LOG_OVERHEAD))
    crc = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:])
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return batch


def _renumber(region: Buffer, record_count: int) -> bytes:
    """Gives the records of a well-formed region the offset deltas 0, 1, 2, …."""
    view = memoryview(region)
    end = len(view)
    parts: list[Buffer] = []
    position = 0
    for index in range(record_count):
        length, start = decode_varint(view, position, end)
        position = start + length
        _, delta_start = decode_varlong(view, start + 1, position)
        _, delta_end = decode_varint(view, delta_start, position)
        delta = encode_varint(index)
        new_length = length - (delta_end - delta_start) + len(delta)
        parts += (
            encode_varint(new_length),
            view[start:delta_start],
            delta,
            view[delta_end:position],
        )
    return b"".join(parts)
