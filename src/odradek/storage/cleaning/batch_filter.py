"""The filter of compaction: which records of a batch stay.

| batch                                                  | its records     | if none is left       |
|--------------------------------------------------------|-----------------|-----------------------|
| data of an aborted transaction                         | are dropped     | it is dropped         |
| other data                                             | by key, offset  | it is dropped         |
| marker of a transaction with batches in this pass      | stay            |                       |
| marker of an empty transaction                         | dropped after   | it is dropped         |
|                                                        | the horizon     |                       |
| any of them, with the last sequence of a live producer | as above        | it stays              |
| any of them, the last before the first uncleanable     | as above        | it stays              |
| magic 0 or 1                                           | stay            |                       |

The *delete horizon* is when a tombstone may be dropped: the first pass over the batch writes it
into the batch, `delete.retention.ms` from then, and it never changes, so that a consumer that is
not slower than that sees every deletion. It replaces the base timestamp; the deltas of the records
are shifted, so that their own times stay.

A batch without records preserves the producer's epoch and sequence, or the end of the log
(KAFKA-5490, KAFKA-17076). Offsets never change; a batch of which all records stay keeps its bytes.
"""

from array import array
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from odradek.records.batch import (
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
from odradek.records.builder import build_empty_batch
from odradek.records.compression import Codec, compress, parse_codec
from odradek.records.key_table import KeyTable, shift_timestamps
from odradek.records.record import read_region
from odradek.records.varint import wrap_int64
from odradek.storage.cleaning.transactions import CleanedTransactions
from odradek.storage.log.config import INT64_MAX, LogConfig

__all__ = ["BatchFilter", "LastRecord", "Retained"]


class LastRecord(NamedTuple):
    """The newest data of a live producer in a log."""

    last_data_offset: int | None  # None: only markers.
    producer_epoch: int


class Retained(NamedTuple):
    """A batch as it is written to the new segment."""

    data: Buffer
    last_offset: int
    max_timestamp: int


class BatchFilter:
    """The rules above for one pass.

    Args:
        table: The last offset of each key.
        latest_offset: The table has all keys up to here.
        transactions: A new one, to which every batch is shown.
        last_records: By producer id.
        first_uncleanable_offset: Of the pass.
        now_ms: When the pass began.
        config: Of the log.

    Attributes:
        records_read: Records seen.
        records_kept: Those that stay.
        invalid_records: Those that were dropped for want of a key.
    """

    __slots__ = (
        "_config",
        "_first_uncleanable",
        "_last_records",
        "_latest_offset",
        "_now_ms",
        "_spared",
        "_table",
        "invalid_records",
        "records_kept",
        "records_read",
        "transactions",
    )

    def __init__(
        self,
        table: KeyTable,
        *,
        latest_offset: int,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        first_uncleanable_offset: int,
        now_ms: int,
        config: LogConfig,
    ) -> None:
        self._table = table
        self._latest_offset = latest_offset
        self.transactions = transactions
        self._last_records = last_records
        self._first_uncleanable = first_uncleanable_offset
        self._now_ms = now_ms
        self._config = config
        # Last offsets of the batches that may stay without records: `_retain_empty` decides.
        spared = {r.last_data_offset for r in last_records.values()} | {
            first_uncleanable_offset - 1
        }
        self._spared = array("q", sorted(offset for offset in spared if offset is not None))
        self.records_read = 0
        self.records_kept = 0
        self.invalid_records = 0

    def retain(self, header: BatchHeader, batch: memoryview) -> Retained | None:
        """The batch with the records that stay; None if it is dropped.

        Raises:
            InvalidRecordError: Its records are malformed.
        """
        if header.magic < CURRENT_MAGIC:
            return Retained(batch, header.last_offset, header.max_timestamp)
        self.records_read += header.record_count
        attributes = header.attributes  # Bits instead of properties: this runs for each batch.
        if attributes & CONTROL_MASK:
            return self._retain_control(header, batch)
        if attributes & TRANSACTIONAL_MASK and self.transactions.is_aborted(header):
            return self._retain_empty(header)
        return self._retain_data(header, batch)

    def retain_run(
        self, data: Buffer, position: int
    ) -> tuple[int, bytes, list[tuple[int, int, int]]]:
        """Filters the plain batches from `position` on; others are for `retain`.

        Returns:
            The position behind them, the bytes that are left, and of each batch that is left its
            last offset, largest timestamp and size.
        """
        end, kept, batches, records_read, records_kept, unkeyed = self._table.filter_run(
            data, position, self._latest_offset, self._now_ms, self._spared
        )
        self.records_read += records_read
        self.records_kept += records_kept
        self.invalid_records += unkeyed
        return end, kept, batches

    def _retain_control(self, header: BatchHeader, batch: memoryview) -> Retained | None:
        is_empty = self.transactions.is_marker_of_nothing(header, batch)
        horizon = header.delete_horizon_ms
        if header.record_count == 0 or (
            is_empty and horizon is not None and horizon <= self._now_ms
        ):
            return self._retain_empty(header)
        self.records_kept += header.record_count
        if is_empty and horizon is None:
            region = bytes(read_region(batch, header=header))
            return self._rebuild(header, region, header.record_count, header.max_timestamp, True)
        return Retained(batch, header.last_offset, header.max_timestamp)

    def _retain_empty(self, header: BatchHeader) -> Retained | None:
        """A batch without records; None if it need not stay."""
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        is_last_of_producer = last is not None and (
            header.last_offset == last.last_data_offset
            if last.last_data_offset is not None
            else header.is_control and header.producer_epoch == last.producer_epoch
        )
        if is_last_of_producer or header.next_offset == self._first_uncleanable:
            return Retained(build_empty_batch(header), header.last_offset, header.max_timestamp)
        return None

    def _retain_data(self, header: BatchHeader, batch: memoryview) -> Retained | None:
        attributes = header.attributes
        region: Buffer = (
            read_region(batch, header=header) if attributes & CODEC_MASK else batch[HEADER_SIZE:]
        )
        horizon = header.base_timestamp if attributes & DELETE_HORIZON_MASK else None
        count, kept, max_timestamp, has_tombstone, unkeyed = self._table.filter(
            region,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self._latest_offset,
            horizon is not None and horizon <= self._now_ms,
        )
        self.invalid_records += unkeyed
        if count == 0:
            return self._retain_empty(header)
        self.records_kept += count
        sets_horizon = has_tombstone and horizon is None
        if kept is None and not sets_horizon:
            return Retained(batch, header.last_offset, header.max_timestamp)
        if header.is_log_append_time:
            max_timestamp = header.max_timestamp
        remaining = region if kept is None else kept
        return self._rebuild(header, remaining, count, max_timestamp, sets_horizon)

    def _rebuild(
        self,
        header: BatchHeader,
        region: Buffer,
        record_count: int,
        max_timestamp: int,
        sets_horizon: bool,
    ) -> Retained:
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if sets_horizon:
            horizon = min(self._now_ms + self._config.delete_retention_ms, INT64_MAX)
            shift = wrap_int64(base_timestamp - horizon)
            region = shift_timestamps(region, record_count, shift)
            attributes, base_timestamp = attributes | DELETE_HORIZON_MASK, horizon
        if header.is_compressed:
            codec = parse_codec(header.codec_id)
            region = compress(codec, region, _level(codec, self._config))
        data = bytearray(HEADER_SIZE + len(region))
        data[HEADER_SIZE:] = region
        HEADER.pack_into(
            data,
            0,
            *header._replace(
                length=len(data) - LOG_OVERHEAD,
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max(max_timestamp, NO_TIMESTAMP),
                record_count=record_count,
            ),
        )
        crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        return Retained(data, header.last_offset, max(max_timestamp, NO_TIMESTAMP))


def _level(codec: Codec, config: LogConfig) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
