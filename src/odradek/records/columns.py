"""Batches as columns, in the memory layout of Apache Arrow, without an object per record.

Batches are added to a builder one by one; it returns plain buffers that an Arrow library wraps
without a copy. This module knows the layout, not the library. Numbers are in native byte order:

=================  =========================================================================
offset, timestamp  int64 per record
timestamp_type     int32 per record, the numbers of `codec.TimestampType`
a binary column    `offsets`: int32 per record and one more, entry i of the column is
                   `data[offsets[i]:offsets[i + 1]]`; `validity`: a bit per record from the
                   lowest one of each byte on, 0 = null, or None if nothing is null
headers            `offsets`: as above, into the entries of `key` and `value`
=================  =========================================================================

Two records, the second without a key and with two headers::

    key      offsets 0 2 2   data "k1"       validity 0b01
    value    offsets 0 2 4   data "v1v2"     validity None
    headers  offsets 0 0 2   key: offsets 0 1 2, data "ab"; value: offsets 0 1 1, validity 0b01

Keys of headers should be UTF-8, which is not checked. Since int32 offsets end at 2 GiB, so does a
builder: it refuses a batch that may not fit, which the caller adds to the next builder. The loop
over records is compiled, `_columns.pyx`, where that was built; `columns_pure` is its twin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from odradek.records.batch import CURRENT_MAGIC, BatchHeader, Buffer
from odradek.records.codec import (
    ConsumerRecord,
    check_whole,
    encode_records,
    timestamp_type_of,
)
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE
from odradek.records.legacy import read_messages
from odradek.records.record import read_region

try:
    from odradek.records._columns import ColumnSink
except ImportError:
    from odradek.records.columns_pure import ColumnSink

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "BinaryColumn",
    "ColumnBuilder",
    "ColumnSink",
    "Columns",
    "HeadersColumn",
]

# Most bytes of the records in a builder, so that no column has a larger offset.
_MAX_BYTES: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Byte strings, some of which may be null."""

    null_count: int
    validity: bytearray | None
    offsets: bytearray
    data: bytearray


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """The headers of all records, one after the other."""

    count: int
    offsets: bytearray
    key: BinaryColumn
    value: BinaryColumn


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of some batches."""

    count: int
    offset: bytearray
    timestamp: bytearray
    timestamp_type: bytearray
    key: BinaryColumn
    value: BinaryColumn
    headers: HeadersColumn


class ColumnBuilder:
    """Collects batches; see the module's docstring. For one thread at a time."""

    def __init__(self, expected_bytes: int = 0) -> None:
        """Begins columns of about so many bytes of batches, uncompressed; 0 if unknown.

        Memory for all of them is allocated early, so that it is not copied as the columns grow.
        """
        self._expected_bytes = expected_bytes
        self._sink = ColumnSink(expected_bytes)

    @property
    def count(self) -> int:
        """Records added so far."""
        return self._sink.count

    @property
    def byte_count(self) -> int:
        """Bytes of the regions of the records added so far."""
        return self._sink.byte_count

    def add_batch(
        self,
        buffer: Buffer,
        *,
        position: int = 0,
        header: BatchHeader,
        from_offset: int = 0,
        max_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    ) -> bool:
        """Adds all records of the batch at `position`, of any format and codec, or none.

        The caller checks the CRC, and whether the batch has control records.

        Args:
            header: Of that batch.
            from_offset: Records below it are checked and not added.
            max_size: Most bytes that its records may have after decompression.

        Returns:
            Whether there was room. An empty builder always has room.

        Raises:
            CorruptRecordError: The buffer ends within the batch.
            InvalidRecordError: Its records are malformed, too large, or not as many as its count.
        """
        check_whole(buffer, position, header)
        regions = _read_regions(buffer, position, header, min(max_size, _MAX_BYTES))
        if self.byte_count + sum([len(region) for region, _ in regions]) > _MAX_BYTES:
            return False
        timestamp_type = timestamp_type_of(header)
        for region, region_header in regions:
            self._sink.append_records(region, region_header, timestamp_type, from_offset)
        return True

    def add_records(self, records: Iterable[ConsumerRecord]) -> None:
        """Adds records that are decoded already."""
        for record in records:
            region, _ = encode_records(
                [(record.timestamp, record.key, record.value, record.headers)]
            )
            self._sink.append_records(
                region, _one_record(record.offset, record.timestamp), record.timestamp_type, 0
            )

    def finish(self) -> Columns:
        """Returns the columns of all records added, and begins new ones."""
        sink, self._sink = self._sink, ColumnSink(self._expected_bytes)
        count, offset, timestamp, timestamp_type, key, value, headers = sink.finish()
        header_count, header_offsets, header_key, header_value = headers
        return Columns(
            count,
            offset,
            timestamp,
            timestamp_type,
            BinaryColumn(*key),
            BinaryColumn(*value),
            HeadersColumn(
                header_count,
                header_offsets,
                BinaryColumn(*header_key),
                BinaryColumn(*header_value),
            ),
        )


def _read_regions(
    buffer: Buffer, position: int, header: BatchHeader, max_size: int
) -> list[tuple[Buffer, BatchHeader]]:
    """The regions to add to the sink, each with its header: a legacy message is one of its own."""
    if header.magic < 2:
        return [
            (encode_records([(timestamp, key, value, ())])[0], _one_record(offset, timestamp))
            for offset, timestamp, key, value in read_messages(buffer, position, header, max_size)
        ]
    return [(read_region(buffer, position=position, header=header, max_size=max_size), header)]


def _one_record(offset: int, timestamp: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=0,
        leader_epoch=-1,
        magic=CURRENT_MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
