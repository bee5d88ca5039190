"""The table of states, and the meaning of errors in a transaction."""

import pytest

from odradek.client.producer.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from odradek.client.producer.transaction_states import (
    TABLE,
    Step,
    TransactionProgress,
    TransactionStage,
    decide_failure,
)
from odradek.errors import ApiError, ErrorCode, OdradekError

CALLS = [
    Step.INIT, Step.BEGIN, Step.SEND, Step.SEND_OFFSETS, Step.TICKET, Step.COMMIT, Step.ABORT,
]  # fmt: skip
# The calls that the application may make in each state.
POSSIBLE = {
    TransactionStage.UNINITIALIZED: {Step.INIT},
    TransactionStage.INITIALIZING: {Step.INIT},
    TransactionStage.READY: {Step.BEGIN},
    TransactionStage.OPEN: {
        Step.SEND,
        Step.SEND_OFFSETS,
        Step.TICKET,
        Step.COMMIT,
        Step.ABORT,
    },
    TransactionStage.FLUSHING: {Step.COMMIT, Step.ABORT},
    TransactionStage.DECIDED: {Step.COMMIT},
    TransactionStage.ABORTABLE: {Step.ABORT},
    TransactionStage.ABORTING: {Step.ABORT},
    TransactionStage.WRITING: {Step.SEND},
    TransactionStage.FATAL: set[Step](),
}


@pytest.mark.parametrize("state", TransactionStage)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_taken_or_refused_by_name(state: TransactionStage, call: Step) -> None:
    """10:TX-9: a commit after an abort, and every other pair."""
    now = TransactionProgress(state)
    if call in POSSIBLE[state]:
        now.take(call)
        assert now.now is TABLE[state, call]
        return
    with pytest.raises(TransactionStateError) as error:
        now.take(call)
    assert call.value in str(error.value)
    assert state.value in str(error.value)
    assert now.now is state


@pytest.mark.parametrize("state", TransactionStage)
def test_every_state_has_a_way_to_its_end(state: TransactionStage) -> None:
    """10:TX-1: from each the producer gets back to READY, or it is at its end."""
    reached, waiting = {state}, [state]
    while waiting:
        before = waiting.pop()
        for (start, _), after in TABLE.items():
            if start is before and after not in reached:
                reached.add(after)
                waiting.append(after)

    assert TransactionStage.FATAL in reached
    assert (TransactionStage.READY in reached) is (
        state not in {TransactionStage.FATAL, TransactionStage.WRITING}
    )


def abortable(text: str = "why") -> AbortableTransactionError:
    return AbortableTransactionError(ErrorCode.TRANSACTION_ABORTABLE, text)


def test_a_failed_transaction_raises_its_first_reason_until_it_is_aborted() -> None:
    """10:TX-2."""
    state = TransactionProgress(TransactionStage.OPEN)
    state.fail(abortable("the first"))
    state.fail(abortable("the second"))

    for call in (
        Step.SEND,
        Step.SEND_OFFSETS,
        Step.COMMIT,
        Step.TICKET,
    ):
        with pytest.raises(AbortableTransactionError, match="the first"):
            state.take(call)
    with pytest.raises(TransactionStateError) as error:
        state.take(Step.BEGIN)
    assert error.value.__cause__ is state.failure
    state.take(Step.ABORT)
    state.take(Step.ENDED)
    assert state.now is TransactionStage.READY
    state.raise_failure()


def test_a_fatal_failure_is_raised_by_every_call() -> None:
    """10:TX-4: also after another one."""
    state = TransactionProgress(TransactionStage.OPEN)
    state.fail(abortable())
    state.fail(ProducerFencedError("tx"))
    state.fail(abortable())

    for call in CALLS:
        with pytest.raises(ProducerFencedError):
            state.take(call)
    assert state.now is TransactionStage.FATAL


def decide(error: OdradekError, *, is_from_coordinator: bool = True) -> ApiError:
    return decide_failure(error, "tx", is_from_coordinator=is_from_coordinator)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.INVALID_TXN_STATE, FatalTransactionError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FatalTransactionError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, FatalTransactionError),
        (ErrorCode.UNSUPPORTED_VERSION, FatalTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
        (ErrorCode.REQUEST_TIMED_OUT, AbortableTransactionError),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, AbortableTransactionError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, AbortableTransactionError),
        (ErrorCode.ILLEGAL_GENERATION, AbortableTransactionError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AbortableTransactionError),
        (ErrorCode.MESSAGE_TOO_LARGE, AbortableTransactionError),
    ],
)
def test_what_an_error_ends(code: ErrorCode, expected: type[ApiError]) -> None:
    """10:TX-4, 10:TX-11: the transaction, or the producer."""
    cause = ApiError(code, "the cause")
    failure = decide(cause)

    assert type(failure) is expected
    assert failure.__cause__ is cause
    assert expected is ProducerFencedError or (failure.code is code and "the cause" in str(failure))


def test_a_leader_that_knows_no_transaction_ends_the_transaction_alone() -> None:
    """10:TX-11: 48 of a Produce below version 11."""
    failure = decide(ApiError(ErrorCode.INVALID_TXN_STATE), is_from_coordinator=False)

    assert type(failure) is AbortableTransactionError


def test_a_failure_of_a_transaction_stays_what_it_is() -> None:
    """10:TX-2; and an error without a code can be aborted."""
    failure = TransactionAbortedError("why")

    assert decide(failure) is failure
    assert type(decide(OdradekError("no code"))) is AbortableTransactionError
