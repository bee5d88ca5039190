"""OffsetCommit and OffsetFetch 10: topics by their ids."""

import uuid
from typing import Any

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.security.operations import ResourceType
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, topic_id
from tests.unit.broker.handlers.test_group_handlers import (
    Denying,
    ask,
    commit_request,
    committed,
    served,
)


def commit_by_id(*rows: tuple[uuid.UUID, int, int]) -> OffsetCommitRequest:
    """A commit outside of a group, by (topic id, partition, offset)."""
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                topic_id=topic.bytes,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for topic, partition, offset in rows
        ],
    )


def test_commits_by_id() -> None:
    """16:CG-1, 16:CG-82: an unknown id is refused alone, the rest goes on."""
    broker = served()
    t, gone, other = topic_id(1), topic_id(77), topic_id(78)
    message = commit_by_id((t, 0, 5), (gone, 0, 6), (t, 7, 1), (other, 2, 8), (t, 2, 9))
    answer = ask(broker, ApiKey.OFFSET_COMMIT, message, 10)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert [
        (topic.topic_id, row.partition_index, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    ] == [
        (t.bytes, 0, 0),
        (gone.bytes, 0, unknown),
        (t.bytes, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (other.bytes, 2, unknown),
        (t.bytes, 2, 0),
    ]
    assert committed(broker) == {("t", 0): 5, ("t", 2): 9}


def test_only_unknown_ids_store_nothing() -> None:
    broker = served()
    answer = ask(broker, ApiKey.OFFSET_COMMIT, commit_by_id((topic_id(77), 0, 6)), 10)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert "g" not in broker.coordination.registry.groups


def test_a_commit_by_id_to_a_topic_that_may_not_be_read() -> None:
    broker = served(authorizer=Denying(ResourceType.TOPIC))
    answer = ask(broker, ApiKey.OFFSET_COMMIT, commit_by_id((topic_id(1), 0, 6)), 10)
    [topic] = answer.topics
    assert topic.topic_id == topic_id(1).bytes
    assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def fetch_by_id(
    broker: BrokerFixture, *wanted: tuple[uuid.UUID, list[int]], everything: bool = False
) -> Any:
    topics = [
        OffsetFetchRequestTopics(topic_id=topic.bytes, partition_indexes=numbers)
        for topic, numbers in wanted
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=None if everything else topics)
    [row] = ask(broker, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[group]), 10).groups
    assert row.error_code == 0
    return [
        (topic.topic_id, each.partition_index, each.committed_offset, each.error_code)
        for topic in row.topics
        for each in topic.partitions
    ]


def test_offsets_by_id() -> None:
    """16:CG-1; what is gone cannot be told of by id, and is left out of "everything"."""
    broker = served()
    broker.publish_topic("u", number=2)
    ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5, u_0=6), 9)
    t, u, gone = topic_id(1), topic_id(2), topic_id(77)
    found = [(t.bytes, 0, 5, 0), (t.bytes, 1, -1, 0)]
    assert fetch_by_id(broker, (gone, [0]), (t, [0, 1]), (u, [0])) == [
        (gone.bytes, 0, -1, ErrorCode.UNKNOWN_TOPIC_ID),
        *found,
        (u.bytes, 0, 6, 0),
    ]
    everything = [(t.bytes, 0, 5, 0), (u.bytes, 0, 6, 0)]
    assert sorted(fetch_by_id(broker, everything=True)) == everything
    broker.remove_topic("u")
    assert fetch_by_id(broker, everything=True) == everything[:1]
