"""The tables of 10 sections 9.2, 9.3, 9.6 and 9.9, row by row."""

from dataclasses import replace

import pytest

from odradek.coordinator.transaction import decisions
from odradek.coordinator.transaction.decisions import (
    NEEDS_PRODUCER_ID,
    Answer,
    ProducerIdentity,
)
from odradek.coordinator.transaction.records import TransactionRecord
from odradek.coordinator.transaction.state import VALID_PREVIOUS, TransactionState
from odradek.coordinator.transaction.transaction import StatePartition, TransactionalId, Transition
from odradek.errors import ErrorCode, InvariantViolation

S = TransactionState
NOW = 1_000_000
HOME = StatePartition(0, 0, {})
T0 = {"t": frozenset({0})}
PID = 4000
NEW_PID = 5000
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE


def made(
    state: TransactionState = S.EMPTY,
    *,
    epoch: int = 3,
    last_epoch: int = -1,
    previous_id: int = PID,
    next_id: int = -1,
    producer_id: int = PID,
) -> TransactionalId:
    has_partitions = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    transaction = TransactionalId(
        "tx",
        TransactionRecord(
            producer_id=producer_id,
            producer_epoch=epoch,
            timeout_ms=60_000,
            state=state,
            by_topic=T0 if has_partitions else {},
            last_update_ms=NOW - 10,
            start_ms=NOW - 20 if has_partitions else -1,
            previous_producer_id=previous_id,
            next_producer_id=next_id,
        ),
        HOME,
    )
    transaction.last_producer_epoch = last_epoch
    return transaction


def identity(decided: object) -> tuple[TransactionState, int, int]:
    assert isinstance(decided, Transition), decided
    return decided.record.state, decided.record.producer_id, decided.record.producer_epoch


def error(decided: object) -> ErrorCode:
    assert isinstance(decided, Answer), decided
    return decided.error


# InitProducerId, 9.3


def init(
    transaction: TransactionalId, given: tuple[int, int] | None = None, new_id: int | None = None
) -> object:
    return decisions.init_producer_id(
        transaction,
        timeout_ms=30_000,
        given=None if given is None else ProducerIdentity(*given),
        now_ms=NOW,
        new_producer_id=new_id,
        transaction_version=2,
    )


def test_an_unknown_id_gets_a_new_producer_id_with_epoch_0() -> None:
    unknown = TransactionalId("tx", None, HOME)
    assert init(unknown) is NEEDS_PRODUCER_ID
    assert identity(init(unknown, new_id=NEW_PID)) == (S.EMPTY, NEW_PID, 0)
    assert identity(init(unknown, (77, 5), NEW_PID)) == (S.EMPTY, NEW_PID, 0)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_producer_that_starts_gets_the_next_epoch(state: TransactionState) -> None:
    decided = init(made(state, last_epoch=2))
    assert identity(decided) == (S.EMPTY, PID, 4)
    assert isinstance(decided, Transition)
    assert (decided.last_producer_epoch, decided.record.timeout_ms) == (-1, 30_000)
    assert (decided.record.start_ms, decided.record.partitions) == (-1, ())


def test_a_producer_that_continues_gets_the_next_epoch_and_may_ask_again() -> None:
    decided = init(made(epoch=3), (PID, 3))
    assert identity(decided) == (S.EMPTY, PID, 4)
    assert isinstance(decided, Transition)
    assert decided.last_producer_epoch == 3
    transaction = made(epoch=4, last_epoch=3)
    for _ in range(2):
        again = init(transaction, (PID, 3))
        assert identity(again) == (S.EMPTY, PID, 4)
        transaction.begin(again)  # type: ignore[arg-type]  # checked above
        transaction.apply()


@pytest.mark.parametrize(
    ("given", "last_epoch"),
    [
        ((PID, 2), -1),
        ((PID, 2), 1),
        ((PID, 5), -1),
        ((PID, -1), -1),
        ((9, 3), -1),
        ((PID, 32767), 2),
    ],
)
def test_other_epochs_and_ids_are_fenced(given: tuple[int, int], last_epoch: int) -> None:
    assert error(init(made(last_epoch=last_epoch), given)) is FENCED


