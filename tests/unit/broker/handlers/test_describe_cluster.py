"""DescribeCluster, FindCoordinator and OffsetFetch: where to turn to."""

import pytest

from odradek.broker.authorization import NOT_ASKED
from odradek.broker.handlers.describe_cluster import handle_describe_cluster
from odradek.broker.handlers.find_coordinator import handle_find_coordinator
from odradek.broker.handlers.offset_fetch import handle_offset_fetch
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.unit.broker.handlers.handler_fakes import CLUSTER_ID, LISTENER, BrokerFixture


def describe(
    broker: BrokerFixture,
    message: DescribeClusterRequest,
    version: int = 1,
    listener: str = LISTENER,
) -> DescribeClusterResponse:
    return broker.ask(
        handle_describe_cluster,
        ApiKey.DESCRIBE_CLUSTER,
        message,
        version,
        DescribeClusterResponse,
        listener=listener,
    )


@pytest.mark.parametrize("version", [0, 1])
def test_the_cluster_on_the_listener_that_was_asked(version: int) -> None:
    broker = BrokerFixture()
    broker.publish_brokers(0, 4)
    answer = describe(broker, DescribeClusterRequest(), version, "EXTERNAL")
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 0)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [
        (0, "x0", 9093),
        (4, "x4", 9093),
    ]
    assert answer.cluster_authorized_operations == NOT_ASKED


def test_authorised_operations_on_request() -> None:
    message = DescribeClusterRequest(include_cluster_authorized_operations=True)
    # CREATE 5, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, both CONFIGS 10 and 11, IDEMPOTENT_WRITE 12.
    assert describe(BrokerFixture(), message).cluster_authorized_operations == 0b1_1111_1010_0000


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_are_told_here(endpoint_type: int, code: ErrorCode) -> None:
    answer = describe(BrokerFixture(), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert (answer.error_code, answer.brokers) == (code, ())


def find(
    broker: BrokerFixture, message: FindCoordinatorRequest, version: int, listener: str = LISTENER
) -> FindCoordinatorResponse:
    return broker.ask(
        handle_find_coordinator,
        ApiKey.FIND_COORDINATOR,
        message,
        version,
        FindCoordinatorResponse,
        listener=listener,
    )


@pytest.mark.parametrize("version", range(4))
def test_this_broker_coordinates_groups(version: int) -> None:
    answer = find(BrokerFixture(), FindCoordinatorRequest(key="g"), version, "EXTERNAL")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "x0", 9093)


@pytest.mark.parametrize("version", [4, 5])
def test_one_row_per_key_from_version_4_on(version: int) -> None:
    message = FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = find(BrokerFixture(), message, version)
    assert [(row.key, row.error_code, row.node_id, row.host) for row in answer.coordinators] == [
        ("g", 0, 0, "h0"),
        ("h", 0, 0, "h0"),
    ]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.INVALID_REQUEST)],
)
def test_other_types_have_no_coordinator(key_type: int, code: ErrorCode) -> None:
    broker = BrokerFixture()
    old = find(broker, FindCoordinatorRequest(key="x", key_type=key_type), 2)
    assert (old.error_code, old.node_id, old.host, old.port) == (code, -1, "", -1)
    message = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
    [row] = find(broker, message, 5).coordinators
    assert (row.key, row.error_code, row.node_id) == ("x", code, -1)


def test_a_broker_without_the_listener_coordinates_nothing_there() -> None:
    answer = find(BrokerFixture(), FindCoordinatorRequest(key="g"), 1, "OTHER")
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def fetch(message: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    return BrokerFixture().ask(
        handle_offset_fetch, ApiKey.OFFSET_FETCH, message, version, OffsetFetchResponse
    )


@pytest.mark.parametrize("version", range(1, 8))
def test_nothing_is_committed(version: int) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
    answer = fetch(OffsetFetchRequest(group_id="g", topics=topics), version)
    [topic] = answer.topics
    assert (answer.error_code, topic.name) == (0, "t")
    assert [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
        for p in topic.partitions
    ] == [(0, -1, -1, "", 0), (3, -1, -1, "", 0)]


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_from_version_8_on(version: int) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[1])]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=topics),
        OffsetFetchRequestGroup(group_id="h", topics=None),
    ]
    answer = fetch(OffsetFetchRequest(groups=groups), version)
    first, second = answer.groups
    assert (first.group_id, first.error_code, second.group_id) == ("g", 0, "h")
    [row] = first.topics[0].partitions
    assert (row.partition_index, row.committed_offset, row.error_code) == (1, -1, 0)
    assert second.topics == ()


def test_null_asks_for_all_that_is_committed() -> None:
    answer = fetch(OffsetFetchRequest(group_id="g", topics=None), 2)
    assert (answer.error_code, answer.topics) == (0, ())
