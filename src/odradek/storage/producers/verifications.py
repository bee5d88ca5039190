"""Transactions that are verified with their coordinator before their first batch (KIP-890).

A batch that is late, behind the marker of its transaction, would open a transaction that no
coordinator knows, and readers of committed records would wait for its end for ever (KAFKA-12671).
So the first batch of a producer's transaction here needs a `Verification`::

    begin ──► (asking the coordinator) ──► confirm ──► the batch is appended   ──► forgotten
      │                                                a marker is appended    ──► forgotten
      └─ later batches that wait share it              it is idle for too long ──► forgotten

A marker ends it, whatever the coordinator has answered meanwhile: the answer was about the
transaction before the marker, and `confirm` finds that its verification is not the present one. As
long as it is the present one, the coordinator's transaction includes this partition, and cannot end
without a marker here.

It remembers the lowest sequence that it was begun with: if the first of several batches could not
be verified, none of the later ones may be appended before it.
"""

from typing import final

from odradek.errors import ApiError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import BatchHeader
from odradek.storage.producers.entry import ProducerEntry

__all__ = [
    "MAX_VERIFICATIONS",
    "Verification",
    "VerificationSwitch",
    "Verifications",
    "is_first_of_transaction",
]

# Of one partition; beyond it the oldest is dropped, and its batch is sent again. A hundred times as
# many as producers that begin a transaction at the same moment, and some hundred kilobytes.
MAX_VERIFICATIONS = 1_000

_NOT_VERIFIED = -1


def is_first_of_transaction(
    header: BatchHeader, entry: ProducerEntry | None, *, is_sequenced: bool
) -> bool:
    """Whether a transactional batch of a producer would open a transaction.

    A client's repetition would not: it is answered with what is stored.
    """
    if entry is None or entry.producer_epoch != header.producer_epoch:
        return True
    if entry.current_transaction_first_offset is not None:
        return False
    return not is_sequenced or entry.find_batch(header.base_sequence, header.last_sequence) is None


@final
class VerificationSwitch:
    """Whether transactions are verified before their first batch; shared by the logs of a broker.

    Attributes:
        is_on: May change at any time. A batch whose verification is under way is appended either
            way; one that was not verified while the switch was off is sent again by its client.
    """

    __slots__ = ("is_on",)

    def __init__(self, *, is_on: bool = False) -> None:
        self.is_on = is_on


class Verification:
    """The verification of one producer's transaction in one partition."""

    __slots__ = (
        "began_ms",
        "begins_at_zero",
        "lowest_sequence",
        "producer_epoch",
        "verified_epoch",
        "waiting_count",
    )

    def __init__(
        self, producer_epoch: int, sequence: int, now_ms: int, *, begins_at_zero: bool
    ) -> None:
        self.producer_epoch = producer_epoch
        # Of the batches that wait for it, in that epoch.
        self.lowest_sequence = sequence
        self.began_ms = now_ms
        # Whether each transaction has an epoch of its own, so that a producer that is not known
        # here can only be at its first batch.
        self.begins_at_zero = begins_at_zero
        self.verified_epoch = _NOT_VERIFIED
        self.waiting_count = 0  # Batches whose question is not answered.

    def is_unproven_above(self, epoch: int) -> bool:
        """Whether a client claimed a higher epoch, and no coordinator has confirmed or will."""
        return (
            self.producer_epoch > epoch
            and self.verified_epoch == _NOT_VERIFIED
            and not self.waiting_count
        )


class Verifications:
    """The verifications of one partition, by producer id."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[int, Verification] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(self, header: BatchHeader, now_ms: int, *, begins_at_zero: bool) -> Verification:
        """The verification that a batch needs; it may be under way for an earlier one."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = self._pending.get(producer_id)
        if known is None or known.producer_epoch < epoch or known.is_unproven_above(epoch):
            self._pending.pop(producer_id, None)
            if len(self._pending) >= MAX_VERIFICATIONS:
                del self._pending[next(iter(self._pending))]
            known = Verification(epoch, header.base_sequence, now_ms, begins_at_zero=begins_at_zero)
            self._pending[producer_id] = known
        elif known.producer_epoch == epoch:
            known.lowest_sequence = min(known.lowest_sequence, header.base_sequence)
            known.begins_at_zero |= begins_at_zero
        known.waiting_count += 1
        return known

    def confirm(self, producer_id: int, producer_epoch: int, verification: Verification) -> bool:
        """Notes that the coordinator's transaction includes this partition.

        Returns False, without an effect, if the verification is over.
        """
        verification.waiting_count -= 1
        if (
            self._pending.get(producer_id) is not verification
            or verification.producer_epoch != producer_epoch
        ):
            return False
        verification.verified_epoch = producer_epoch
        return True

    def refuse(self, producer_id: int, verification: Verification, *, is_final: bool) -> None:
        """Notes that the coordinator did not confirm a batch.

        Args:
            producer_id: Of the batch.
            verification: What it waited for.
            is_final: Whether the batch will not come again. Then a sequence that perhaps was not
                its producer's does not count for others.
        """
        verification.waiting_count -= 1
        if (
            is_final
            and not verification.waiting_count
            and verification.verified_epoch == _NOT_VERIFIED
            and self._pending.get(producer_id) is verification
        ):
            del self._pending[producer_id]

    def check(
        self,
        topic_partition: TopicPartition,
        header: BatchHeader,
        entry: ProducerEntry | None,
        origin: AppendOrigin,
    ) -> None:
        """Checks a transactional batch, if it is the first of its transaction.

        Args:
            topic_partition: For messages.
            header: The batch.
            entry: What is known of its producer.
            origin: The writer. Only a client's sequences count.

        Raises:
            ApiError: 48 if it is not verified, 45 if an earlier batch is missing.
        """
        is_client = origin is AppendOrigin.CLIENT
        if origin is AppendOrigin.REPLICATION or not is_first_of_transaction(
            header, entry, is_sequenced=is_client
        ):
            return
        verification = self._pending.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if verification is None or verification.verified_epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{topic_partition}: producer {header.producer_id} epoch {epoch} has no open"
                " transaction, and its coordinator has not verified one",
            )
        lowest = verification.lowest_sequence
        if verification.begins_at_zero and entry is None:
            lowest = 0
        if is_client and sequence > lowest:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{topic_partition}: expected sequence {lowest} or a lower one as the first of"
                f" producer {header.producer_id} epoch {epoch} in a transaction, found {sequence}",
            )

    def forget(self, producer_id: int) -> None:
        """Ends a verification: its transaction is open now, or over."""
        if self._pending:
            self._pending.pop(producer_id, None)

    def forget_before(self, time_ms: int) -> None:
        """Ends the verifications that began before a time."""
        old = [key for key, value in self._pending.items() if value.began_ms < time_ms]
        for producer_id in old:
            del self._pending[producer_id]
