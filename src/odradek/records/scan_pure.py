"""Steps over runs of ordinary batches: the pure twin of `_scan.pyx`.

Both twins give the same result for any bytes; see `scan`.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from crc32c import crc32c

from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_MASK,
    CURRENT_MAGIC,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
    Buffer,
)

if TYPE_CHECKING:
    from odradek.records._scan import ProducerTails

__all__ = [
    "TAIL_LENGTH",
    "IndexEntry",
    "ProducerTailsPure",
    "Run",
    "step_over_headers_pure",
    "step_over_run_pure",
]

TAIL_LENGTH: Final = 5  # Batches of one producer; as many as a partition remembers.

# Last offset and position of the batch; largest timestamp up to it, and last offset of its batch.
IndexEntry: TypeAlias = tuple[int, int, int, int]

# Position after the run, the next offset, largest timestamp and last offset of its batch, position
# of the last entry, and the entries of the run.
Run: TypeAlias = tuple[int, int, int, int, int, list[IndexEntry]]

_MIN_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_PRODUCER_SLOTS: Final = 1024
_IN_TRANSACTION: Final = CONTROL_MASK | TRANSACTIONAL_MASK
_LARGEST_OFFSET: Final = 2**62  # Of a header that is stepped over: sums stay within 64 bits.


class ProducerTailsPure:
    """Headers of the last batches of each producer."""

    __slots__ = ("_set_aside", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, tuple[int, list[bytes]]] = {}
        self._set_aside: list[bytes] = []

    def __len__(self) -> int:
        """How many headers have been set aside."""
        return len(self._set_aside)

    def note(self, producer_id: int, header: bytes) -> None:
        """Adds the header of a batch, the next one of its producer."""
        slot = producer_id % _PRODUCER_SLOTS
        owner, tail = self._slots.get(slot, (producer_id, []))
        if owner != producer_id:
            self._set_aside += tail
            tail = []
        self._slots[slot] = producer_id, [*tail, header][-TAIL_LENGTH:]

    def drain(self) -> list[bytes]:
        """Returns all headers, ordered by base offset, and removes them."""
        found = self._set_aside
        for _, tail in self._slots.values():
            found += tail
        self._slots, self._set_aside = {}, []
        return sorted(found)


def step_over_headers_pure(data: Buffer, position: int, next_offset: int) -> tuple[int, int]:
    """Steps over the batches of magic 2 from `position` on whose offsets grow.

    Returns:
        Position of the first bytes that are no such batch (other data, a partial header, or the
        end of `data`), and the lowest offset that a batch there may have.

    Raises:
        ValueError: `position` does not lie within `data`.
    """
    end = len(data)
    if not 0 <= position <= end:
        raise ValueError(f"position {position} is not within {end} bytes")
    unpack = HEADER.unpack_from
    while position + HEADER_SIZE <= end:
        base_offset, length, _, magic, _, _, last_offset_delta, *_ = unpack(data, position)
        if (
            magic != CURRENT_MAGIC
            or length < _MIN_LENGTH
            or not next_offset <= base_offset <= _LARGEST_OFFSET
            or last_offset_delta < 0
        ):
            break
        next_offset = base_offset + last_offset_delta + 1
        position += length + LOG_OVERHEAD
    return position, next_offset


def step_over_run_pure(
    data: Buffer,
    position: int,
    next_offset: int,
    last_allowed_offset: int,
    latest_epoch: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    entry_position: int,
    interval_bytes: int,
    tails: "ProducerTails | ProducerTailsPure",
) -> Run:
    """Steps over the ordinary batches from `position` on, if the first is one.

    Args:
        next_offset: Where the first batch has to begin.
        last_allowed_offset: Where a batch has to end at the latest; below the largest int64.
        latest_epoch: The highest leader epoch that is known already.
        max_timestamp: Largest timestamp so far.
        offset_of_max_timestamp: Last offset of the batch that has it.
        entry_position: Position of the last index entry's batch, negative if before `data`.
        interval_bytes: Least distance of two entries.
        tails: Gets the headers of batches with a producer.

    Raises:
        ValueError: `position` does not lie within `data`.
    """
    end = len(data)
    if not 0 <= position <= end:
        raise ValueError(f"position {position} is not within {end} bytes")
    view = memoryview(data)
    entries: list[IndexEntry] = []
    unpack = HEADER.unpack_from
    while position + HEADER_SIZE <= end:
        (
            base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta, _,
            timestamp, producer_id, _, _, _,
        ) = unpack(view, position)  # fmt: skip
        batch_end = position + length + LOG_OVERHEAD
        if (
            magic != CURRENT_MAGIC
            or length < _MIN_LENGTH
            or batch_end > end
            or base_offset != next_offset
            or not 0 <= last_offset_delta <= last_allowed_offset - base_offset
            or (producer_id >= 0 and attributes & _IN_TRANSACTION)
            or leader_epoch > latest_epoch
            or crc32c(view[position + ATTRIBUTES_POSITION : batch_end]) != crc
        ):
            break
        if producer_id >= 0:
            tails.note(producer_id, bytes(view[position : position + HEADER_SIZE]))
        last_offset = base_offset + last_offset_delta
        if timestamp > max_timestamp:
            max_timestamp, offset_of_max_timestamp = timestamp, last_offset
        if position - entry_position > interval_bytes:
            entries.append((last_offset, position, max_timestamp, offset_of_max_timestamp))
            entry_position = position
        next_offset = last_offset + 1
        position = batch_end
    return position, next_offset, max_timestamp, offset_of_max_timestamp, entry_position, entries
