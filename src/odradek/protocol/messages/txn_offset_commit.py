"""TxnOffsetCommit (key 28): store a group's position when its transaction commits."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, nullable="0+")


class TxnOffsetCommitRequestTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitRequestPartition] = wire(
        array(TxnOffsetCommitRequestPartition)
    )


class TxnOffsetCommitRequest(Message, versions="0-5", flexible="3+"):
    """Offsets to store, and the member that read up to them."""

    # 2: leader epochs. 3: flexible; member id, generation and instance, to be checked (KIP-447).
    # 4: may be answered TRANSACTION_ABORTABLE.
    # 5: adds the group to the transaction, too, if transaction.version is 2 (KIP-890).

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, "3+", default=-1)
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    topics: Sequence[TxnOffsetCommitRequestTopic] = wire(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


class TxnOffsetCommitResponseTopic(Message):
    name: str = wire(STRING)
    partitions: Sequence[TxnOffsetCommitResponsePartition] = wire(
        array(TxnOffsetCommitResponsePartition)
    )


class TxnOffsetCommitResponse(Message, versions="0-5", flexible="3+"):
    """An error per partition."""

    # 3: flexible.

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TxnOffsetCommitResponseTopic] = wire(array(TxnOffsetCommitResponseTopic))
