"""The states of a transactional producer, and the meaning of errors in a transaction. Pure.

==============  ====================================================================================
UNINITIALIZED   `init_transactions` was not called yet
INITIALIZING    it was, and has not succeeded yet
READY           no transaction is open
OPEN            records and offsets can be sent
FLUSHING        a commit was asked for; records are still on their way
DECIDED         the commit was sent to the coordinator; nothing but its answer is missing
ABORTABLE       something failed: the transaction can only be aborted
ABORTING        an abort was asked for, and has not succeeded yet
WRITING         the producer writes under a ticket, in the transaction of another producer
FATAL           nothing is possible any more
==============  ====================================================================================

`TABLE` has every legal step. A call that is not in it raises: in FATAL, and after a failure where
the call would have gone on with the transaction, the failure itself; else `TransactionStateError`.

Example: READY, begin → OPEN, a batch fails → ABORTABLE. Now send, send_offsets and commit raise the
`AbortableTransactionError`; begin is a `TransactionStateError`; abort → ABORTING, ended → READY.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from odradek.client.producer.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    TransactionStateError,
)
from odradek.errors import ApiError, ErrorCode, OdradekError

__all__ = ["TABLE", "Step", "TransactionProgress", "TransactionStage", "decide_failure"]


class TransactionStage(Enum):
    """See the module's docstring. The value completes "the producer is …"."""

    UNINITIALIZED = "not initialized: call init_transactions first"
    INITIALIZING = "not initialized yet: call init_transactions again"
    READY = "in no transaction"
    OPEN = "in a transaction"
    FLUSHING = "about to commit: call commit_transaction again, or abort_transaction"
    DECIDED = "committing: call commit_transaction again"
    ABORTABLE = "in a transaction that has failed: call abort_transaction"
    ABORTING = "aborting: call abort_transaction again"
    WRITING = "writing under a ticket: only the owner of the transaction can do that"
    FATAL = "at its end: close it"


class Step(Enum):
    """A call of the application, or an event."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets"
    TICKET = "ticket"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    INITIALIZED = "the end of init_transactions"
    DECIDE = "the request to commit"
    ENDED = "the end of the transaction"
    FAIL = "a failure"
    FAIL_FOR_GOOD = "a fatal failure"


_LEGAL: Final = {
    TransactionStage.UNINITIALIZED: {
        Step.INIT: TransactionStage.INITIALIZING,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.INITIALIZING: {
        Step.INIT: TransactionStage.INITIALIZING,
        Step.INITIALIZED: TransactionStage.READY,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.READY: {
        Step.BEGIN: TransactionStage.OPEN,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.OPEN: {
        Step.SEND: TransactionStage.OPEN,
        Step.SEND_OFFSETS: TransactionStage.OPEN,
        Step.TICKET: TransactionStage.OPEN,
        Step.COMMIT: TransactionStage.FLUSHING,
        Step.ABORT: TransactionStage.ABORTING,
        Step.FAIL: TransactionStage.ABORTABLE,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.FLUSHING: {
        Step.COMMIT: TransactionStage.FLUSHING,
        Step.DECIDE: TransactionStage.DECIDED,
        Step.ENDED: TransactionStage.READY,
        Step.ABORT: TransactionStage.ABORTING,
        Step.FAIL: TransactionStage.ABORTABLE,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.DECIDED: {
        Step.COMMIT: TransactionStage.DECIDED,
        Step.DECIDE: TransactionStage.DECIDED,
        Step.ENDED: TransactionStage.READY,
        Step.FAIL: TransactionStage.ABORTABLE,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.ABORTABLE: {
        Step.ABORT: TransactionStage.ABORTING,
        Step.FAIL: TransactionStage.ABORTABLE,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.ABORTING: {
        Step.ABORT: TransactionStage.ABORTING,
        Step.ENDED: TransactionStage.READY,
        Step.FAIL: TransactionStage.ABORTING,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.WRITING: {
        Step.SEND: TransactionStage.WRITING,
        Step.FAIL: TransactionStage.FATAL,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
    TransactionStage.FATAL: {
        Step.FAIL: TransactionStage.FATAL,
        Step.FAIL_FOR_GOOD: TransactionStage.FATAL,
    },
}
TABLE: Final[Mapping[tuple[TransactionStage, Step], TransactionStage]] = MappingProxyType(
    {(state, step): after for state, steps in _LEGAL.items() for step, after in steps.items()}
)
# Calls that would go on with a transaction that has failed.
_GOES_ON: Final = frozenset(
    {
        Step.SEND,
        Step.SEND_OFFSETS,
        Step.TICKET,
        Step.COMMIT,
    }
)


class TransactionProgress:
    """The state, and the failure that led to it, if one did."""

    __slots__ = ("failure", "now")

    def __init__(self, start: TransactionStage = TransactionStage.UNINITIALIZED) -> None:
        self.now = start
        self.failure: ApiError | None = None

    def take(self, step: Step) -> None:
        """Takes a step.

        Raises:
            ApiError: The failure, see the module's docstring.
            TransactionStateError: The call is illegal in this state.
        """
        self.now = self._after(step)
        if self.now is TransactionStage.READY:
            self.failure = None

    def check(self, step: Step) -> None:
        """Checks that a step can be taken, and takes it not.

        Raises:
            As `take`.
        """
        self._after(step)

    def _after(self, step: Step) -> TransactionStage:
        after = TABLE.get((self.now, step))
        if after is not None:
            return after
        if self.failure is not None and (self.now is TransactionStage.FATAL or step in _GOES_ON):
            raise self.failure
        raise TransactionStateError(step.value, self.now.value) from self.failure

    def fail(self, failure: ApiError) -> None:
        """Takes note of a failure, made by `decide_failure`; the first of a transaction stays."""
        is_fatal = isinstance(failure, FatalTransactionError)
        before = self.now
        self.take(Step.FAIL_FOR_GOOD if is_fatal else Step.FAIL)
        if self.failure is None or (is_fatal and before is not TransactionStage.FATAL):
            self.failure = failure

    def raise_failure(self) -> None:
        """Raises the failure, if there is one."""
        if self.failure is not None:
            raise self.failure


_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# Of any request: the producer, its settings or the cluster would have to be others.
_FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.INVALID_REQUEST,
    }
)


def decide_failure(
    error: OdradekError, transactional_id: str, *, is_from_coordinator: bool
) -> ApiError:
    """Decides whether an error, after all attempts, ends the transaction or the producer.

    Args:
        is_from_coordinator: Whether the coordinator of the transaction answered with it: then
            INVALID_TXN_STATE means that it and the producer disagree. The leader of a partition
            answers so if the partition is not in the transaction, which an abort repairs.
    """
    if isinstance(error, AbortableTransactionError | FatalTransactionError):
        return error
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code in _FENCED:
        failure: ApiError = ProducerFencedError(transactional_id)
    elif code in _FATAL or (code is ErrorCode.INVALID_TXN_STATE and is_from_coordinator):
        failure = FatalTransactionError(code, f"this producer cannot go on, close it: {error}")
    else:
        failure = AbortableTransactionError(code, f"the transaction has to be aborted: {error}")
    failure.__cause__ = error
    return failure
