"""Encodes records into batches and decodes them: for clients, pipelines and the cleaner.

The loops over records are compiled, `_codec.pyx`, where that was built; `codec_pure` is their twin.
A batch is one call either way::

    bytes, max_timestamp = encode_records([(timestamp, key, value, headers), …])
    for position, header in iter_headers(answer):
        records = decode_batch(answer, position=position, header=header, topic="t", partition=0)

Into columns instead of records: `columns`. Headers and checksums of batches: `builder`, `batch`.
"""

from enum import IntEnum
from typing import Any

from odradek.errors import CorruptRecordError
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.codec_pure import NewRecord
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE
from odradek.records.legacy import read_messages
from odradek.records.record import read_region

try:
    from odradek.records._codec import (
        ConsumerRecord,
        count_fitting,
        decode_records,
        encode_records,
        estimate_record_size,
    )
except ImportError:
    from odradek.records.codec_pure import ConsumerRecord
    from odradek.records.codec_pure import count_fitting_pure as count_fitting
    from odradek.records.codec_pure import decode_records_pure as decode_records
    from odradek.records.codec_pure import encode_records_pure as encode_records
    from odradek.records.codec_pure import estimate_record_size_pure as estimate_record_size

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "ConsumerRecord",
    "NewRecord",
    "TimestampType",
    "check_whole",
    "count_fitting",
    "decode_batch",
    "decode_records",
    "encode_records",
    "estimate_record_size",
    "restore_record",
    "timestamp_type_of",
]


class TimestampType(IntEnum):
    """Which clock a record's timestamp is from: the producer's or the broker's."""

    NO_TIMESTAMP_TYPE = -1  # Records of magic 0 have none.
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def decode_batch(
    buffer: Buffer,
    *,
    position: int = 0,
    header: BatchHeader,
    topic: str,
    partition: int,
    from_offset: int = 0,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> list[ConsumerRecord]:
    """Decodes the records of the batch at `position`, of any format and codec.

    The caller checks the CRC, and whether the batch has control records.

    Args:
        header: Of that batch.
        from_offset: Records below it are checked and not returned.
        max_size: Most bytes that its records may have after decompression.

    Raises:
        CorruptRecordError: The buffer ends within the batch.
        InvalidRecordError: Its records are malformed, too large, or not as many as its count.
    """
    check_whole(buffer, position, header)
    timestamp_type = timestamp_type_of(header)
    if header.magic < 2:
        return [
            ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value)
            for offset, timestamp, key, value in read_messages(buffer, position, header, max_size)
            if offset >= from_offset
        ]
    region = read_region(buffer, position=position, header=header, max_size=max_size)
    return decode_records(region, header, from_offset, topic, partition, timestamp_type)


def check_whole(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecordError if the batch with that header does not lie within the buffer."""
    if position < 0 or position + header.size > len(buffer):
        raise CorruptRecordError(
            f"{len(buffer)} bytes end within the batch of {header.size} at position {position}"
        )


def timestamp_type_of(header: BatchHeader) -> TimestampType:
    """Which clock the timestamps of a batch are from."""
    if header.magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    if header.is_log_append_time:
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def restore_record(*arguments: Any) -> ConsumerRecord:
    """Makes a pickled record, by the twin in use."""
    return ConsumerRecord(*arguments)
