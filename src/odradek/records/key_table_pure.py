"""Offsets by key, and the filter of records by them: the pure twin of `_key_table.pyx`.

The twins have different hashes and the same results, down to the errors; see `key_table`.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from odradek.errors import InvalidRecordError
from odradek.records.batch import HEADER_SIZE, Buffer
from odradek.records.key_runs import plain_batches, shrink_batch
from odradek.records.malformed import malformed_record, malformed_region
from odradek.records.varint import (
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    wrap_int64,
)

__all__ = [
    "MAX_SLOTS",
    "SECRET_SIZE",
    "SLOT_SIZE",
    "Filtered",
    "FilteredRun",
    "KeyTablePure",
    "shift_timestamps_pure",
]

SLOT_SIZE: Final = 24  # Bytes: a hash of 16 and an offset of 8.
SECRET_SIZE: Final = 16
MAX_SLOTS: Final = 0x7FFF_FFFF

# Records kept; their bytes, None if that is all of them; their largest timestamp, -1 if there are
# none; whether a tombstone is among them; how many were dropped for want of a key.
Filtered: TypeAlias = tuple[int, bytes | None, int, bool, int]

# Position after the run; the bytes kept; last offset, largest timestamp and size of each of their
# batches; records read, kept, and dropped for want of a key.
FilteredRun: TypeAlias = tuple[int, bytes, list[tuple[int, int, int]], int, int, int]

# End of a record; timestamp delta; offset delta; key; whether it is a tombstone.
_Fields: TypeAlias = tuple[int, int, int, bytes | None, bool]


class KeyTablePure:
    """Offsets by key. One thread at a time may use it.

    Args:
        slot_count: Room, in slots of `SLOT_SIZE` bytes.
        load_factor: Share of the slots that keys may take.
        secret: `SECRET_SIZE` bytes that no producer can know.

    Raises:
        ValueError: An argument is out of range.
    """

    __slots__ = ("_offsets", "_secret", "capacity")

    def __init__(self, slot_count: int, load_factor: float, secret: bytes) -> None:
        if not 2 <= slot_count <= MAX_SLOTS:
            raise ValueError(f"{slot_count} slots, expected 2..{MAX_SLOTS}")
        if not 0 < load_factor <= 1:
            raise ValueError(f"load factor {load_factor}, expected above 0 and at most 1")
        if len(secret) != SECRET_SIZE:
            raise ValueError(f"a secret of {len(secret)} bytes, expected {SECRET_SIZE}")
        # Most keys it can have. Invariant: at least 1, below the number of slots.
        self.capacity = min(max(int(slot_count * load_factor), 1), slot_count - 1)
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def _hash(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()

    def get(self, key: Buffer) -> int:
        """The last offset stored for a key; -1 if there is none."""
        return self._offsets.get(self._hash(key), -1)

    def put(self, region: Buffer, record_count: int, base_offset: int, first_offset: int) -> bool:
        """Stores the offsets of the records in an uncompressed region, from `first_offset` on.

        Records without a key are ignored.

        Returns:
            Whether all keys fit; if not, those before the first that did not fit are stored.

        Raises:
            InvalidRecordError: The records are malformed, or do not fill the region.
        """
        data = bytes(region)
        offsets = self._offsets
        position = 0
        for index in range(_checked(record_count)):
            position, _, offset_delta, key, _ = _read(data, position, index)
            offset = base_offset + offset_delta
            if key is None or offset < first_offset:
                continue
            digest = self._hash(key)
            known = offsets.get(digest)
            if known is None and len(offsets) >= self.capacity:
                return False
            if known is None or offset > known:
                offsets[digest] = offset
        _check_end(data, position, record_count)
        return True

    def filter(
        self,
        region: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        latest_offset: int,
        drop_tombstones: bool,
    ) -> Filtered:
        """Filters the records of an uncompressed region; those that stay keep their bytes.

        | record                                  | stays                       |
        |-----------------------------------------|-----------------------------|
        | offset above `latest_offset`            | yes: its key was not stored |
        | no key                                  | no                          |
        | a later offset is stored for its key    | no                          |
        | no value (a tombstone)                  | unless `drop_tombstones`    |
        | any other                               | yes                         |

        Raises:
            InvalidRecordError: The records are malformed, or do not fill the region.
        """
        data = bytes(region)
        parts: list[bytes] = []
        max_timestamp = -1
        has_tombstone = False
        unkeyed = 0
        end = 0
        for index in range(_checked(record_count)):
            start = end
            end, timestamp_delta, offset_delta, key, is_tombstone = _read(data, start, index)
            offset = base_offset + offset_delta
            if offset <= latest_offset:
                if key is None:
                    unkeyed += 1
                    continue
                if offset < self.get(key) or (is_tombstone and drop_tombstones):
                    continue
            timestamp = wrap_int64(base_timestamp + timestamp_delta)
            if not parts or timestamp > max_timestamp:
                max_timestamp = timestamp
            has_tombstone = has_tombstone or is_tombstone
            parts.append(data[start:end])
        _check_end(data, end, record_count)
        kept = None if len(parts) == record_count else b"".join(parts)
        return len(parts), kept, max_timestamp, has_tombstone, unkeyed

    def put_run(self, data: Buffer, position: int, first_offset: int) -> tuple[int, int]:
        """`put` for the plain batches from `position` on, as far as they fit.

        Returns:
            The position after them, and the last offset of the last one that ends at or above
            `first_offset`, -1 if none does. Keys of the next batch may be stored, too.

        Raises:
            ValueError: `position` does not lie within `data`.
        """
        last_offset = -1
        for header, end in plain_batches(data, position):
            if header.last_offset >= first_offset:
                region = memoryview(data)[position + HEADER_SIZE : end]
                try:
                    if not self.put(region, header.record_count, header.base_offset, first_offset):
                        break
                except InvalidRecordError:
                    break
                last_offset = header.last_offset
            position = end
        return position, last_offset

    def filter_run(
        self, data: Buffer, position: int, latest_offset: int, now_ms: int, spared: Sequence[int]
    ) -> FilteredRun:
        """`filter` for the plain batches from `position` on; returns batches of the records kept.

        A run also ends before a batch that is to get a delete horizon, and before one that may have
        to stay though none of its records does.

        Args:
            data: Batches.
            position: Where the first one begins.
            latest_offset: As for `filter`.
            now_ms: The tombstones of a batch whose delete horizon is not later are dropped.
            spared: Last offsets of the batches that may have to stay, ascending; an array of int64.

        Raises:
            ValueError: `position` does not lie within `data`.
        """
        parts: list[Buffer] = []
        batches: list[tuple[int, int, int]] = []
        records_read = records_kept = all_unkeyed = 0
        for header, end in plain_batches(data, position):
            batch = memoryview(data)[position:end]
            horizon = header.delete_horizon_ms
            try:
                count, kept, max_timestamp, has_tombstone, unkeyed = self.filter(
                    batch[HEADER_SIZE:],
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    latest_offset,
                    horizon is not None and horizon <= now_ms,
                )
            except InvalidRecordError:
                break
            if count == 0 and header.last_offset in spared:
                break
            if has_tombstone and horizon is None:
                break
            records_read += header.record_count
            if count:
                if kept is not None:
                    header, batch = shrink_batch(header, kept, count, max_timestamp)
                parts.append(batch)
                batches.append((header.last_offset, header.max_timestamp, len(batch)))
            records_kept += count
            all_unkeyed += unkeyed
            position = end
        return position, b"".join(parts), batches, records_read, records_kept, all_unkeyed


def shift_timestamps_pure(region: Buffer, record_count: int, shift: int) -> bytes:
    """The records of an uncompressed region with `shift` added to their timestamp deltas.

    Raises:
        InvalidRecordError: The records are malformed, or do not fill the region.
    """
    data = bytes(region)
    parts: list[bytes] = []
    position = 0
    for index in range(_checked(record_count)):
        end, timestamp_delta, _, _, _ = _read(data, position, index)
        _, body = decode_varint(data, position, end)
        _, rest = decode_varlong(data, body + 1, end)
        delta = encode_varlong(wrap_int64(timestamp_delta + shift))
        parts += (
            encode_varint(1 + len(delta) + end - rest),
            data[body : body + 1],
            delta,
            data[rest:end],
        )
        position = end
    _check_end(data, position, record_count)
    return b"".join(parts)


def _checked(record_count: int) -> int:
    if record_count < 0:
        raise InvalidRecordError(f"{record_count} records, expected 0 or more")
    return record_count


def _check_end(data: bytes, position: int, record_count: int) -> None:
    if position != len(data):
        raise malformed_region(position, len(data), record_count)


def _read(data: bytes, position: int, index: int) -> _Fields:
    try:
        return _read_fields(data, position)
    except (IndexError, InvalidRecordError):
        raise malformed_record(data, position, len(data), index) from None


def _read_fields(data: bytes, position: int) -> _Fields:
    """Reads one record; any exception means that it is malformed, whatever its message."""
    length, at = decode_varint(data, position, len(data))
    end = at + length
    if length <= 0 or end > len(data):
        raise IndexError
    timestamp_delta, at = decode_varlong(data, at + 1, end)
    offset_delta, at = decode_varint(data, at, end)
    key_start, key_length = _field(data, at, end)
    at = key_start + max(key_length, 0)
    value_start, value_length = _field(data, at, end)
    at = value_start + max(value_length, 0)
    header_count, at = decode_varint(data, at, end)
    if not 0 <= header_count <= end - at:
        raise IndexError
    for _ in range(header_count):
        start, length = _field(data, at, end)
        if length < 0:
            raise IndexError
        start, value_size = _field(data, start + length, end)
        at = start + max(value_size, 0)
    if at != end:
        raise IndexError
    key = None if key_length < 0 else data[key_start : key_start + key_length]
    return end, timestamp_delta, offset_delta, key, value_length < 0


def _field(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Start and length of a field of bytes; the length of a null is -1."""
    length, position = decode_varint(data, position, end)
    if not -1 <= length <= end - position:
        raise IndexError
    return position, length
