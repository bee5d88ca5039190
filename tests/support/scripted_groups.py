"""Answers of a scripted broker to consumers: batches, offsets, and a group of one member."""

from collections.abc import Callable
from typing import Any

from odradek.client.assignors import encode_assignment
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from odradek.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek.protocol.messages.heartbeat import HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from tests.support.scripted_broker import ScriptedBroker, told_topic, topic_id

TP = TopicPartition("t", 0)


def never_answer(_request: Any) -> None:
    """As a broker that has nothing new keeps a fetch waiting."""


def batch(base_offset: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [(1_000, None, value, ()) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=0, codec=codec))


def fetched(records: bytes = b"", *, session_id: int = 0, **fields: Any) -> FetchResponse:
    partition = PartitionData(
        partition_index=0, high_watermark=50, records=records, aborted_transactions=None, **fields
    )
    topic = FetchableTopicResponse(topic_id=topic_id("t"), partitions=[partition])
    return FetchResponse(session_id=session_id, responses=[topic])


def ends(start: int, end: int) -> Callable[[ListOffsetsRequest], ListOffsetsResponse]:
    """Where the log begins and ends."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic = request.topics[0]
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=one.partition_index,
                            offset=start if one.timestamp == -2 else end,
                        )
                        for one in topic.partitions
                    ],
                )
            ]
        )

    return answer


def coordinator_is(error_code: int = 0, *, node_id: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key="g", node_id=node_id, host="127.0.0.1", port=0, error_code=error_code)
        ]
    )


def committed(offset: int, *, leader_epoch: int = -1) -> OffsetFetchResponse:
    one = OffsetFetchResponsePartitions(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata="",
        error_code=0,
    )
    topic = OffsetFetchResponseTopics(name="t", partitions=[one])
    return OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=0)]
    )


def commit_answered(
    code: ErrorCode = ErrorCode.NONE,
) -> Callable[[OffsetCommitRequest], OffsetCommitResponse]:
    def answer(request: OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def joined(
    code: ErrorCode = ErrorCode.NONE, *, generation: int = 1, strategy: str = "range"
) -> JoinGroupResponse:
    """Of a group that somebody else leads."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=generation if code is ErrorCode.NONE else -1,
        protocol_type="consumer",
        protocol_name=strategy,
        leader="somebody",
        member_id="m-1",
        members=(),
    )


def synced(*partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=code,
        protocol_type="consumer",
        protocol_name="range",
        assignment=encode_assignment(partitions),
    )


def script_topic(broker: ScriptedBroker, *fetches: Any) -> None:
    """A topic `t` of one partition, and what fetches of it are answered."""
    broker.topics["t"] = told_topic("t")
    broker.will_answer(ApiKey.FETCH, *fetches)


def script_coordinator(broker: ScriptedBroker, *answers: Any) -> None:
    """The broker looks after group `g`, once it said what it has to say."""
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, 5)  # 6 is for share groups.
    broker.will_answer(ApiKey.FIND_COORDINATOR, *(answers or (coordinator_is(),)))


def script_group(broker: ScriptedBroker, *partitions: TopicPartition) -> None:
    """A group that settles at once and has committed nothing."""
    script_coordinator(broker)
    broker.will_answer(ApiKey.JOIN_GROUP, joined())
    broker.will_answer(ApiKey.SYNC_GROUP, synced(*partitions))
    broker.will_answer(ApiKey.HEARTBEAT, HeartbeatResponse())
    broker.will_answer(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
