"""DescribeTopicPartitions, page by page, and ListConfigResources."""

import pytest

from odradek.broker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from odradek.broker.handlers.list_config_resources import handle_list_config_resources
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from odradek.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture

Page = tuple[list[tuple[str | None, list[int]]], tuple[str, int] | None]


def ask(
    broker: BrokerFixture,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
) -> DescribeTopicPartitionsResponse:
    message = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(
        handle_describe_topic_partitions,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        message,
        0,
        DescribeTopicPartitionsResponse,
    )


def page(response: DescribeTopicPartitionsResponse) -> Page:
    cursor = response.next_cursor
    return (
        [(row.name, [p.partition_index for p in row.partitions]) for row in response.topics],
        None if cursor is None else (cursor.topic_name, cursor.partition_index),
    )


@pytest.fixture
def broker() -> BrokerFixture:
    fixture = BrokerFixture()
    for number, (name, count) in enumerate([("c", 2), ("a", 3), ("b", 1)], start=1):
        fixture.publish_topic(name, count, number=number)
    return fixture


def test_everything_sorted_by_name(broker: BrokerFixture) -> None:
    answer = ask(broker)
    assert page(answer) == ([("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1])], None)
    row = answer.topics[0]
    assert (row.error_code, row.topic_id[-1], row.is_internal) == (0, 2, False)
    # READ 3 to DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11.
    assert row.topic_authorized_operations == 0b1101_1111_1000
    first = row.partitions[0]
    assert (first.leader_id, first.leader_epoch, first.replica_nodes) == (0, 0, (0,))
    assert (first.eligible_leader_replicas, first.last_known_elr) == ((), ())


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_join_to_the_whole(broker: BrokerFixture, limit: int) -> None:
    told: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(7):
        rows, cursor = page(ask(broker, limit=limit, cursor=cursor))
        count = sum(len(partitions) for _, partitions in rows)
        assert 0 < count <= limit
        told += [(name, number) for name, partitions in rows for number in partitions]
        if cursor is None:
            break
        assert count == limit
    assert told == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]


def test_a_page_that_ends_with_a_topic_names_the_next_one(broker: BrokerFixture) -> None:
    assert page(ask(broker, limit=3)) == ([("a", [0, 1, 2])], ("b", 0))


def test_the_brokers_limit_counts_too_and_one_is_the_least() -> None:
    broker = BrokerFixture(max_described_partitions=2)
    broker.publish_topic("a", 3)
    assert page(ask(broker)) == ([("a", [0, 1])], ("a", 2))
    assert page(ask(broker, limit=-5)) == ([("a", [0])], ("a", 1))


def test_a_cursor_whose_topic_is_gone_goes_on_behind_it(broker: BrokerFixture) -> None:
    assert page(ask(broker, cursor=("aa", 7))) == ([("b", [0]), ("c", [0, 1])], None)


def test_topics_that_are_not_there(broker: BrokerFixture) -> None:
    answer = ask(broker, "zz", "b", "no name!", "b")
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("b", ErrorCode.NONE),
        ("no name!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_cursors_that_mean_nothing(broker: BrokerFixture, cursor: tuple[str, int]) -> None:
    answer = ask(broker, "a", "c", cursor=cursor)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("c", ErrorCode.INVALID_REQUEST),
    ]


def resources(
    broker: BrokerFixture, *types: int, version: int = 1
) -> tuple[int, list[tuple[int, str]]]:
    answer = broker.ask(
        handle_list_config_resources,
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesRequest(resource_types=types),
        version,
        ListConfigResourcesResponse,
    )
    rows = [(row.resource_type, row.resource_name) for row in answer.config_resources]
    return answer.error_code, rows


def test_all_that_has_settings(broker: BrokerFixture) -> None:
    broker.publish_brokers(0, 3)
    broker.publish_configs(ConfigResourceType.GROUP, "g", {"a": "1"})
    assert resources(broker) == (
        0,
        [(2, "a"), (2, "b"), (2, "c"), (4, "0"), (4, "3"), (8, "0"), (8, "3"), (32, "g")],
    )
    assert resources(broker, 32, 4) == (0, [(4, "0"), (4, "3"), (32, "g")])


def test_version_0_is_client_metrics_only(broker: BrokerFixture) -> None:
    assert resources(broker, version=0) == (0, [])
    broker.publish_configs(ConfigResourceType.CLIENT_METRICS, "m", {"a": "1"})
    assert resources(broker, version=0) == (0, [(16, "m")])


def test_a_type_nobody_knows(broker: BrokerFixture) -> None:
    assert resources(broker, 2, 5) == (ErrorCode.UNSUPPORTED_VERSION, [])
