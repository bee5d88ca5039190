"""The batches of a segment file, by their framing alone.

What is read of a batch of 61 bytes of header and its records:

======  ====  ==========================================
offset  size  field
======  ====  ==========================================
     0     8  base offset
     8     4  length of what follows
    12     4  partition leader epoch
    16     1  magic, 2
    21     2  attributes: compression in the lowest 3 bits
    23     4  last offset delta
    43     8  producer id
    51     2  producer epoch
    53     4  base sequence
    57     4  count of records
======  ====  ==========================================
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["StoredBatch", "parse_batches"]

_FRAME = struct.Struct(">qii")
_HEADER_BYTES = 61
_CONTROL = 0x20
_COMPRESSION = 0x07


@dataclass(frozen=True, slots=True)
class StoredBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    digest: str  # Of all its bytes.
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[tuple[int, str], ...]  # Offset and value; none of a control batch.


def parse_batches(segment: bytes) -> Iterator[StoredBatch]:
    """Reads the whole batches of a file; a torn one at the end is left out.

    Raises:
        ValueError: A batch is compressed or of an older format.
    """
    at = 0
    while at + _HEADER_BYTES <= len(segment):
        base, length, epoch = _FRAME.unpack_from(segment, at)
        end = at + 12 + length
        if length < _HEADER_BYTES - 12 or end > len(segment):
            return
        magic = segment[at + 16]
        attributes, last_delta = struct.unpack_from(">hi", segment, at + 21)
        if magic != 2 or attributes & _COMPRESSION:
            raise ValueError(
                f"expected an uncompressed batch of magic 2 at {at}, got magic {magic} and"
                f" attributes {attributes:#x}"
            )
        records: tuple[tuple[int, str], ...] = ()
        if not attributes & _CONTROL:
            (count,) = struct.unpack_from(">i", segment, at + 57)
            records = tuple(_records(segment, at + _HEADER_BYTES, count, base))
        digest = hashlib.sha256(segment[at:end]).hexdigest()[:16]
        producer_id, producer_epoch, sequence = struct.unpack_from(">qhi", segment, at + 43)
        yield StoredBatch(
            base, base + last_delta, epoch, digest, producer_id, producer_epoch, sequence, records
        )
        at = end


def _records(segment: bytes, at: int, count: int, base: int) -> Iterator[tuple[int, str]]:
    for _ in range(count):
        length, at = _varint(segment, at)
        end = at + length
        at += 1  # Attributes.
        _, at = _varint(segment, at)  # Timestamp.
        delta, at = _varint(segment, at)
        key_bytes, at = _varint(segment, at)
        at += max(key_bytes, 0)
        value_bytes, at = _varint(segment, at)
        yield base + delta, segment[at : at + max(value_bytes, 0)].decode(errors="replace")
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and the place behind it."""
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
