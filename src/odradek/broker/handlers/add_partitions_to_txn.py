"""AddPartitionsToTxn: partitions join a transaction, or a leader asks whether they have.

Clients send versions 0 to 3, with one transaction. From version 4 on leaders send it, for several
clients at once: to add the partitions a client produces to (`transaction.version` 2), or to verify
that a client has added them. Of a transaction with a partition that does not exist, or that the
client may not write to, nothing is added, nor of one with more than `MAX_ELEMENTS` at once.
"""

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.authorization import check_is_peer, is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import (
    Gathering,
    Steps,
    StepsOrNone,
    body_of,
    in_slices,
    reply_in_slices,
    start_in_slices,
)
from odradek.coordinator.transaction.decisions import EPOCH_PER_TRANSACTION, ProducerIdentity
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.primitives import MAX_ELEMENTS
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_add_partitions_to_txn"]

_FIRST_FENCED_VERSION: Final = 2
_FIRST_BROKER_VERSION: Final = 4
_PARTITIONS_PER_STEP: Final = 50
_NONE: Final = ErrorCode.NONE

# Errors by topic and partition.
_Errors = dict[str, dict[int, ErrorCode]]


@in_slices
def handle_add_partitions_to_txn(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when every transaction durably includes its partitions."""
    message = body_of(AddPartitionsToTxnRequest, request)
    is_from_client = request.header.api_version < _FIRST_BROKER_VERSION
    transactions = message.transactions
    if is_from_client:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=message.v3_and_below_transactional_id,
                producer_id=message.v3_and_below_producer_id,
                producer_epoch=message.v3_and_below_producer_epoch,
                topics=message.v3_and_below_topics,
            )
        ]
    else:
        try:
            check_is_peer(request, context)
        except ApiError as denial:
            response = AddPartitionsToTxnResponse(error_code=denial.code)
            return (yield from reply_in_slices(request, response, context))
    outcomes: list[_Errors] = [{} for _ in transactions]
    gathering = Gathering(
        lambda: start_in_slices(request, _answer(request, transactions, outcomes, context), context)
    )
    for transaction, errors in zip(transactions, outcomes, strict=True):
        gathering.begin()
        yield from _add(request, transaction, errors, gathering, context)
        yield
    gathering.end()
    return None


def _add(
    request: Request,
    transaction: AddPartitionsToTxnTransaction,
    errors: _Errors,
    gathering: Gathering,
    context: BrokerContext,
) -> Generator[None, None, None]:
    """Begins to add the partitions of one transaction; fills in their errors."""
    coordinator = context.transactions
    assert coordinator is not None, "given to every broker that serves requests"
    is_from_client = request.header.api_version < _FIRST_BROKER_VERSION
    transactional_id = transaction.transactional_id
    yield from _list_partitions(transaction.topics, errors)
    if is_from_client and not is_allowed(
        context.authorizer, request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID,
        transactional_id,
    ):  # fmt: skip
        _set_all(errors, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        gathering.end()
        return
    if (yield from _refuse(request, errors, context, checks_rights=is_from_client)):
        gathering.end()
        return
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        for topic, numbers in errors.items():
            found = coordinator.verify(
                transactional_id, producer, [TopicPartition(topic, number) for number in numbers]
            )
            numbers.update((tp.partition, error) for tp, error in found.items())
            yield
        gathering.end()
        return

    def on_added(error: ErrorCode) -> None:
        _set_all(errors, _for_version(error, request))
        gathering.end()

    coordinator.begin_adding(
        transactional_id,
        producer,
        {topic: frozenset(numbers) for topic, numbers in errors.items()},
        on_added,
        transaction_version=0 if is_from_client else EPOCH_PER_TRANSACTION,
    )


def _list_partitions(
    topics: Sequence[AddPartitionsToTxnTopic], errors: _Errors
) -> Generator[None, None, None]:
    for topic in topics:
        numbers = errors.setdefault(topic.name, {})
        for start in range(0, len(topic.partitions), _PARTITIONS_PER_STEP):
            part = topic.partitions[start : start + _PARTITIONS_PER_STEP]
            numbers.update(dict.fromkeys(part, _NONE))
            yield
        yield


def _refuse(
    request: Request, errors: _Errors, context: BrokerContext, *, checks_rights: bool
) -> Generator[None, None, bool]:
    """Finds partitions that cannot be added; if there are any, none is, and the result is true."""
    may_write = partial(
        is_allowed, context.authorizer, request, Operation.WRITE, ResourceType.TOPIC
    )
    topics = context.cache.image.topics
    is_refused = False
    for topic, numbers in errors.items():
        image = topics.get(topic)
        if checks_rights and not may_write(topic):
            numbers.update(dict.fromkeys(numbers, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            is_refused = True
        else:
            known: Mapping[int, object] = {} if image is None else image.partitions
            for count, number in enumerate(numbers):
                if number not in known:
                    numbers[number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    is_refused = True
                if count % _PARTITIONS_PER_STEP == 0:
                    yield
        yield
    if not is_refused and sum(map(len, errors.values())) > MAX_ELEMENTS:
        # The record of its transaction is made in one step.
        _set_all(errors, ErrorCode.INVALID_REQUEST)
        return True
    if is_refused:
        for numbers in errors.values():
            for count, (number, error) in enumerate(numbers.items()):
                if error is _NONE:
                    numbers[number] = ErrorCode.OPERATION_NOT_ATTEMPTED
                if count % _PARTITIONS_PER_STEP == 0:
                    yield
    return is_refused


def _set_all(errors: _Errors, error: ErrorCode) -> None:
    for topic, numbers in errors.items():
        errors[topic] = dict.fromkeys(numbers, error)


def _for_version(error: ErrorCode, request: Request) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and request.header.api_version < _FIRST_FENCED_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _answer(
    request: Request,
    transactions: Sequence[AddPartitionsToTxnTransaction],
    outcomes: Sequence[_Errors],
    context: BrokerContext,
) -> Steps:
    rows = []
    for transaction, errors in zip(transactions, outcomes, strict=True):
        topics = yield from _topic_rows(errors)
        rows.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=topics
            )
        )
        yield
    if request.header.api_version < _FIRST_BROKER_VERSION:
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows[0].topic_results)
    else:
        response = AddPartitionsToTxnResponse(results_by_transaction=rows)
    return (yield from reply_in_slices(request, response, context))


def _topic_rows(
    errors: _Errors,
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    rows = []
    for topic, numbers in errors.items():
        results = []
        for count, (number, error) in enumerate(numbers.items()):
            results.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=error
                )
            )
            if count % _PARTITIONS_PER_STEP == 0:
                yield
        rows.append(AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results))
    return rows
