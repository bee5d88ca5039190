"""The walk over the records of a batch, and the check of a plain one: pure twin of `_walk.pyx`.

Both twins give the same result for any bytes, down to the message of the error; see `walk`.
"""

from typing import Final, TypeAlias

from crc32c import crc32c

from odradek.errors import InvalidRecordError
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Buffer,
)
from odradek.records.malformed import malformed_record, malformed_region
from odradek.records.varint import decode_base128, decode_varint, decode_varlong, wrap_int64
from odradek.records.walk_runs import LEAST_RUN, SHORT_OFFSETS, Tally, walk_run

__all__ = [
    "MAX_BAD_RECORDS",
    "NULL_KEY",
    "TIMESTAMP_OUT_OF_RANGE",
    "PlainBatch",
    "WalkResult",
    "check_plain_batch_pure",
    "walk_records_pure",
]

# Reasons of a bad record. The timestamp of a record without a key is not checked.
NULL_KEY: Final = 1
TIMESTAMP_OUT_OF_RANGE: Final = 2

# Bad records named at most: the batch is refused as a whole, the first few tell why.
MAX_BAD_RECORDS: Final = 16

# Largest timestamp, index of the first record that has it, whether the offset deltas are
# 0, 1, 2, …, and the bad records as (index, reason).
WalkResult: TypeAlias = tuple[int, int, bool, list[tuple[int, int]] | None]

# Last offset delta, largest timestamp; producer id, its epoch and base sequence, -1 without one.
PlainBatch: TypeAlias = tuple[int, int, int, int, int]

# Closer to the ends of int64 than this, a base_timestamp and a short delta could leave it.
_ORDINARY: Final = 1 << 62
_MASK_32: Final = 0xFFFF_FFFF

_LEAST_STRETCH: Final = 64  # Records that are walked before it is decided again how.
_LONGEST_MIXED: Final = 512  # Records of a mixed run at most, so that less work is in vain.


def walk_records_pure(
    region: Buffer,
    start: int,
    end: int,
    record_count: int,
    base_timestamp: int,
    earliest_timestamp: int,
    latest_timestamp: int,
    require_key: bool,
) -> WalkResult:
    """Checks `record_count` records that must fill `region` from `start` to `end` exactly.

    Args:
        earliest_timestamp: Smallest timestamp allowed; -1 is always allowed. An int64, as is
            every timestamp here: clamp a window that reaches beyond.
        latest_timestamp: Largest timestamp allowed.
        require_key: Whether a record with a null key is bad.

    Returns:
        Largest timestamp and the index of the first record with it (both -1 without records),
        whether the offset deltas are 0, 1, 2, …, and None or up to `MAX_BAD_RECORDS` bad records.
        If any timestamp is out of range, at least one such record is among them.

    Raises:
        InvalidRecordError: A record is malformed, or the records do not fill the region.
        ValueError: `start` and `end` do not lie within `region`.
    """
    if not 0 <= start <= end <= len(region):
        raise ValueError(f"[{start}, {end}) is not within {len(region)} bytes")
    if record_count < 0:
        raise InvalidRecordError(f"{record_count} records, expected 0 or more")
    data = region if isinstance(region, bytes) else bytes(region)
    tally = Tally()
    has_runs = record_count >= LEAST_RUN and -_ORDINARY < base_timestamp < _ORDINARY
    hope = patience = _LEAST_STRETCH
    index, position = 0, start
    while index < record_count:
        stop = record_count
        if has_runs:
            found, position = walk_run(
                tally, data, position, end,
                index=index, count=record_count - index, mixed_count=hope,
            )  # fmt: skip
            if found:
                index += found
                hope = min(4 * hope, _LONGEST_MIXED)
                continue
            if index < SHORT_OFFSETS:
                stop = min(stop, SHORT_OFFSETS)
            else:  # The more searches for runs were in vain, the longer until the next search.
                stop = min(stop, index + patience)
                hope, patience = _LEAST_STRETCH, 2 * patience
        position = _walk_singly(tally, data, position, end, index, stop, base_timestamp)
        index = stop
    if position != end:
        raise malformed_region(position, end, record_count)
    if not record_count:
        return -1, -1, True, None
    max_timestamp = base_timestamp + tally.max_delta
    bad = None
    if (
        (tally.has_null_key and require_key)
        or base_timestamp + tally.min_delta < earliest_timestamp
        or max_timestamp > latest_timestamp
    ):
        bad = _find_bad(
            data, start, record_count, base_timestamp,
            (earliest_timestamp, latest_timestamp), require_key,
        )  # fmt: skip
    return max_timestamp, tally.max_index, tally.is_consecutive, bad


