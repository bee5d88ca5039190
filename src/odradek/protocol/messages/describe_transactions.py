"""DescribeTransactions (key 65): transactions by transactional id. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "TopicData",
    "TransactionState",
]


class DescribeTransactionsRequest(Message, versions="0", flexible="0+"):
    """Ids to describe."""

    transactional_ids: Sequence[str] = wire(array(STRING))


class TopicData(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class TransactionState(Message):
    error_code: int = wire(INT16)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING)
    transaction_timeout_ms: int = wire(INT32)
    transaction_start_time_ms: int = wire(INT64)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    topics: Sequence[TopicData] = wire(array(TopicData))


class DescribeTransactionsResponse(Message, versions="0", flexible="0+"):
    """State, timeout and partitions per id."""

    throttle_time_ms: int = wire(INT32)
    transaction_states: Sequence[TransactionState] = wire(array(TransactionState))
