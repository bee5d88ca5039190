"""The states of a transaction, as a table. Pure.

::

    EMPTY ◄─ InitProducerId ─┐             (an abort without a transaction, from version 2 on,
      │                      │              leads from the three idle states to PREPARE_ABORT)
      ▼                      │
    ONGOING ── commit ─► PREPARE_COMMIT ── markers written ──► COMPLETE_COMMIT
      └─────── abort ──► PREPARE_ABORT  ── markers written ──► COMPLETE_ABORT

EMPTY and the COMPLETE_… states are idle: the next transaction may begin, and the id may expire. The
COMPLETE_… states still recognise a repeated EndTxn. A transaction is decided when its PREPARE_…
record is durable: from then on any coordinator finishes it with the same result.

A time-out, or another producer of the same id, aborts with the epoch one higher: the producer
before is fenced. Kafka has a state of its own for the moment between the two, PREPARE_EPOCH_FENCE,
that is never stored; here both are one transition.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["IDLE", "PREPARED", "VALID_PREVIOUS", "TransactionState"]


class TransactionState(IntEnum):
    """The number is the one in records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # Being expired: its tombstone is being written.
    PREPARE_EPOCH_FENCE = 7  # Kafka's; never entered here, and never in a record.

    @property
    def title(self) -> str:
        """The name in answers to administrators, as Kafka has it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_S = TransactionState

# No transaction is under way.
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
# Decided, and some markers are not written yet.
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})

# The states that each state is entered from.
VALID_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        _S.EMPTY: IDLE,
        _S.ONGOING: IDLE | {_S.ONGOING},
        _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
        _S.PREPARE_ABORT: IDLE | {_S.ONGOING},
        _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
        _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
        _S.DEAD: IDLE,
        _S.PREPARE_EPOCH_FENCE: frozenset(),
    }
)
