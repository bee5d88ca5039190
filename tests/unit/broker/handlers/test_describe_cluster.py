"""DescribeCluster: who is there."""

import pytest

from odradek.broker.handlers.describe_cluster import handle_describe_cluster
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.security.operations import NOT_ASKED
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
