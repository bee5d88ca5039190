"""Metadata: what a client may do is told if it asks, and what it creates is counted."""

import pytest

from odradek.broker.handlers.metadata import handle_metadata
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeTopicCreator

NOT_ASKED = -(1 << 31)
ALL_OF_A_TOPIC = sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
ALL_OF_THE_CLUSTER = sum(1 << number for number in (5, 7, 8, 9, 10, 11, 12))


class Without:
    """Allows all but some operations."""

    def __init__(self, *denied: tuple[Operation, ResourceType]) -> None:
        self.denied = denied

    def is_allowed(
        self,
        _principal: Principal,
        _host: str,
        operation: Operation,
        resource: ResourceType,
        _name: str,
    ) -> bool:
        return (operation, resource) not in self.denied


def metadata(
    broker: BrokerFixture,
    *names: str,
    version: int = 13,
    with_topics: bool = False,
    with_cluster: bool = False,
) -> MetadataResponse:
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        include_topic_authorized_operations=with_topics,
        include_cluster_authorized_operations=with_cluster,
    )
    return broker.ask(handle_metadata, ApiKey.METADATA, message, version, MetadataResponse)


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
def test_authorized_operations_are_told_if_asked_for(version: int) -> None:
    broker = BrokerFixture()
    broker.publish_topic("t")
    with_cluster = 8 <= version <= 10
    asked = metadata(broker, "t", version=version, with_topics=True, with_cluster=with_cluster)
    assert asked.topics[0].topic_authorized_operations == ALL_OF_A_TOPIC
    silent = metadata(broker, "t", version=version)
    assert silent.topics[0].topic_authorized_operations == NOT_ASKED
    if with_cluster:
        assert asked.cluster_authorized_operations == ALL_OF_THE_CLUSTER
        assert silent.cluster_authorized_operations == NOT_ASKED


def test_only_what_is_allowed_is_told() -> None:
    """13 section 10: the cluster's need DESCRIBE of it, else none are told."""
    broker = BrokerFixture(
        authorizer=Without(
            (Operation.WRITE, ResourceType.TOPIC), (Operation.ALTER, ResourceType.CLUSTER)
        )
    )
    broker.publish_topic("t")
    answer = metadata(broker, "t", version=10, with_topics=True, with_cluster=True)
    assert answer.topics[0].topic_authorized_operations == ALL_OF_A_TOPIC - (1 << 4)
    assert answer.cluster_authorized_operations == ALL_OF_THE_CLUSTER - (1 << 7)

    blind = BrokerFixture(
        authorizer=Without(
            (Operation.DESCRIBE, ResourceType.TOPIC), (Operation.DESCRIBE, ResourceType.CLUSTER)
        )
    )
    blind.publish_topic("t")
    answer = metadata(blind, "t", version=10, with_topics=True, with_cluster=True)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED
    assert answer.cluster_authorized_operations == 0


def test_topics_made_on_demand_count_as_mutations() -> None:
    """13 section 12.4: what is too much is not begun, and the client waits before it asks again."""
    broker = BrokerFixture(settings={"num.partitions": "10", "controller.quota.window.num": "2"})
    broker.publish_quota(("client-id", "c1"), controller_mutation_rate=5.0)  # Saves up to 10.
    creator = broker.context.topic_creator
    assert isinstance(creator, FakeTopicCreator)
    answer = metadata(broker, "a", "b", "c")
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.LEADER_NOT_AVAILABLE] * 3
    assert creator.started == ["a", "b"]  # The second one leaves the bucket below nothing.
    assert answer.throttle_time_ms == 2_000
    assert broker.throttled == [2_000]

    # Those under way are not counted again, and what is asked for in time is begun.
    assert metadata(broker, "a", "b").throttle_time_ms == 0
    broker.advance(2_000)
    metadata(broker, "c")
    assert creator.started == ["a", "b", "c"]


def test_topics_that_are_there_cost_nothing() -> None:
    broker = BrokerFixture()
    broker.publish_topic("t")
    broker.publish_quota(("client-id", "c1"), controller_mutation_rate=0.5)
    assert {metadata(broker, "t").throttle_time_ms for _ in range(20)} == {0}
