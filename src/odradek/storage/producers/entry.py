"""The state of one producer in one partition, and the arithmetic of its sequence numbers.

Sequence numbers are int32 and count records; after 2147483647 comes 0. A batch without sequence
numbers (a coordinator's) has -1, and -1 stays -1.
"""

from collections import deque
from typing import Final, final

from odradek.records.batch import MAX_SEQUENCE

__all__ = [
    "CACHED_BATCH_COUNT",
    "NO_EPOCH",
    "NO_SEQUENCE",
    "CachedBatch",
    "ProducerEntry",
]

NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1

# As many batches as a producer may have in flight on one connection: after a lost reply each of
# them can be sent again, and is then answered with its first offset instead of written twice.
CACHED_BATCH_COUNT: Final = 5


@final
class CachedBatch:
    """The facts about a batch that are needed to recognise and answer its duplicate.

    Replaced, never edited. Not a dataclass: one is made for each batch of an idempotent producer.
    """

    __slots__ = ("last_offset", "last_sequence", "offset_delta", "timestamp")

    def __init__(
        self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta  # Last minus first offset.
        self.timestamp = timestamp  # The batch's largest timestamp, ms.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedBatch) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        return f"CachedBatch{self.values()}"

    def values(self) -> tuple[int, int, int, int]:
        """Last sequence, last offset, offset delta, timestamp."""
        return self.last_sequence, self.last_offset, self.offset_delta, self.timestamp

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        if first >= 0:
            return first
        return NO_SEQUENCE if self.last_sequence < 0 else first + MAX_SEQUENCE + 1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer's state in one partition. Edited by `ProducerStateManager` only."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        last_timestamp: int = -1,
        coordinator_epoch: int = NO_EPOCH,
        current_transaction_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        # Of its newest batch or marker. -1: not known.
        self.producer_epoch = producer_epoch
        # Of its newest batch or marker, ms; expiry is counted from it.
        self.last_timestamp = last_timestamp
        # Of the coordinator that wrote its newest marker. -1: there was none.
        self.coordinator_epoch = coordinator_epoch
        # First offset of its open transaction.
        self.current_transaction_first_offset = current_transaction_first_offset
        # Oldest first. Invariant: all of them were written in `producer_epoch`.
        self.batches: deque[CachedBatch] = deque(maxlen=CACHED_BATCH_COUNT)

    def copy(self) -> "ProducerEntry":
        """An entry that is edited without a change to this one."""
        other = ProducerEntry(
            self.producer_id,
            self.producer_epoch,
            last_timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_transaction_first_offset=self.current_transaction_first_offset,
        )
        other.batches = self.batches.copy()
        return other

    def is_continued_by(self, producer_epoch: int, base_sequence: int) -> bool:
        """Whether the sequence of a batch without a transaction follows that of the newest one.

        Then it is not a duplicate, either: the sequences of five batches never wrap around.
        """
        batches = self.batches
        return (
            producer_epoch == self.producer_epoch
            and len(batches) > 0
            # The mask lets 0 follow the largest sequence.
            and base_sequence == (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            and self.current_transaction_first_offset is None
        )

    def find_batch(self, first_sequence: int, last_sequence: int) -> CachedBatch | None:
        """The cached batch with exactly these sequence numbers."""
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def __repr__(self) -> str:
        return (
            f"ProducerEntry(batches={self.batches!r}, coordinator_epoch={self.coordinator_epoch}, "
            f"current_transaction_first_offset={self.current_transaction_first_offset}, "
            f"last_timestamp={self.last_timestamp}, producer_epoch={self.producer_epoch}, "
            f"producer_id={self.producer_id})"
        )
