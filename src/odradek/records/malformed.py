"""Errors for records that do not parse.

The loops over records, compiled or not, only detect *that* a record is malformed; this slow and
careful parser says why, so that all of them report the same. A record::

    length           varint   bytes after this field
    attributes       int8     unused
    timestamp_delta  varlong  timestamp = base_timestamp + delta
    offset_delta     varint   offset = base_offset + delta
    key              varint length (-1 = null), bytes
    value            varint length (-1 = null), bytes
    header_count     varint   >= 0
    headers          each: key (varint length >= 0, UTF-8), value (varint length, -1 = null, bytes)

and its fields take exactly `length` bytes.
"""

from odradek.errors import InvalidRecordError, InvariantViolation
from odradek.records.batch import Buffer
from odradek.records.varint import decode_varint, decode_varlong

__all__ = ["malformed_record", "malformed_region"]


def malformed_record(region: Buffer, position: int, end: int, index: int) -> InvalidRecordError:
    """The error for the record number `index` at `position` of a region up to `end`."""
    try:
        _read_record(region, position, end)
    except InvalidRecordError as error:
        return InvalidRecordError(f"record {index} at position {position}: {error}")
    raise InvariantViolation(f"record {index} at position {position} was refused but is whole")


def malformed_region(position: int, end: int, record_count: int) -> InvalidRecordError:
    """The error for a region that does not end with its last record."""
    return InvalidRecordError(
        f"{end - position} bytes at position {position} follow the last of {record_count} records"
    )


def _read_record(region: Buffer, position: int, end: int) -> None:
    if position >= end:
        raise InvalidRecordError("the region ends before it")
    length, position = decode_varint(region, position, end)
    if not 0 <= length <= end - position:
        raise InvalidRecordError(f"length {length}, {end - position} bytes are left")
    end = position + length
    if length == 0:
        raise InvalidRecordError("length 0, it has no attributes")
    _, position = decode_varlong(region, position + 1, end)
    _, position = decode_varint(region, position, end)
    position = _skip_bytes(region, position, end, "key", lowest=-1)
    position = _skip_bytes(region, position, end, "value", lowest=-1)
    header_count, position = decode_varint(region, position, end)
    if not 0 <= header_count <= end - position:
        raise InvalidRecordError(f"{header_count} headers, {end - position} bytes are left")
    for _ in range(header_count):
        position = _skip_bytes(region, position, end, "header key", lowest=0)
        position = _skip_bytes(region, position, end, "header value", lowest=-1)
    if position != end:
        raise InvalidRecordError(f"{end - position} bytes more than its fields take")


def _skip_bytes(region: Buffer, position: int, end: int, field: str, *, lowest: int) -> int:
    length, position = decode_varint(region, position, end)
    if not lowest <= length <= end - position:
        raise InvalidRecordError(f"{field} length {length}, {end - position} bytes are left")
    return position + max(length, 0)
