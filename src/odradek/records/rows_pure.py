"""The pure twin of `_rows.pyx`: rows of columns to records of batches; see `rows`."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from odradek.records.batch import Buffer
from odradek.records.codec_pure import encode_record, oversized_record
from odradek.records.record import Headers
from odradek.records.rows_input import (
    BinaryInput,
    HeadersInput,
    NumberInput,
    malformed_row,
    nameless_header,
    negative_start,
    no_such_partition,
    short_buffer,
)
from odradek.records.varint import wrap_int64

__all__ = ["Rows", "group_rows", "murmur2_pure"]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_MAX_INT32: Final = 0x7FFF_FFFF
_WORD: Final = Struct("<I")


def murmur2_pure(data: bytes) -> int:
    """The 32 bits of Kafka's murmur2, unsigned."""
    length = len(data)
    mixed = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        word = word * _MULTIPLIER & _MASK
        word ^= word >> 24
        word = word * _MULTIPLIER & _MASK
        mixed = mixed * _MULTIPLIER & _MASK ^ word
    if whole < length:
        mixed ^= int.from_bytes(data[whole:], "little")
        mixed = mixed * _MULTIPLIER & _MASK
    mixed ^= mixed >> 13
    mixed = mixed * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


def group_rows(
    groups: Buffer, group_count: int, numbers: Buffer | None = None
) -> tuple[bytearray, list[int]]:
    """Sorts rows by their group, without changing the order within one.

    Args:
        groups: An int32 per row.
        numbers: Which rows these are; None: 0, 1, 2, ….

    Returns:
        The numbers of the rows, group after group, and where each group ends.

    Raises:
        ValueError: A group does not exist.
    """
    chosen = _integers(groups, "i", len(groups) // 4, "group")
    rows = range(len(chosen)) if numbers is None else _integers(numbers, "i", len(chosen), "row")
    sorted_rows: list[list[int]] = [[] for _ in range(group_count)]
    for row, group in zip(rows, chosen, strict=False):
        if not 0 <= group < group_count:
            raise ValueError(f"group {group}, expected one of {group_count}")
        sorted_rows[group].append(row)
    result = bytearray(4 * len(chosen))
    view = memoryview(result).cast("i")
    ends = []
    end = 0
    for some in sorted_rows:
        for row in some:
            view[end] = row
            end += 1
        ends.append(end)
    return result, ends


class Rows:
    """Rows to encode; see `rows`.

    Args:
        count: How many; every column has at least as many entries.
        timestamp: Milliseconds since 1970, for rows that have none of their own.

    Raises:
        ValueError: A buffer is too short for so many rows.
    """

    def __init__(
        self,
        count: int,
        *,
        key: BinaryInput | None = None,
        value: BinaryInput | None = None,
        headers: HeadersInput | None = None,
        timestamps: NumberInput | None = None,
        timestamp: int = 0,
    ) -> None:
        self.count = count
        self._key = None if key is None else _Binary("key", key, count)
        self._value = None if value is None else _Binary("value", value, count)
        self._headers = None if headers is None else _Headers(headers, count)
        self._timestamps = (
            None if timestamps is None else _Numbers("timestamp", timestamps, count, "q")
        )
        self._timestamp = timestamp

    def choose_partitions(
        self,
        partition_count: int,
        *,
        numbers: Buffer | None = None,
        partitions: NumberInput | None = None,
        ignores_keys: bool = False,
    ) -> bytearray:
        """The partition of each row, an int32: that of `partitions`, or that of its key, or -1.

        Args:
            numbers: Which rows; None: all.
            partitions: A column with the partitions of rows that name one.

        Raises:
            ApiError: INVALID_PARTITIONS, a row names a partition that does not exist.
            ValueError: A row is malformed.
        """
        asked = None
        if partitions is not None:
            asked = _Numbers("partition", partitions, self.count, "i")
        key = None if ignores_keys else self._key
        rows = self._rows(numbers)
        result = bytearray(4 * len(rows))
        view = memoryview(result).cast("i")
        for index, row in enumerate(rows):
            own = None if asked is None else asked.get(row)
            if own is not None:
                if not 0 <= own < partition_count:
                    raise no_such_partition(row, own, partition_count)
                view[index] = own
                continue
            found = None if key is None else key.get(row)
            view[index] = (
                -1 if found is None else (murmur2_pure(found) & _MAX_INT32) % partition_count
            )
        return result

    def undecided_bytes(self, partitions: Buffer, numbers: Buffer | None = None) -> int:
        """The bytes of the rows that have the partition -1.

        Args:
            partitions: From `choose_partitions` for the same rows.

        Raises:
            ValueError: See `largest`, or there are not as many partitions as rows.
        """
        chosen = self._partitions_of(partitions, numbers)
        return sum(
            len(self._encode_one(row, 0, 0))
            for row, partition in zip(self._rows(numbers), chosen, strict=True)
            if partition < 0
        )

    def spread(
        self,
        partitions: bytearray,
        shares: Sequence[tuple[int, int]],
        numbers: Buffer | None = None,
    ) -> None:
        """Replaces each -1 by a partition.

        Args:
            shares: Partitions and how many bytes of rows each of them gets, in turn. The last one
                gets the rest.

        Raises:
            ValueError: See `undecided_bytes`, or there are no shares.
        """
        if not shares:
            raise ValueError("no shares, expected at least one")
        chosen = self._partitions_of(partitions, numbers)
        turns = iter(shares)
        left = len(shares) - 1
        partition, share_bytes = next(turns)
        used = 0
        for index, row in enumerate(self._rows(numbers)):
            if chosen[index] >= 0:
                continue
            size = len(self._encode_one(row, 0, 0))
            if used + size > share_bytes and left:
                left -= 1
                partition, share_bytes = next(turns)
                used = 0
            used += size
            chosen[index] = partition

    def _partitions_of(self, partitions: Buffer, numbers: Buffer | None) -> memoryview:
        count = self.count if numbers is None else len(numbers) // 4
        if len(partitions) != 4 * count:
            raise short_buffer("partition", 4 * count, len(partitions))
        return memoryview(partitions).cast("B").cast("i")

    def largest(self) -> tuple[int, int]:
        """The row with the most bytes in a batch of its own, and how many without the header.

        Raises:
            ValueError: A row is malformed, or has a header without a key.
            RecordTooLargeError: A row has more bytes than an int32 length allows.
        """
        most = (-1, 0)
        for row in range(self.count):
            size = len(self._encode_one(row, 0, 0))
            if size > most[1]:
                most = (row, size)
        return most

    def encode(
        self, numbers: Buffer | None, first: int, end: int, max_bytes: int, prefix_size: int
    ) -> tuple[bytearray, int, int, int]:
        """Encodes the next rows as the records of a batch: as many as fit, and at least one.

        Args:
            numbers: Which rows, by their index in the columns; None: 0, 1, 2, ….
            first: The index in `numbers` to begin with.
            end: The index to end before.
            max_bytes: Of the records and the prefix.
            prefix_size: Bytes to leave in front, for the header.

        Returns:
            The bytes, how many rows, the timestamp of the first and the largest one.

        Raises:
            ValueError, RecordTooLargeError: See `largest`.
        """
        count = self.count if numbers is None else len(numbers) // 4
        if not 0 <= first < end <= count or prefix_size < 0:
            raise ValueError(f"rows {first} to {end} of {count}")
        encoded = bytearray(prefix_size)
        base_timestamp = max_timestamp = 0
        taken = 0
        for row in self._numbered(numbers)[first:end]:
            self._check_row(row)
            timestamp = self._timestamp_of(row)
            if not taken:
                base_timestamp = max_timestamp = timestamp
            record = self._encode_one(row, taken, wrap_int64(timestamp - base_timestamp))
            if taken and len(encoded) + len(record) > max_bytes:
                break
            encoded += record
            taken += 1
            max_timestamp = max(max_timestamp, timestamp)
        return encoded, taken, base_timestamp, max_timestamp

    def _rows(self, numbers: Buffer | None) -> Sequence[int]:
        """The rows of these numbers, after a check that all exist."""
        rows = self._numbered(numbers)
        for row in rows:
            self._check_row(row)
        return rows

    def _numbered(self, numbers: Buffer | None) -> Sequence[int]:
        if numbers is None:
            return range(self.count)
        return _integers(numbers, "i", len(numbers) // 4, "row")

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.count:
            raise ValueError(f"row {row} of {self.count}")

    def _timestamp_of(self, row: int) -> int:
        own = None if self._timestamps is None else self._timestamps.get(row)
        return self._timestamp if own is None else own

    def _encode_one(self, row: int, offset_delta: int, timestamp_delta: int) -> bytes:
        key = None if self._key is None else self._key.get(row)
        value = None if self._value is None else self._value.get(row)
        headers = () if self._headers is None else self._headers.get(row)
        try:
            return encode_record(offset_delta, timestamp_delta, key, value, headers)
        except OverflowError:
            raise oversized_record(row) from None


class _Numbers:
    """A column of numbers."""

    def __init__(self, name: str, given: NumberInput, count: int, code: str) -> None:
        self._start = _checked_start(name, given.start)
        self._validity = _bits(given.validity, given.start + count, name)
        self._data = _integers(given.data, code, given.start + count, name)

    def get(self, row: int) -> int | None:
        entry = self._start + row
        return self._data[entry] if _is_valid(self._validity, entry) else None


class _Binary:
    """A column of byte strings."""

    def __init__(self, name: str, given: BinaryInput, count: int) -> None:
        self._start = _checked_start(name, given.start)
        self._validity = _bits(given.validity, given.start + count, name)
        self._offsets = _integers(given.offsets, "i", given.start + count + 1, name)
        self._data = memoryview(given.data)

    def get(self, row: int) -> bytes | None:
        return self.get_for(row, row)

    def get_for(self, index: int, row: int) -> bytes | None:
        """Entry `index`, on behalf of a row."""
        entry = self._start + index
        if not _is_valid(self._validity, entry):
            return None
        begin, end = self._offsets[entry], self._offsets[entry + 1]
        if not 0 <= begin <= end <= len(self._data):
            raise malformed_row(row)
        return bytes(self._data[begin:end])


class _Headers:
    """A column of headers."""

    def __init__(self, given: HeadersInput, count: int) -> None:
        self._start = _checked_start("headers", given.start)
        self._count = _checked_start("headers", given.entry_count)
        self._validity = _bits(given.validity, given.start + count, "headers")
        self._offsets = _integers(given.offsets, "i", given.start + count + 1, "headers")
        self._key = _Binary("headers", given.key, given.entry_count)
        self._value = _Binary("headers", given.value, given.entry_count)

    def get(self, row: int) -> Headers:
        entry = self._start + row
        if not _is_valid(self._validity, entry):
            return ()
        begin, end = self._offsets[entry], self._offsets[entry + 1]
        if not 0 <= begin <= end <= self._count:
            raise malformed_row(row)
        headers = []
        for index in range(begin, end):
            name = self._key.get_for(index, row)
            if name is None:
                raise nameless_header(row)
            value = self._value.get_for(index, row)
            headers.append((name.decode("utf-8", "surrogateescape"), value))
        return tuple(headers)


def _checked_start(name: str, start: int) -> int:
    if start < 0:
        raise negative_start(name)
    return start


def _integers(buffer: Buffer, code: str, count: int, name: str) -> Sequence[int]:
    """The first numbers of a buffer."""
    needed = count * (8 if code == "q" else 4)
    view = memoryview(buffer).cast("B")
    if len(view) < needed:
        raise short_buffer(name, needed, len(view))
    return view[:needed].cast(code)  # type: ignore[call-overload, no-any-return]  # one of two codes


def _bits(buffer: Buffer | None, count: int, name: str) -> memoryview | None:
    if buffer is None:
        return None
    view = memoryview(buffer).cast("B")
    if len(view) < (count + 7) // 8:
        raise short_buffer(name, (count + 7) // 8, len(view))
    return view


def _is_valid(validity: memoryview | None, entry: int) -> bool:
    return validity is None or bool(validity[entry >> 3] >> (entry & 7) & 1)
