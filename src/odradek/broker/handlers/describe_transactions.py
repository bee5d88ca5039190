"""DescribeTransactions: state, producer and partitions of transactional ids."""

from collections.abc import Generator

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_describe_transactions"]


@in_slices
def handle_describe_transactions(request: Request, context: BrokerContext) -> Steps:
    """Answers from memory; topics that the client may not describe are left out."""
    message = body_of(DescribeTransactionsRequest, request)
    rows: list[TransactionState] = []
    for transactional_id in dict.fromkeys(message.transactional_ids):
        rows.append((yield from _describe(request, transactional_id, context)))
        yield
    response = DescribeTransactionsResponse(transaction_states=rows)
    return (yield from reply_in_slices(request, response, context))


def _describe(
    request: Request, transactional_id: str, context: BrokerContext
) -> Generator[None, None, TransactionState]:
    may = context.authorizer
    if not is_allowed(
        may, request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert context.transactions is not None, "given to every broker that serves requests"
    record = context.transactions.describe(transactional_id)
    if isinstance(record, ErrorCode):
        return _failed(transactional_id, record)
    topics = []
    for topic in sorted(record.by_topic):
        if is_allowed(may, request, Operation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.append(TopicData(topic=topic, partitions=sorted(record.by_topic[topic])))
        yield
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=record.state.title,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=topics,
    )


def _failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)
