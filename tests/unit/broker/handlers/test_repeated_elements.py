"""An element that a request names twice costs once (02 section 12)."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import (
    delete_records,
    describe_configs,
    describe_groups,
    describe_producers,
    find_coordinator,
    list_offsets,
    metadata,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
)
from odradek.protocol.schema import Message
from odradek.testing import ManualClock
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, parsed, topic_id

TIMES = 500
TOPIC, BROKER = 2, 4


class Case(NamedTuple):
    key: ApiKey
    version: int
    request: Callable[[int], Message]  # With everything in it so many times.
    response: type[Message]
    rows: Callable[[Any], int]  # How many rows the answer has.


def partitions_of(answer: Any) -> int:
    return sum(len(topic.partitions) for topic in answer.topics)


def offset_fetch_request(times: int) -> Message:
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1] * times)
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic, topic])
    return offset_fetch.OffsetFetchRequest(groups=[group] * 3)


CASES = [
    Case(
        ApiKey.OFFSET_FETCH,
        9,
        offset_fetch_request,
        offset_fetch.OffsetFetchResponse,
        lambda answer: sum(partitions_of(group) for group in answer.groups),
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        7,
        lambda times: offset_fetch.OffsetFetchRequest(
            group_id="g",
            topics=[offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            * times,
        ),
        offset_fetch.OffsetFetchResponse,
        partitions_of,
    ),
    Case(
        ApiKey.METADATA,
        12,
        lambda times: metadata.MetadataRequest(
            topics=[
                metadata.MetadataRequestTopic(topic_id=topic_id(number).bytes, name=None)
                for number in (1, 2)
            ]
            * times
        ),
        metadata.MetadataResponse,
        lambda answer: len(answer.topics),
    ),
    Case(
        ApiKey.METADATA,
        9,
        lambda times: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in ("t", "nowhere")] * times,
            allow_auto_topic_creation=False,
        ),
        metadata.MetadataResponse,
        lambda answer: len(answer.topics),
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda times: describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(resource_type=BROKER, resource_name="0"),
                describe_configs.DescribeConfigsResource(resource_type=TOPIC, resource_name="t"),
            ]
            * times
        ),
        describe_configs.DescribeConfigsResponse,
        lambda answer: len(answer.results),
    ),
    Case(
        ApiKey.DESCRIBE_GROUPS,
        5,
        lambda times: describe_groups.DescribeGroupsRequest(groups=["g", "h"] * times),
        describe_groups.DescribeGroupsResponse,
        lambda answer: len(answer.groups),
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        lambda times: find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h"] * times),
        find_coordinator.FindCoordinatorResponse,
        lambda answer: len(answer.coordinators),
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda times: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="t", partition_indexes=[0, 1])] * times
        ),
        describe_producers.DescribeProducersResponse,
        partitions_of,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        3,
        lambda times: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderPartition(
                            partition=number, leader_epoch=0
                        )
                        for number in (0, 1)
                    ]
                    * times,
                )
            ]
        ),
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        partitions_of,
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        2,
        lambda times: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="nowhere",
                    partitions=[
                        delete_records.DeleteRecordsPartition(partition_index=number, offset=0)
                        for number in (0, 1)
                    ],
                )
            ]
            * times,
            timeout_ms=0,
        ),
        delete_records.DeleteRecordsResponse,
        partitions_of,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.key.name}-{case.version}")
def test_an_element_that_comes_twice_is_answered_once(case: Case) -> None:
    broker = BrokerFixture()
    broker.publish_topic("t", 2)
    broker.coordination.lead_all()
    request = broker.request(case.key, case.request(TIMES), case.version)
    response = broker.call(HANDLERS[case.key], request) or broker.sent.pop()
    assert case.rows(parsed(response, case.response)) == 2


def test_offsets_of_a_partition_that_comes_twice_are_refused() -> None:
    """As Kafka does; nothing is looked up for it."""
    broker = BrokerFixture()
    row = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=1)
    other = list_offsets.ListOffsetsPartition(partition_index=1, timestamp=1)
    topics = [list_offsets.ListOffsetsTopic(name="t", partitions=[row, other, row])]
    answer = broker.ask(
        HANDLERS[ApiKey.LIST_OFFSETS],
        ApiKey.LIST_OFFSETS,
        list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics),
        6,
        list_offsets.ListOffsetsResponse,
    )
    [topic] = answer.topics
    assert [row.error_code for row in topic.partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]


def test_settings_that_are_asked_for_in_parts_are_told_together() -> None:
    broker = BrokerFixture()
    broker.publish_topic("t")

    def asked(keys: list[str] | None) -> describe_configs.DescribeConfigsResource:
        return describe_configs.DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=keys
        )

    def names(*resources: describe_configs.DescribeConfigsResource) -> set[str]:
        answer = broker.ask(
            HANDLERS[ApiKey.DESCRIBE_CONFIGS],
            ApiKey.DESCRIBE_CONFIGS,
            describe_configs.DescribeConfigsRequest(resources=list(resources)),
            4,
            describe_configs.DescribeConfigsResponse,
        )
        [result] = answer.results
        return {row.name for row in result.configs}

    both = names(asked(["retention.ms"]), asked(["cleanup.policy"]))
    assert both == {"retention.ms", "cleanup.policy"}
    assert names(asked(["retention.ms"]), asked(None)) == names(asked(None))


class TickingClock(ManualClock):
    """Each look at it takes a millisecond."""

    def monotonic_ns(self) -> int:
        self.advance(1)
        return super().monotonic_ns()


# Of the loop, one slice each: the elements of the request are merged first.
TURNS_UNTIL_OFFSETS_ARE_READ = 7


def test_a_group_that_moves_amid_an_answer_does_not_look_empty() -> None:
    """07 section 5.1: the client would begin somewhere else."""
    broker = BrokerFixture()
    broker.coordination.lead_all()
    registry = broker.coordination.registry
    group = registry.get_or_create("g")
    topic = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(500)))
    row = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    message = offset_fetch.OffsetFetchRequest(groups=[row])
    request = broker.request(ApiKey.OFFSET_FETCH, message, 9)
    context = dataclasses.replace(broker.context, clock=TickingClock())
    assert HANDLERS[ApiKey.OFFSET_FETCH](request, context) is None

    async def main() -> None:
        serving = asyncio.ensure_future(broker.tasks.run_all())
        for _ in range(TURNS_UNTIL_OFFSETS_ARE_READ):
            await asyncio.sleep(0)
        registry.remove_partition(group.partition)
        await serving

    asyncio.run(main())
    answer = broker.last_sent(offset_fetch.OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_deleted_offsets_are_answered_once() -> None:
    broker = BrokerFixture()
    broker.publish_topic("t")
    broker.coordination.lead_all()
    broker.coordination.registry.get_or_create("g")
    rows = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)] * TIMES
    topics = [offset_delete.OffsetDeleteRequestTopic(name="t", partitions=rows)] * 2
    message = offset_delete.OffsetDeleteRequest(group_id="g", topics=topics)
    broker.call(HANDLERS[ApiKey.OFFSET_DELETE], broker.request(ApiKey.OFFSET_DELETE, message, 0))
    assert partitions_of(broker.last_sent(offset_delete.OffsetDeleteResponse)) == 1