def test_an_exhausted_id_is_replaced() -> None:
    """10:TX-14."""
    for given in (None, (PID, 32766)):
        exhausted = made(S.COMPLETE_COMMIT, epoch=32766)
        assert init(exhausted, given) is NEEDS_PRODUCER_ID
        decided = init(exhausted, given, NEW_PID)
        assert identity(decided) == (S.EMPTY, NEW_PID, 0)
        assert isinstance(decided, Transition)
        assert decided.record.previous_producer_id == PID
        assert decided.last_producer_epoch == (-1 if given is None else 32766)


def test_an_exhausted_id_is_replaced_once_however_often_its_producer_asks() -> None:
    transaction = made(epoch=0, producer_id=NEW_PID, previous_id=PID, last_epoch=32766)
    for _ in range(2):
        decided = init(transaction, (PID, 32766))
        assert identity(decided) == (S.EMPTY, NEW_PID, 0)
        transaction.begin(decided)  # type: ignore[arg-type]  # checked above
        transaction.apply()
    assert error(init(transaction, (PID, 32765))) is FENCED


def test_a_fenced_epoch_32767_is_never_given_to_a_producer() -> None:
    fenced = made(S.COMPLETE_ABORT, epoch=32767)
    assert init(fenced) is NEEDS_PRODUCER_ID
    assert error(init(fenced, (PID, 32766))) is FENCED


def test_the_epoch_that_only_fences_begins_and_ends_nothing() -> None:
    """A client may claim it; a transaction in it could not be fenced, nor its record be written."""
    fenced = made(S.COMPLETE_ABORT, epoch=32767)
    producer = ProducerIdentity(PID, 32767)
    added = decisions.add_partitions(fenced, producer, T0, now_ms=NOW, transaction_version=2)
    assert error(added) is FENCED
    ended = end(fenced, (PID, 32767), is_commit=False, gets_epoch=True, new_id=NEW_PID)
    assert error(ended) is FENCED


def test_an_open_transaction_in_the_highest_epoch_is_aborted_in_it() -> None:
    """Another broker may have written it; the abort of what timed out goes on."""
    transaction = made(S.ONGOING, epoch=32767)
    decided = decisions.fence(transaction, now_ms=NOW, transaction_version=2)
    assert identity(decided) == (S.PREPARE_ABORT, PID, 32767)


def test_an_open_transaction_is_aborted_in_a_higher_epoch() -> None:
    """10:TX-4, its first half."""
    for given in (None, (PID, 3)):
        decided = init(made(S.ONGOING), given)
        assert identity(decided) == (S.PREPARE_ABORT, PID, 4)
        assert isinstance(decided, Transition)
        assert (decided.last_producer_epoch, decided.record.by_topic) == (-1, T0)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_a_decided_transaction_has_to_end_first(state: TransactionState) -> None:
    assert error(init(made(state))) is CONCURRENT
    assert error(init(made(state), (9, 0))) is FENCED


# Adding, 9.4


def add(transaction: TransactionalId | None, producer: tuple[int, int] = (PID, 3)) -> object:
    return decisions.add_partitions(
        transaction, ProducerIdentity(*producer), {"u": frozenset({1})}, now_ms=NOW,
        transaction_version=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("transaction", "producer", "expected"),
    [
        (None, (PID, 3), MAPPING),
        (made(), (9, 3), MAPPING),
        (made(), (PID, 2), FENCED),
        (made(), (PID, 4), FENCED),
        (made(), (PID, -1), FENCED),
        (made(S.PREPARE_COMMIT), (PID, 3), CONCURRENT),
        (made(S.PREPARE_ABORT), (PID, 3), CONCURRENT),
        (made(S.PREPARE_COMMIT, epoch=32767, next_id=NEW_PID), (NEW_PID, 0), CONCURRENT),
        (made(S.PREPARE_COMMIT, epoch=32767, next_id=NEW_PID), (NEW_PID, 1), MAPPING),
        (TransactionalId("tx", None, HOME), (PID, 3), CONCURRENT),
    ],
)
def test_partitions_are_refused(
    transaction: TransactionalId | None, producer: tuple[int, int], expected: ErrorCode
) -> None:
    assert error(add(transaction, producer)) is expected
    verified = decisions.verify(transaction, ProducerIdentity(*producer))
    assert verified is expected


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    decided = add(made(state))
    assert isinstance(decided, Transition)
    record = decided.record
    assert (record.state, record.start_ms, record.by_topic) == (
        S.ONGOING, NOW, {"u": frozenset({1})},
    )  # fmt: skip


