"""All that has to be right about a plain batch, in one call: header, checksum, every record.

A plain batch is what clients send every day: one batch of the current format, neither compressed
nor transactional, its offsets not numbered yet, its records 0, 1, 2, … with a timestamp. Four calls
and as many values between them cost more than the work itself, so it has a compiled twin, in
`_walk.pyx`, used where it was built; both give the same answer for any bytes. A batch that is not
of this kind, or has anything wrong with it, is for the general way to judge, which says why.
"""

from typing import TypeAlias

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
from odradek.records.walk import walk_records

__all__ = ["IS_COMPILED", "PlainBatch", "check_plain_batch", "check_plain_batch_pure"]

# Last offset delta, largest timestamp; producer id, its epoch and base sequence, -1 without one.
PlainBatch: TypeAlias = tuple[int, int, int, int, int]


def check_plain_batch_pure(
    batch: Buffer, earliest_timestamp: int, latest_timestamp: int, require_key: bool
) -> PlainBatch | None:
    """What an append has to know of a plain batch that can be stored as it is; None for any other.

    Args:
        batch: Must be writable, for the offset that is given to it.
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
        walked_timestamp, _, is_consecutive, bad = walk_records(
            batch, HEADER_SIZE, size, count, base_timestamp,
            earliest_timestamp, latest_timestamp, require_key,
        )  # fmt: skip
    except InvalidRecordError:
        return None
    if not is_consecutive or bad is not None or walked_timestamp != max_timestamp:
        return None
    return last_offset_delta, max_timestamp, producer_id, producer_epoch, base_sequence


try:
    from odradek.records._walk import check_plain_batch
except ImportError:
    check_plain_batch = check_plain_batch_pure
    IS_COMPILED = False
else:
    IS_COMPILED = True