def check_plain_batch_pure(
    batch: Buffer, earliest_timestamp: int, latest_timestamp: int, require_key: bool
) -> PlainBatch | None:
    """Checks a plain batch that can be stored unchanged; returns None for any other batch.

    Args:
        batch: Must be writable, since its offset is assigned in place.
        earliest_timestamp: Smallest timestamp allowed in a record, an int64.
        latest_timestamp: Largest timestamp allowed.
        require_key: Whether every record needs a key.
    """
    size = len(batch)
    if (
        size < HEADER_SIZE
        or isinstance(batch, bytes)
        or (isinstance(batch, memoryview) and batch.readonly)
    ):
        return None
    (
        base_offset, length, _, magic, crc, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(batch)  # fmt: skip
    if (
        magic != CURRENT_MAGIC
        or length + LOG_OVERHEAD != size
        or base_offset
        or attributes
        or count <= 0
        or last_offset_delta + 1 != count
        or max_timestamp < 0  # Then no batch has the largest timestamp.
        or crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]) != crc
    ):
        return None
    try:
        walked_timestamp, _, is_consecutive, bad = walk_records_pure(
            batch, HEADER_SIZE, size, count, base_timestamp,
            earliest_timestamp, latest_timestamp, require_key,
        )  # fmt: skip
    except InvalidRecordError:
        return None
    if not is_consecutive or bad is not None or walked_timestamp != max_timestamp:
        return None
    return last_offset_delta, max_timestamp, producer_id, producer_epoch, base_sequence


