"""What a request, a deadline or the end of the markers does to a transactional id. Pure.

Each function reads an id (`TransactionalId`) and an event, and returns one of

- a `Transition`, to be made durable; its request is answered then;
- an `Answer`, the answer at once, and nothing changes;
- `NEEDS_PRODUCER_ID`: a new producer id is fetched, and the decision is made again, with it.

Which protocol a client speaks shows in its requests: EndTxn from version 5 on, and partitions that
a broker adds for it, belong to `transaction.version` 2, in which every transaction has an epoch of
its own. A repeated EndTxn is then recognised by the epoch before the stored one ("again"); with the
stored epoch ("now") it is the next transaction's::

    state             commit now    abort now       commit again   abort again     other epoch
    EMPTY             48            PREPARE_ABORT   90             90              90
    ONGOING           PREPARE_…     PREPARE_…       90             90              90
    PREPARE_COMMIT    90            90              51             48              90
    PREPARE_ABORT     90            90              48             51              90
    COMPLETE_COMMIT   48            PREPARE_ABORT   done           48              90
    COMPLETE_ABORT    48            PREPARE_ABORT   48             done            90

(47 INVALID_PRODUCER_EPOCH, 48 INVALID_TXN_STATE, 49 INVALID_PRODUCER_ID_MAPPING,
51 CONCURRENT_TRANSACTIONS, 90 PRODUCER_FENCED, "done" the stored id and epoch.) A transition under
way answers 51 before anything else: it may be the one that gives the client its next id and epoch.
"""

from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from odradek.coordinator.transaction.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TransactionRecord,
)
from odradek.coordinator.transaction.state import IDLE, PREPARED, TransactionState
from odradek.coordinator.transaction.transaction import (
    LAST_EPOCH,
    NO_PARTITIONS,
    Partitions,
    TransactionalId,
    Transition,
    has_partitions,
    is_exhausted,
    with_partitions,
)
from odradek.errors import ErrorCode

__all__ = [
    "EPOCH_PER_TRANSACTION",
    "NEEDS_PRODUCER_ID",
    "Answer",
    "ProducerIdentity",
    "add_partitions",
    "complete",
    "end",
    "expire",
    "fence",
    "identity_after",
    "init_producer_id",
    "is_expired",
    "is_timed_out",
    "verify",
]

_NONE: Final = ErrorCode.NONE
_S: Final = TransactionState
EPOCH_PER_TRANSACTION: Final = 2  # The `transaction.version`.


class _Needs(Enum):
    PRODUCER_ID = "a new producer id"


NEEDS_PRODUCER_ID: Final = _Needs.PRODUCER_ID


class ProducerIdentity(NamedTuple):
    """A producer id and an epoch of it."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Answer(NamedTuple):
    """An answer; the identity is the client's for its next request, if it gets one."""

    error: ErrorCode
    identity: ProducerIdentity = ProducerIdentity()


_Decision: TypeAlias = Transition | Answer

_CONCURRENT: Final = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED: Final = Answer(ErrorCode.PRODUCER_FENCED)
_INVALID_STATE: Final = Answer(ErrorCode.INVALID_TXN_STATE)
_UNKNOWN_ID: Final = Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_DONE: Final = Answer(_NONE)

# InitProducerId


def init_producer_id(
    transaction: TransactionalId,
    *,
    timeout_ms: int,
    given: ProducerIdentity | None,
    now_ms: int,
    new_producer_id: int | None = None,
    transaction_version: int = 0,
) -> _Decision | _Needs:
    """Gives a producer its id and epoch, and fences the producer before it.

    Args:
        transaction: The id; a new one has no record.
        timeout_ms: For its transactions.
        given: The identity that the producer has, from version 3 on; None: it starts.
        now_ms: Wall-clock time.
        new_producer_id: For the second call, after `NEEDS_PRODUCER_ID`.
        transaction_version: That of the cluster.
    """
    if transaction.pending is not None:
        return _CONCURRENT
    record = transaction.record
    if record is None:
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        return Transition(
            TransactionRecord(
                producer_id=new_producer_id,
                producer_epoch=0,
                timeout_ms=timeout_ms,
                state=_S.EMPTY,
                by_topic=NO_PARTITIONS,
                last_update_ms=now_ms,
                previous_producer_id=new_producer_id,
            )
        )
    if given is not None and not _is_of(record, given):
        return _FENCED
    if record.state in PREPARED:
        return _CONCURRENT
    if record.state is _S.ONGOING:
        return fence(transaction, now_ms=now_ms, transaction_version=transaction_version)
    return _next_epoch(transaction, record, timeout_ms, given, now_ms, new_producer_id)


def _is_of(record: TransactionRecord, given: ProducerIdentity) -> bool:
    """Whether an identity is the present one's, or that before the ids were changed."""
    return given.producer_id == record.producer_id or (
        given.producer_id == record.previous_producer_id and is_exhausted(given.producer_epoch)
    )


