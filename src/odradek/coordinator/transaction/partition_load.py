"""Loading and unloading the transactional ids of one partition of `__transaction_state`.

The last record of an id counts. A value that cannot be read is skipped and logged, and so is the
state before it: that state is not the present one, and to finish a transaction from it could abort
what was committed. The id is unknown then, and its producer begins anew. Transactions that were
decided are finished once the partition is served: their markers are sent again.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from odradek.coordinator.transaction.records import (
    TransactionRecord,
    UnknownKeyVersionError,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.coordinator.transaction.registry import TransactionRegistry
from odradek.coordinator.transaction.state import TransactionState
from odradek.coordinator.transaction.transaction import StatePartition, TransactionalId
from odradek.errors import DecodeError
from odradek.records.batch import BatchHeader

__all__ = ["TRANSACTIONS_TOPIC", "TransactionLoad"]

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC: Final = "__transaction_state"


class TransactionLoad:
    """The load of one partition; `odradek.coordinator.loading.Replay`.

    Args:
        number: The partition.
        leader_epoch: The epoch in which it is led.
        registry: Receives its ids.
        finish: Called for each transaction that is decided, once it is served.
    """

    def __init__(
        self,
        number: int,
        leader_epoch: int,
        registry: TransactionRegistry,
        finish: Callable[[TransactionalId], None],
    ) -> None:
        self._number = number
        self._leader_epoch = leader_epoch
        self._registry = registry
        self._finish = finish
        self._records: dict[str, TransactionRecord] = {}
        self._later_key_count = 0
        self._partition = StatePartition(number, leader_epoch, {})

    def replay(
        self,
        key: bytes | None,
        value: bytes | None,
        offset: int,  # noqa: ARG002 - the last one counts, wherever it is
        header: BatchHeader,  # noqa: ARG002 - as above
    ) -> None:
        if key is None:
            raise DecodeError("a record without a key")
        try:
            transactional_id = parse_transaction_key(key)
        except UnknownKeyVersionError:
            self._later_key_count += 1
            return
        self._records.pop(transactional_id, None)
        if value is None:
            return
        record = parse_transaction_value(value)
        if record.state is not TransactionState.DEAD:
            self._records[transactional_id] = record

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Ignored: no transaction of a producer includes this topic."""

    def prepare(self) -> Iterable[object]:
        if self._later_key_count:
            logger.warning(
                "%s-%d: %d records with keys of another version are skipped: they are of a later"
                " format", TRANSACTIONS_TOPIC, self._number, self._later_key_count,
            )  # fmt: skip
        partition = self._partition
        while self._records:
            transactional_id, record = self._records.popitem()
            transaction = TransactionalId(transactional_id, record, partition)
            partition.transactions[transactional_id] = transaction
            partition.note(transaction)
            yield transaction

    def install(self) -> None:
        self._registry.install(self._partition)

    def settle(self) -> Iterable[object]:
        for transaction in tuple(self._partition.transactions.values()):
            if self._partition.is_loaded and transaction.is_prepared:
                self._finish(transaction)
            yield transaction

    def unload(self) -> None:
        self._registry.remove(self._number)