# Long because it is inlined: calls would cost three times the walk.
def _walk_singly(  # noqa: C901 - see above
    tally: Tally,
    data: bytes,
    position: int,
    end: int,
    first: int,
    stop: int,
    base_timestamp: int,
) -> int:
    """Walks the records from `first` to `stop`, one by one; returns the position after them.

    Raises:
        InvalidRecordError: A record is malformed.
    """
    # Each step reads ahead without checking the end of the record: a field that exceeds it, or the
    # end of the buffer, is found by the comparison at the end, by IndexError, or by ValueError
    # where several bytes are unpacked at once. Numbers stay in zigzag form: 0 is 0, 1 is
    # -1, 2 is 1. One and two bytes are decoded in place, where the second byte shifted by 7 meets
    # the continuation bit of the first, hence - 0x80. Times are compared as deltas: those of a
    # batch are small numbers, and small numbers are quick.
    max_delta, max_index, min_delta = tally.max_delta, tally.max_index, tally.min_delta
    is_consecutive, has_null_key = tally.is_consecutive, tally.has_null_key
    # Lengths below it have one byte; 0 makes every record take the long way, where times may wrap.
    short = 0x80 if -_ORDINARY < base_timestamp < _ORDINARY else 0
    index = first
    try:
        for index in range(first, stop):
            length = data[position]
            at = position + 1
            if length >= 0x80:
                if (high := data[at]) < 0x80:
                    length += (high << 7) - 0x80
                    at += 1
                else:
                    length, at = decode_base128(data, position, end, 5)
                    length &= _MASK_32
            record_end = at + (length >> 1)
            if length & 1 or record_end > end:
                raise IndexError
            # Attributes; then timestamp and offset of one or two bytes, and a key below 64 bytes.
            _, b0, b1, b2, b3, b4 = data[at : at + 6]
            if b0 < 0x80:
                delta = b0
                if b1 < 0x80:
                    offset_delta, key_length = b1, b2
                    at += 4
                else:
                    offset_delta, key_length = b1 + (b2 << 7) - 0x80, b3 if b2 < 0x80 else 0x80
                    at += 5
            else:
                delta = b0 + (b1 << 7) - 0x80
                if b1 >= 0x80:
                    key_length = offset_delta = 0x80
                elif b2 < 0x80:
                    offset_delta, key_length = b2, b3
                    at += 5
                else:
                    offset_delta, key_length = b2 + (b3 << 7) - 0x80, b4 if b3 < 0x80 else 0x80
                    at += 6
            if key_length < short:
                delta = (delta >> 1) ^ -(delta & 1)
            else:  # A field is longer: the whole record again, byte by byte.
                at = record_end - (length >> 1) + 1
                delta, at = decode_varlong(data, at, end)
                offset_delta, at = decode_base128(data, at, end, 5)
                offset_delta &= _MASK_32
                key_length, at = decode_base128(data, at, end, 5)
                key_length &= _MASK_32
                delta = wrap_int64(base_timestamp + delta) - base_timestamp
            if not key_length & 1:
                at += key_length >> 1
            elif key_length == 1:
                has_null_key = True
            else:
                raise IndexError

            length = data[at]
            at += 1
            if length >= 0x80:
                if (high := data[at]) < 0x80:
                    length += (high << 7) - 0x80
                    at += 1
                else:
                    length, at = decode_base128(data, at - 1, end, 5)
                    length &= _MASK_32
            if not length & 1:
                at += length >> 1
            elif length > 1:
                raise IndexError

            at = _skip_headers(data, at, record_end) if data[at] else at + 1
            if at != record_end:
                raise IndexError
            position = at
            if delta > max_delta:
                max_delta = delta
                max_index = index
            if delta < min_delta:
                min_delta = delta
            if offset_delta != index + index:
                is_consecutive = False
    except (IndexError, ValueError, InvalidRecordError):
        raise malformed_record(data, position, end, index) from None
    tally.max_delta, tally.max_index, tally.min_delta = max_delta, max_index, min_delta
    tally.is_consecutive, tally.has_null_key = is_consecutive, has_null_key
    return position


def _find_bad(
    data: bytes,
    position: int,
    record_count: int,
    base_timestamp: int,
    window: tuple[int, int],
    require_key: bool,
) -> list[tuple[int, int]] | None:
    """Walks a well-formed region a second time, to find the bad records."""
    bad: list[tuple[int, int]] | None = None
    end = len(data)
    for index in range(record_count):
        length, at = decode_varint(data, position, end)
        position = at + length
        delta, at = decode_varlong(data, at + 1, end)
        _, at = decode_varint(data, at, end)
        key_length, _ = decode_varint(data, at, end)
        timestamp = wrap_int64(base_timestamp + delta)
        if key_length < 0 and require_key:
            bad = _note(bad, index, NULL_KEY)
        elif not window[0] <= timestamp <= window[1] and timestamp != -1:
            bad = _note(bad, index, TIMESTAMP_OUT_OF_RANGE)
    return bad


def _skip_headers(region: Buffer, position: int, end: int) -> int:
    header_count, position = decode_varint(region, position, end)
    if not 0 <= header_count <= end - position:
        raise IndexError
    for _ in range(header_count):
        length, position = decode_varint(region, position, end)
        if length < 0:
            raise IndexError
        position += length
        length, position = decode_varint(region, position, end)
        if length < -1:
            raise IndexError
        position += max(length, 0)
    return position


def _note(bad: list[tuple[int, int]] | None, index: int, reason: int) -> list[tuple[int, int]]:
    if bad is None:
        return [(index, reason)]
    if len(bad) < MAX_BAD_RECORDS:
        bad.append((index, reason))
    elif reason == TIMESTAMP_OUT_OF_RANGE and all(other != reason for _, other in bad):
        bad[-1] = (index, reason)  # A bad timestamp decides the error of the batch: keep one.
    return bad
