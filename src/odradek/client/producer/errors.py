"""The errors of transactions. What to do follows from the class.

::

    ApiError
    ├── AbortableTransactionError     abort the transaction; then begin it again
    │   └── TransactionAbortedError   of a record: not delivered, its transaction is aborted
    ├── FatalTransactionError         close the producer; only another one can go on
    │   └── ProducerFencedError       another producer has the transactional id now
    └── RequestTimedOutError
        └── CallTimeoutError
            └── RetriableTransactionError  make the same call again
    OdradekError
    └── TransactionStateError         a call at the wrong time; also a RuntimeError
"""

from odradek.client.errors import CallTimeoutError
from odradek.errors import ApiError, ErrorCode, OdradekError

__all__ = [
    "AbortableTransactionError",
    "FatalTransactionError",
    "ProducerFencedError",
    "RetriableTransactionError",
    "TransactionAbortedError",
    "TransactionStateError",
]


class AbortableTransactionError(ApiError):
    """The transaction cannot be committed any more: abort it, and begin again if it makes sense."""


class TransactionAbortedError(AbortableTransactionError):
    """A record was not delivered: its transaction is aborted, for the reason in the message."""

    def __init__(self, reason: object) -> None:
        super().__init__(
            ErrorCode.TRANSACTION_ABORTABLE,
            f"not delivered, because the transaction is aborted: {reason}",
        )


class FatalTransactionError(ApiError):
    """The producer can do nothing more; close it."""


class ProducerFencedError(FatalTransactionError):
    """The producer's epoch is over; the cluster accepts nothing from it any more."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"this producer is fenced: another one has begun with transactional.id "
            f"{transactional_id!r}, or the coordinator has aborted the transaction because it was "
            "open for longer than transaction.timeout.ms; close this producer",
        )


class RetriableTransactionError(CallTimeoutError):
    """The call has not succeeded in its time, and its outcome is unknown; make it again."""


class TransactionStateError(OdradekError, RuntimeError):
    """A call that the state of the producer's transaction does not allow."""

    def __init__(self, call: str, state: str) -> None:
        super().__init__(f"{call} is not possible now: the producer is {state}")
        self.call = call
        self.state = state