def test_further_partitions_join_it_and_known_ones_cost_nothing() -> None:
    transaction = made(S.ONGOING)
    decided = add(transaction)
    assert isinstance(decided, Transition)
    assert decided.record.by_topic == {**T0, "u": frozenset({1})}
    assert decided.record.start_ms == NOW - 20
    transaction.begin(decided)
    assert error(add(transaction)) is CONCURRENT
    transaction.apply()
    assert add(transaction) == Answer(ErrorCode.NONE)


# EndTxn, 9.6 and 9.9


def end(
    transaction: TransactionalId | None,
    producer: tuple[int, int],
    *,
    is_commit: bool,
    gets_epoch: bool,
    new_id: int | None = None,
) -> object:
    return decisions.end(
        transaction,
        ProducerIdentity(*producer),
        is_commit=is_commit,
        gets_epoch=gets_epoch,
        now_ms=NOW,
        new_producer_id=new_id,
    )


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT),
        (S.PREPARE_COMMIT, CONCURRENT, INVALID),
        (S.PREPARE_ABORT, INVALID, CONCURRENT),
        (S.COMPLETE_COMMIT, ErrorCode.NONE, INVALID),
        (S.COMPLETE_ABORT, INVALID, ErrorCode.NONE),
        (S.EMPTY, INVALID, INVALID),
    ],
)
def test_the_ends_before_version_2(state: TransactionState, commit: object, abort: object) -> None:
    """10:TX-9 and 10:TX-10 are rows of it; 15:KAFKA-9600: of the epochs only the stored one."""
    for is_commit, expected in ((True, commit), (False, abort)):
        decided = end(made(state), (PID, 3), is_commit=is_commit, gets_epoch=False)
        if isinstance(expected, TransactionState):
            assert identity(decided) == (expected, PID, 3)
        else:
            assert error(decided) is expected
        for producer, refusal in (((9, 3), MAPPING), ((PID, 2), FENCED), ((PID, 4), FENCED)):
            assert error(end(made(state), producer, is_commit=is_commit, gets_epoch=False)) is (
                refusal
            )


DONE = ErrorCode.NONE
NOW_EPOCH, AGAIN, OTHER, HIGHER = (PID, 3), (PID, 2), (PID, 1), (PID, 4)


@pytest.mark.parametrize(
    ("state", "commit_now", "abort_now", "commit_again", "abort_again"),
    [
        (S.EMPTY, INVALID, S.PREPARE_ABORT, FENCED, FENCED),
        (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, FENCED, FENCED),
        (S.PREPARE_COMMIT, FENCED, FENCED, CONCURRENT, INVALID),
        (S.PREPARE_ABORT, FENCED, FENCED, INVALID, CONCURRENT),
        (S.COMPLETE_COMMIT, INVALID, S.PREPARE_ABORT, DONE, INVALID),
        (S.COMPLETE_ABORT, INVALID, S.PREPARE_ABORT, INVALID, DONE),
    ],
)
def test_the_ends_of_version_2(
    state: TransactionState,
    commit_now: object,
    abort_now: object,
    commit_again: object,
    abort_again: object,
) -> None:
    """10 section 9.9, the table of EndTxn 5; 15:KAFKA-9600: higher epochs are others, too."""
    for producer, is_commit, expected in (
        (NOW_EPOCH, True, commit_now),
        (NOW_EPOCH, False, abort_now),
        (AGAIN, True, commit_again),
        (AGAIN, False, abort_again),
        (OTHER, True, FENCED),
        (OTHER, False, FENCED),
        (HIGHER, True, FENCED),
        (HIGHER, False, FENCED),
        ((9, 3), True, MAPPING),
        ((9, 2), False, MAPPING),
    ):
        decided = end(made(state), producer, is_commit=is_commit, gets_epoch=True)
        if isinstance(expected, TransactionState):
            assert identity(decided) == (expected, PID, 4)
            assert isinstance(decided, Transition)
            assert decided.last_producer_epoch == 3
            assert decided.record.client_transaction_version == 2
            assert decided.record.by_topic == (T0 if state is S.ONGOING else {})
        else:
            assert error(decided) is expected
            if expected is DONE:
                assert decided == Answer(DONE, ProducerIdentity(PID, 3))


