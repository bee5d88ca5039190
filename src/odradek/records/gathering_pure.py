"""The records of an open batch: the pure twin of `_gathering.pyx`; see `gathering`."""

from typing import Final

from odradek.records.codec_pure import encode_record
from odradek.records.record import Headers
from odradek.records.varint import wrap_int64

__all__ = [
    "RECORD_OVERHEAD",
    "GatheringPure",
]

# Bytes of a record beside its fields, in nearly every case: lengths, attributes, deltas, count.
RECORD_OVERHEAD: Final = 21
_MAX_INT32: Final = 2**31 - 1
_MAX_TIMESTAMP: Final = 2**63 - 1


class GatheringPure:
    """Records up to a limit of bytes.

    Args:
        start_size: Bytes to leave in front for a header.
        limit: The largest `size`. The first record is added whatever its size.
    """

    __slots__ = (
        "_encoded",
        "base_timestamp",
        "is_closed",
        "limit",
        "max_timestamp",
        "record_count",
        "size",
    )

    def __init__(self, start_size: int, limit: int) -> None:
        self._encoded = bytearray(start_size)
        self.size = start_size  # Bytes encoded so far.
        self.limit = limit
        self.record_count = 0
        self.base_timestamp = -1  # Of the first record.
        self.max_timestamp = -1
        self.is_closed = False

    def add(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Adds a record.

        Returns:
            The index of the record; -1 if it does not fit, the batch is closed, or a field has
            another type than a timestamp from 0 on, `bytes` or None, and a tuple of pairs of `str`
            and `bytes` or None.

        Raises:
            UnicodeEncodeError: The key of a header is not text.
        """
        if self.is_closed or not _is_usable(timestamp, key, value, headers):
            return -1
        index = self.record_count
        base = timestamp if index == 0 else self.base_timestamp
        record = encode_record(index, wrap_int64(timestamp - base), key, value, headers)
        size = self.size + len(record)
        if size > (self.limit if index else _MAX_INT32):
            return -1
        self._encoded += record
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.record_count += 1
        self.size = size
        return index

    def extend(self, limit: int) -> None:
        """Raises the limit, so that more records fit."""
        self.limit = limit

    def close(self) -> int:
        """Closes the batch to further records; returns how many it has."""
        self.is_closed = True
        return self.record_count

    def take(self) -> bytearray:
        """Returns the encoded records of a closed batch."""
        assert self.is_closed, "a producer may still add to it"
        encoded, self._encoded = self._encoded, bytearray()
        return encoded


def _is_usable(timestamp: object, key: object, value: object, headers: object) -> bool:
    if type(timestamp) is not int or not 0 <= timestamp <= _MAX_TIMESTAMP:
        return False
    if type(headers) is not tuple:
        return False
    fields = [key, value]
    for header in headers:
        if type(header) is not tuple or len(header) != 2 or type(header[0]) is not str:
            return False
        fields.append(header[1])
    return all(field is None or type(field) is bytes for field in fields)
