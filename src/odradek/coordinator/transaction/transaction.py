"""One transactional id in memory, and the transitions of its state. Pure.

Rules:

1. A decision never edits the transaction. It returns a `Transition`, whose record is appended; the
   transaction has that state when the record is durable (`apply`), and keeps its state if the
   append fails.
2. At most one transition is under way (`pending`); until it ends, all other requests about the id
   get CONCURRENT_TRANSACTIONS.
"""

from typing import Final, Protocol

from odradek.coordinator.transaction.records import (
    NO_PRODUCER_EPOCH,
    Partitions,
    TransactionRecord,
)
from odradek.coordinator.transaction.state import PREPARED, VALID_PREVIOUS, TransactionState
from odradek.errors import InvariantViolation
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.model import TopicPartition

__all__ = [
    "LAST_EPOCH",
    "NO_PARTITIONS",
    "MarkersUnderWay",
    "Partitions",
    "StatePartition",
    "TransactionalId",
    "Transition",
    "has_partition",
    "has_partitions",
    "is_exhausted",
    "with_partitions",
]

# The highest epoch that a producer gets; the next one fences it.
LAST_EPOCH: Final = 32766
# One object for the million ids that have no partitions.
NO_PARTITIONS: Final[Partitions] = {}


def is_exhausted(producer_epoch: int) -> bool:
    """Whether a producer id has no further epoch for a producer."""
    return producer_epoch >= LAST_EPOCH


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class Transition:
    """The next state of an id."""

    record: TransactionRecord
    # The epoch that this state has replaced at the request of its own producer, which may repeat
    # the request; -1 if there is none. It is not stored.
    last_producer_epoch: int = NO_PRODUCER_EPOCH


class TransactionalId:
    """The state of one transactional id.

    Attributes:
        transactional_id: The id.
        record: The durable state; None if none of its records is durable yet.
        last_producer_epoch: As in `Transition`.
        pending: The transition under way.
        home: The loaded partition of `__transaction_state` that stores it.
    """

    __slots__ = ("home", "last_producer_epoch", "pending", "record", "transactional_id")

    def __init__(
        self, transactional_id: str, record: TransactionRecord | None, home: "StatePartition"
    ) -> None:
        self.transactional_id = transactional_id
        self.record = record
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.pending: Transition | None = None
        self.home = home

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id[:64]}"

    @property
    def is_prepared(self) -> bool:
        """Whether markers are to be written."""
        return self.record is not None and self.record.state in PREPARED

    def begin(self, transition: Transition) -> None:
        """Notes a transition whose record is being appended."""
        assert self.pending is None, "decided while another transition was under way"
        found = None if self.record is None else self.record.state
        wanted = transition.record.state
        if (TransactionState.EMPTY if found is None else found) not in VALID_PREVIOUS[wanted]:
            raise InvariantViolation(f"{self}: {wanted.name} cannot follow {found!r}")
        self.pending = transition

    def apply(self) -> None:
        """The record of the transition under way is durable."""
        assert self.pending is not None, "begun before"
        self.record = self.pending.record
        self.last_producer_epoch = self.pending.last_producer_epoch
        self.pending = None

    def cancel(self) -> None:
        """The record of the transition under way was not written, as far as is known."""
        self.pending = None


class MarkersUnderWay(Protocol):
    """Markers under way."""

    is_cancelled: bool


class StatePartition:
    """A loaded partition of `__transaction_state`.

    Attributes:
        number: Of the partition.
        leader_epoch: In which it was loaded: the coordinator epoch of its markers.
        is_loaded: Whether it is still the one that is served.
        transactions: By transactional id.
        ongoing: Those that have begun and are not decided, as keys.
        deliveries: The markers of those that are decided.
    """

    __slots__ = ("deliveries", "is_loaded", "leader_epoch", "number", "ongoing", "transactions")

    def __init__(
        self, number: int, leader_epoch: int, transactions: dict[str, TransactionalId]
    ) -> None:
        self.number = number
        self.leader_epoch = leader_epoch
        self.is_loaded = True
        self.transactions = transactions
        self.ongoing: dict[TransactionalId, None] = {}
        self.deliveries: dict[TransactionalId, MarkersUnderWay] = {}

    def note(self, transaction: TransactionalId) -> None:
        """Notes a durable state."""
        record = transaction.record
        if record is not None and record.state is TransactionState.ONGOING:
            self.ongoing[transaction] = None
        else:
            self.ongoing.pop(transaction, None)


def with_partitions(found: Partitions, added: Partitions) -> Partitions:
    """The union of two sets of partitions."""
    union = dict(found)
    for topic, numbers in added.items():
        before = union.get(topic)
        union[topic] = numbers if before is None else before | numbers
    return union


def has_partitions(found: Partitions, wanted: Partitions) -> bool:
    """Whether all wanted partitions are among those found."""
    return all(
        (before := found.get(topic)) is not None and numbers <= before
        for topic, numbers in wanted.items()
    )


def has_partition(found: Partitions, tp: TopicPartition) -> bool:
    """Whether a partition is among those found."""
    return tp.partition in found.get(tp.topic, ())
