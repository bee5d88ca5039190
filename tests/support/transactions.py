"""A scripted broker that is also the coordinator of a transactional id."""

from collections.abc import Sequence

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.support.produced import script
from tests.support.scripted_broker import Answer, ScriptedBroker

__all__ = ["add_partitions", "commit_offsets", "next_epoch", "script_transactions"]


def add_partitions(
    request: AddPartitionsToTxnRequest, *codes: ErrorCode
) -> AddPartitionsToTxnResponse:
    """Adds them, or answers with these codes, one for each partition."""
    left = list(codes)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number,
                        partition_error_code=left.pop(0) if left else ErrorCode.NONE,
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def commit_offsets(
    request: TxnOffsetCommitRequest, code: ErrorCode = ErrorCode.NONE
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def next_epoch(request: EndTxnRequest) -> EndTxnResponse:
    """The answer of version 5, which tells older ones nothing."""
    return EndTxnResponse(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
    )


def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key=key, node_id=0) for key in request.coordinator_keys]
    )


def script_transactions(
    broker: ScriptedBroker,
    *produced: Answer,
    version: int,
    partitions: int = 1,
    **answers: Sequence[Answer],
) -> None:
    """Topic `t` in a cluster with this `transaction.version`.

    Args:
        answers: What the coordinator answers first, by the name of the API; then all succeeds.
    """
    script(broker, *produced, partitions=partitions)
    broker.features = {"transaction.version": version}
    for api_key, success in (
        (ApiKey.FIND_COORDINATOR, find),
        (ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions),
        (ApiKey.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnResponse()),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets),
        (ApiKey.END_TXN, next_epoch),
    ):
        broker.will_answer(api_key, *answers.get(api_key.name.lower(), ()), success)
