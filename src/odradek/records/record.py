"""Records as values, read from a batch of any format and codec.

For components that read records: the cleaner, coordinators, clients, tools. The hot path moves
batches whole and validates them with `walk`.

* Timestamps: with append time every record has the batch's `max_timestamp`.
* Header keys are UTF-8. That is not checked when they are stored, so other bytes become lone
  surrogates (PEP 383) here and the same bytes again in `builder`.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from odradek.errors import CorruptRecordError, InvalidRecordError
from odradek.records.batch import HEADER_SIZE, BatchHeader, Buffer, parse_header
from odradek.records.compression import DEFAULT_MAX_DECOMPRESSED_SIZE, decompress, parse_codec
from odradek.records.legacy import read_messages
from odradek.records.malformed import malformed_record, malformed_region
from odradek.records.varint import decode_varint, decode_varlong, wrap_int64

__all__ = ["Fields", "Headers", "Record", "read_fields", "read_records", "read_region"]

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

# Timestamp delta, offset delta, key, value, headers.
Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]


class Record(NamedTuple):
    """One record; an absent key or value is None, which is not the same as empty."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(
    batch: Buffer,
    *,
    position: int = 0,
    header: BatchHeader | None = None,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> Iterator[Record]:
    """Reads the records of the batch at `position`, one by one. The caller checks the CRC.

    Args:
        header: Of that batch, if the caller has parsed it already.
        max_size: Most bytes that its records may have after decompression.

    Raises:
        CorruptRecordError: There is no whole batch of a known format.
        InvalidRecordError: Its records are malformed, too large, or not as many as its count.
    """
    if header is None:
        header = parse_header(batch, position)
    if header is None or position + header.size > len(batch):
        raise CorruptRecordError(f"no whole batch in {len(batch)} bytes at position {position}")
    if header.magic < 2:
        for message in read_messages(batch, position, header, max_size):
            yield Record(*message)
        return
    region = bytes(read_region(batch, position=position, header=header, max_size=max_size))
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for index in range(header.record_count):
        try:
            fields, position = read_fields(region, position, len(region))
        except (IndexError, InvalidRecordError):
            raise malformed_record(region, position, len(region), index) from None
        timestamp_delta, offset_delta, key, value, headers = fields
        timestamp = append_time
        if timestamp is None:
            timestamp = wrap_int64(header.base_timestamp + timestamp_delta)
        yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    if position != len(region) or header.record_count < 0:
        raise malformed_region(position, len(region), header.record_count)


def read_region(
    batch: Buffer,
    *,
    position: int = 0,
    header: BatchHeader,
    max_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    strict: bool = False,
) -> bytes | memoryview:
    """The records of the magic 2 batch at `position`, decompressed; plain ones without a copy.

    Raises:
        InvalidRecordError: They cannot be decompressed, or have more than `max_size` bytes.
    """
    stored = memoryview(batch)[position + HEADER_SIZE : position + header.size]
    if header.record_count == 0 and not stored:
        return stored  # Emptied by compaction: there is no stream.
    codec = parse_codec(header.codec_id)
    return decompress(codec, stored, max_size=max_size, strict=strict)


def read_fields(region: bytes, position: int, region_end: int) -> tuple[Fields, int]:
    """Reads one record; returns its fields and the position after it.

    Raises:
        IndexError, InvalidRecordError: It is malformed; `malformed` says why.
    """
    # Reads ahead without checking the end of the record: a field that exceeds it is found by the
    # comparison at the end, or by an IndexError. One byte is decoded in place: 0 is 0, 1 is -1,
    # 2 is 1; an even one is a length that is not null.
    length, at = decode_varint(region, position, region_end)
    end = at + length
    if length <= 0 or end > region_end:
        raise IndexError
    at += 1
    if (raw := region[at]) < 0x80:
        timestamp_delta = (raw >> 1) ^ -(raw & 1)
        at += 1
    else:
        timestamp_delta, at = decode_varlong(region, at, end)
    if (raw := region[at]) < 0x80:
        offset_delta = (raw >> 1) ^ -(raw & 1)
        at += 1
    else:
        offset_delta, at = decode_varint(region, at, end)
    if (raw := region[at]) < 0x80 and not raw & 1:
        start, at = at + 1, at + 1 + (raw >> 1)
        key: bytes | None = region[start:at]
    else:
        key, at = _read_bytes(region, at, end)
    value, at = _read_bytes(region, at, end)
    if region[at]:
        headers, at = _read_headers(region, at, end)
    else:
        headers, at = (), at + 1
    if at != end:
        raise IndexError
    return (timestamp_delta, offset_delta, key, value, headers), at


def _read_bytes(region: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(region, position, end)
    if length < 0:
        if length < -1:
            raise IndexError
        return None, position
    return region[position : position + length], position + length


def _read_headers(region: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = decode_varint(region, position, end)
    if not 0 <= count <= end - position:
        raise IndexError
    headers = []
    for _ in range(count):
        key, position = _read_bytes(region, position, end)
        if key is None:
            raise IndexError
        value, position = _read_bytes(region, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
