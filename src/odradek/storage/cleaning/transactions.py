"""Transactions in a pass of compaction: which data is dropped, which markers are obsolete.

A pass reads batches in the order of their offsets and asks two questions:

| batch                | question              | answer                                           |
|----------------------|-----------------------|--------------------------------------------------|
| data, transactional  | was it aborted?       | the aborted transactions are known beforehand    |
| marker               | is its transaction    | yes if the pass read no batch of it, not even an |
|                      | empty?                | empty one                                        |

A marker stays as long as a batch of its transaction does: without it the transaction would seem to
be open. One object is used for a whole pass, since a transaction may begin in one group of segments
and end in another (KAFKA-8351).
"""

import heapq
from collections.abc import Iterable

from odradek.records.batch import BatchHeader, Buffer
from odradek.records.control import ControlType, parse_end_transaction_marker
from odradek.storage.indexes.transaction_index import AbortedTransaction

__all__ = ["CleanedTransactions"]


class _Aborted:
    """An aborted transaction whose marker was not read yet."""

    __slots__ = ("has_data", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_data = False


class CleanedTransactions:
    """The state of one pass.

    Args:
        aborted: Every aborted transaction with batches in the segments of the pass.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "_kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # By first offset: the batches of a transaction begin there and not earlier.
        self._coming = [(t.first_offset, t.producer_id, t) for t in dict.fromkeys(aborted)]
        heapq.heapify(self._coming)
        self._aborted: dict[int, _Aborted] = {}
        # Producers of which the pass read data that will be committed.
        self._committed: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Registers a batch of data. Returns whether its transaction was aborted.

        Batches outside of transactions need not be registered.
        """
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.has_data = True
        return True

    def is_marker_of_nothing(self, header: BatchHeader, batch: Buffer) -> bool:
        """Registers a control batch. Returns whether no batch of its transaction is left.

        False for control batches that end no transaction, True for one without records.

        Raises:
            InvalidRecordError: The marker is malformed.
        """
        self._advance(header.last_offset)
        if header.record_count == 0:
            return True
        marker = parse_end_transaction_marker(batch, header=header)
        if marker is None:
            return False
        if marker.control_type is ControlType.COMMIT:
            was_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_met
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted is None or not aborted.has_data:
            return True
        self._kept.append(aborted.transaction)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Aborted transactions with data whose markers were read since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, producer_id, transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(producer_id, _Aborted(transaction))