def test_the_last_epoch_ends_its_transaction_and_a_new_id_follows() -> None:
    transaction = made(S.ONGOING, epoch=32766)
    ask = {"is_commit": True, "gets_epoch": True}
    assert end(transaction, (PID, 32766), **ask) is NEEDS_PRODUCER_ID
    decided = end(transaction, (PID, 32766), **ask, new_id=NEW_PID)
    assert identity(decided) == (S.PREPARE_COMMIT, PID, 32767)
    assert isinstance(decided, Transition)
    assert decisions.identity_after(decided.record) == (NEW_PID, 0)
    transaction.begin(decided)
    assert error(end(transaction, (NEW_PID, 0), is_commit=False, gets_epoch=True)) is CONCURRENT
    transaction.apply()
    assert error(end(transaction, (PID, 32766), **ask)) is CONCURRENT
    transaction.begin(decisions.complete(transaction, now_ms=NOW))
    transaction.apply()
    assert transaction.record is not None
    assert (transaction.record.producer_id, transaction.record.producer_epoch) == (NEW_PID, 0)
    again = end(transaction, (PID, 32766), **ask)
    assert again == Answer(DONE, ProducerIdentity(NEW_PID, 0))
    assert error(end(transaction, (PID, 32765), **ask)) is MAPPING


def test_a_transition_under_way_answers_before_id_and_epoch() -> None:
    transaction = made(S.ONGOING)
    transaction.begin(decisions.fence(transaction, now_ms=NOW, transaction_version=2))
    for gets_epoch in (False, True):
        for producer in ((PID, 3), (9, 9)):
            decided = end(transaction, producer, is_commit=True, gets_epoch=gets_epoch)
            assert error(decided) is CONCURRENT
    assert error(init(transaction, (9, 9))) is CONCURRENT
    assert error(end(None, (PID, 3), is_commit=True, gets_epoch=True)) is MAPPING


# Deadlines


def test_a_fence_raises_the_epoch_and_is_the_same_after_a_failed_append() -> None:
    transaction = made(S.ONGOING, epoch=32766)
    first = decisions.fence(transaction, now_ms=NOW, transaction_version=0)
    transaction.begin(first)
    transaction.cancel()
    assert decisions.fence(transaction, now_ms=NOW, transaction_version=0) == first
    assert identity(first) == (S.PREPARE_ABORT, PID, 32767)


def test_timing_out_and_expiry() -> None:
    assert not decisions.is_timed_out(made(S.ONGOING), NOW - 20 + 60_000)
    assert decisions.is_timed_out(made(S.ONGOING), NOW - 20 + 60_001)
    assert not decisions.is_timed_out(made(S.PREPARE_ABORT), NOW * 2)
    for state in TransactionState:
        is_idle = state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        assert decisions.is_expired(made(state), NOW, 10) is is_idle
        assert not decisions.is_expired(made(state), NOW, 11)


@pytest.mark.parametrize("wanted", list(TransactionState))
@pytest.mark.parametrize("found", list(TransactionState))
def test_only_transitions_of_the_table_are_made(
    found: TransactionState, wanted: TransactionState
) -> None:
    transaction = made(found)
    assert transaction.record is not None
    transition = Transition(replace(transaction.record, state=wanted))
    if found in VALID_PREVIOUS[wanted]:
        transaction.begin(transition)
        assert transaction.pending is transition
    else:
        with pytest.raises(InvariantViolation, match=wanted.name):
            transaction.begin(transition)
