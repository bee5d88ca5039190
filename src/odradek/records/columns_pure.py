"""The loop over records that fills columns: the pure twin of `_columns.pyx`.

Both twins give the same bytes for any records, and the same error; the layout is in `columns`.
"""

from array import array
from typing import Final, TypeAlias

from odradek.records.batch import BatchHeader, Buffer
from odradek.records.codec_pure import iter_fields
from odradek.records.varint import wrap_int64

__all__ = ["Binary", "ColumnSink", "Filled", "overfull"]

# Null count, validity, offsets, data.
Binary: TypeAlias = tuple[int, bytearray | None, bytearray, bytearray]
# Count, offset, timestamp, timestamp type, key, value; count, offsets, keys, values of headers.
Filled: TypeAlias = tuple[
    int,
    bytearray,
    bytearray,
    bytearray,
    Binary,
    Binary,
    tuple[int, bytearray, Binary, Binary],
]

_MAX_BYTES: Final = 0x7FFF_FFFF


def overfull(byte_count: int, more: int) -> OverflowError:
    """The error for records whose columns would need offsets above int32."""
    return OverflowError(
        f"{byte_count} bytes of records and {more} more, columns take {_MAX_BYTES}: begin new ones"
    )


class ColumnSink:
    """Columns that records are added to. Not usable after `finish`."""

    def __init__(self, expected_bytes: int = 0) -> None:  # noqa: ARG002 - it grows as it goes
        self.count = 0  # Records so far.
        self.byte_count = 0  # Bytes of the regions they came from.
        self._offset = array("q")
        self._timestamp = array("q")
        self._timestamp_type = array("i")
        self._key = _BinarySink()
        self._value = _BinarySink()
        self._header_offsets = array("i", [0])
        self._header_key = _BinarySink()
        self._header_value = _BinarySink()

    def append_records(
        self, region: Buffer, header: BatchHeader, timestamp_type: int, from_offset: int
    ) -> None:
        """Adds the records from `from_offset` on of a magic 2 batch, decompressed; all or none.

        Raises:
            InvalidRecordError: A record is malformed, or the records do not fill the region.
            OverflowError: There is no room for so many bytes.
        """
        if self.byte_count + len(region) > _MAX_BYTES:
            raise overfull(self.byte_count, len(region))
        append_time = header.max_timestamp if header.is_log_append_time else None
        # All are read before the first is added, since a malformed one may follow.
        for timestamp_delta, offset_delta, key, value, headers in list(iter_fields(region, header)):
            offset = wrap_int64(header.base_offset + offset_delta)
            if offset < from_offset:
                continue
            timestamp = append_time
            if timestamp is None:
                timestamp = wrap_int64(header.base_timestamp + timestamp_delta)
            self._offset.append(offset)
            self._timestamp.append(timestamp)
            self._timestamp_type.append(timestamp_type)
            self._key.append(key)
            self._value.append(value)
            for name, content in headers:
                self._header_key.append(name.encode("utf-8", "surrogateescape"))
                self._header_value.append(content)
            self._header_offsets.append(self._header_key.count)
            self.count += 1
        self.byte_count += len(region)

    def finish(self) -> Filled:
        """Returns the columns."""
        return (
            self.count,
            bytearray(self._offset),
            bytearray(self._timestamp),
            bytearray(self._timestamp_type),
            self._key.finish(),
            self._value.finish(),
            (
                self._header_key.count,
                bytearray(self._header_offsets),
                self._header_key.finish(),
                self._header_value.finish(),
            ),
        )


class _BinarySink:
    def __init__(self) -> None:
        self.count = 0
        self._null_count = 0
        self._validity = bytearray()
        self._offsets = array("i", [0])
        self._data = bytearray()

    def append(self, entry: bytes | None) -> None:
        if self.count % 8 == 0:
            self._validity.append(0)
        if entry is None:
            self._null_count += 1
        else:
            self._validity[-1] |= 1 << self.count % 8
            self._data += entry
        self._offsets.append(len(self._data))
        self.count += 1

    def finish(self) -> Binary:
        validity = self._validity if self._null_count else None
        return self._null_count, validity, bytearray(self._offsets), self._data
