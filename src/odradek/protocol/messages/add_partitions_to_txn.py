"""AddPartitionsToTxn (key 24): partitions join a transaction."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AddPartitionsToTxnPartitionResult",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnResult",
    "AddPartitionsToTxnTopic",
    "AddPartitionsToTxnTopicResult",
    "AddPartitionsToTxnTransaction",
]


class AddPartitionsToTxnTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = wire(STRING, "4+")
    producer_id: int = wire(INT64, "4+")
    producer_epoch: int = wire(INT16, "4+")
    verify_only: bool = wire(BOOL, "4+")
    topics: Sequence[AddPartitionsToTxnTopic] = wire(array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Message, versions="0-5", flexible="3+"):
    """0-3 come from clients, 4 and later from brokers that verify or add for them."""

    # 2: may be answered PRODUCER_FENCED.
    # 3: flexible.
    # 4: several transactions, or a check without adding (KIP-890).
    # 5: may be answered TRANSACTION_ABORTABLE.

    transactions: Sequence[AddPartitionsToTxnTransaction] = wire(
        array(AddPartitionsToTxnTransaction), "4+"
    )
    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = wire(
        array(AddPartitionsToTxnTopic), "0-3"
    )


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = wire(INT32)
    partition_error_code: int = wire(INT16)


class AddPartitionsToTxnTopicResult(Message):
    name: str = wire(STRING)
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = wire(
        array(AddPartitionsToTxnPartitionResult)
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str = wire(STRING, "4+")
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = wire(
        array(AddPartitionsToTxnTopicResult), "4+"
    )


class AddPartitionsToTxnResponse(Message, versions="0-5", flexible="3+"):
    """An error per partition."""

    # 3: flexible.
    # 4: per transaction, and an error for all.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, "4+", ignorable=True)
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = wire(
        array(AddPartitionsToTxnResult), "4+"
    )
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = wire(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