def _next_epoch(
    transaction: TransactionalId,
    record: TransactionRecord,
    timeout_ms: int,
    given: ProducerIdentity | None,
    now_ms: int,
    new_producer_id: int | None,
) -> _Decision | _Needs:
    last_epoch = NO_PRODUCER_EPOCH
    producer_id, epoch = record.producer_id, record.producer_epoch
    previous_id = producer_id
    if is_exhausted(epoch) and (given is None or given.producer_epoch == epoch):
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        last_epoch = NO_PRODUCER_EPOCH if given is None else epoch
        producer_id, epoch = new_producer_id, 0
    elif given is None:
        epoch += 1
    elif given.producer_epoch == epoch and given.producer_id == producer_id:
        last_epoch, epoch = epoch, epoch + 1
    elif given.producer_epoch == transaction.last_producer_epoch != NO_PRODUCER_EPOCH:
        # Its answer was lost: it gets the same again, also a third time.
        last_epoch, previous_id = given.producer_epoch, record.previous_producer_id
    else:
        return _FENCED
    return Transition(
        replace(
            record,
            state=_S.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=previous_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            by_topic=NO_PARTITIONS,
            start_ms=NO_TIMESTAMP,
            last_update_ms=now_ms,
        ),
        last_epoch,
    )


# AddPartitionsToTxn, AddOffsetsToTxn


def add_partitions(
    transaction: TransactionalId | None,
    producer: ProducerIdentity,
    partitions: Partitions,
    *,
    now_ms: int,
    transaction_version: int,
) -> _Decision:
    """Adds partitions to the transaction, and begins one if none is under way."""
    if transaction is None or transaction.record is None:
        return _UNKNOWN_ID if transaction is None else _CONCURRENT
    refusal = _check_producer(transaction, transaction.record, producer)
    if refusal is not None:
        return refusal
    if producer.producer_epoch > LAST_EPOCH:
        return _FENCED  # It fenced the last producer. None has it, and no epoch could fence it.
    record = transaction.record
    is_ongoing = record.state is _S.ONGOING
    if is_ongoing and has_partitions(record.by_topic, partitions):
        return _DONE
    return Transition(
        replace(
            record,
            state=_S.ONGOING,
            previous_producer_id=record.producer_id,
            by_topic=with_partitions(record.by_topic if is_ongoing else NO_PARTITIONS, partitions),
            start_ms=record.start_ms if is_ongoing else now_ms,
            last_update_ms=now_ms,
            client_transaction_version=transaction_version,
        ),
        transaction.last_producer_epoch,
    )


def verify(
    transaction: TransactionalId | None, producer: ProducerIdentity
) -> ErrorCode | TransactionRecord:
    """Whether a producer may append: the record with its partitions, or the error for all."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.record is None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    refusal = _check_producer(transaction, transaction.record, producer)
    return transaction.record if refusal is None else refusal.error


def _check_producer(
    transaction: TransactionalId, record: TransactionRecord, producer: ProducerIdentity
) -> Answer | None:
    if transaction.pending is not None:
        return _CONCURRENT
    if record.state in PREPARED and producer == (record.next_producer_id, 0):
        return _CONCURRENT  # It has its next id already, from the answer to EndTxn.
    if producer.producer_id != record.producer_id:
        return _UNKNOWN_ID
    if producer.producer_epoch != record.producer_epoch:
        return _FENCED
    return _CONCURRENT if record.state in PREPARED else None


# EndTxn


def end(
    transaction: TransactionalId | None,
    producer: ProducerIdentity,
    *,
    is_commit: bool,
    gets_epoch: bool,
    now_ms: int,
    new_producer_id: int | None = None,
) -> _Decision | _Needs:
    """Commits or aborts the transaction; the answer is given when that is durable.

    Args:
        transaction: The id.
        producer: The identity of the client.
        is_commit: Otherwise the transaction is aborted.
        gets_epoch: Whether the client gets a new epoch with it: EndTxn 5.
        now_ms: Wall-clock time.
        new_producer_id: For the second call, after `NEEDS_PRODUCER_ID`.
    """
    if transaction is None:
        return _UNKNOWN_ID
    record = transaction.record
    if transaction.pending is not None or record is None:
        return _CONCURRENT
    if gets_epoch:
        return _end_with_epoch(record, producer, is_commit, now_ms, new_producer_id)
    if producer.producer_id != record.producer_id:
        return _UNKNOWN_ID
    if producer.producer_epoch != record.producer_epoch:
        return _FENCED
    if record.state is _S.ONGOING:
        return Transition(
            _prepared(record, is_commit=is_commit, now_ms=now_ms), transaction.last_producer_epoch
        )
    return _ended_before(record.state, is_commit=is_commit)


def _ended_before(state: TransactionState, *, is_commit: bool) -> Answer:
    """The answer to an EndTxn for a transaction whose end is decided."""
    if state is (_S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT):
        return _CONCURRENT
    if state is (_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT):
        return _DONE
    return _INVALID_STATE


def _end_with_epoch(
    record: TransactionRecord,
    producer: ProducerIdentity,
    is_commit: bool,
    now_ms: int,
    new_producer_id: int | None,
) -> _Decision | _Needs:
    present = ProducerIdentity(record.producer_id, record.producer_epoch)
    is_again = producer == (present.producer_id, present.producer_epoch - 1) or (
        present.producer_epoch == 0 and producer == (record.previous_producer_id, LAST_EPOCH)
    )
    if producer.producer_id != present.producer_id and not is_again:
        return _UNKNOWN_ID
    state = record.state
    if is_again and state not in (_S.EMPTY, _S.ONGOING):
        answer = _ended_before(state, is_commit=is_commit)
        return Answer(_NONE, present) if answer.error is _NONE else answer
    if producer != present or state in PREPARED or present.producer_epoch > LAST_EPOCH:
        return _FENCED
    if state in IDLE and is_commit:
        return _INVALID_STATE
    next_id = NO_PRODUCER_ID
    if is_exhausted(record.producer_epoch):
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        next_id = new_producer_id
    next_record = _prepared(record, is_commit=is_commit, now_ms=now_ms)
    return Transition(
        replace(
            next_record,
            producer_epoch=record.producer_epoch + 1,
            next_producer_id=next_id,
            by_topic=NO_PARTITIONS if state in IDLE else record.by_topic,
            # Of a transaction without partitions the start was not known.
            start_ms=now_ms if state in IDLE else record.start_ms,
            client_transaction_version=EPOCH_PER_TRANSACTION,
        ),
        record.producer_epoch,
    )


def _prepared(record: TransactionRecord, *, is_commit: bool, now_ms: int) -> TransactionRecord:
    return replace(
        record,
        state=_S.PREPARE_COMMIT if is_commit else _S.PREPARE_ABORT,
        previous_producer_id=record.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )


# Deadlines and markers


def fence(transaction: TransactionalId, *, now_ms: int, transaction_version: int) -> Transition:
    """Aborts a transaction without its producer, which is fenced by a higher epoch.

    After a failed append the same epoch is used again: no producer has it.
    """
    record = transaction.record
    assert record is not None, "only a stored id has a transaction"
    assert record.state is _S.ONGOING, "only a transaction is aborted"
    return Transition(
        replace(
            _prepared(record, is_commit=False, now_ms=now_ms),
            # Whatever is stored: a log that another broker wrote may have the highest epoch.
            producer_epoch=min(record.producer_epoch, LAST_EPOCH) + 1,
            client_transaction_version=transaction_version,
        )
    )


def complete(transaction: TransactionalId, *, now_ms: int) -> Transition:
    """The end of a transaction whose markers are written."""
    record = transaction.record
    assert record is not None, "only a stored id has a transaction"
    assert record.state in PREPARED, "only a decided end is completed"
    is_commit = record.state is _S.PREPARE_COMMIT
    has_next = record.next_producer_id != NO_PRODUCER_ID
    return Transition(
        replace(
            record,
            state=_S.COMPLETE_COMMIT if is_commit else _S.COMPLETE_ABORT,
            producer_id=record.next_producer_id if has_next else record.producer_id,
            producer_epoch=0 if has_next else record.producer_epoch,
            previous_producer_id=record.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            by_topic=NO_PARTITIONS,
            last_update_ms=now_ms,
        ),
        transaction.last_producer_epoch,
    )


def identity_after(record: TransactionRecord) -> ProducerIdentity:
    """The identity of the client after the transaction that this record ends."""
    if record.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(record.next_producer_id, 0)
    return ProducerIdentity(record.producer_id, record.producer_epoch)


def is_timed_out(transaction: TransactionalId, now_ms: int) -> bool:
    """Whether a transaction is open longer than its producer has allowed."""
    record = transaction.record
    return (
        record is not None
        and transaction.pending is None
        and record.state is _S.ONGOING
        and record.start_ms + record.timeout_ms < now_ms
    )


def is_expired(transaction: TransactionalId, now_ms: int, expiration_ms: int) -> bool:
    """Whether an id has not been used for so long that it is forgotten."""
    record = transaction.record
    return (
        record is not None
        and transaction.pending is None
        and record.state in IDLE
        and record.last_update_ms + expiration_ms <= now_ms
    )


def expire(transaction: TransactionalId) -> Transition:
    """The last state of an id, whose record is a tombstone."""
    assert transaction.record is not None, "only stored ids expire"
    return Transition(replace(transaction.record, state=_S.DEAD))
