"""Who may produce and fetch, and how the errors of both are counted."""

from random import Random

import pytest

from odradek.broker.handlers.fetch import handle_fetch
from odradek.broker.handlers.produce import handle_produce
from odradek.errors import ErrorCode
from odradek.metrics import Meter, MetricName, MetricRegistry
from odradek.network.request import CloseConnectionResponse, Request, Response
from odradek.network.request_metrics import RequestMetrics
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from odradek.testing import ManualClock
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, parsed

Asked = tuple[Operation, ResourceType, str]


class Rights:
    """Allows all but some, and remembers what was asked."""

    def __init__(self, *denied: Asked) -> None:
        self.denied = denied
        self.asked: list[Asked] = []

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        self.asked.append((operation, resource, name))
        return self.asked[-1] not in self.denied


def answered(broker: BrokerFixture, key: ApiKey, message: ProduceRequest | FetchRequest) -> Request:
    """The request, after its answer was sent."""
    handler = handle_produce if key is ApiKey.PRODUCE else handle_fetch
    request = broker.request(key, message, 11 if key is ApiKey.PRODUCE else 12)
    response = broker.call(handler, request)
    if response is not None:
        broker.sent.append(response)
    return request


def produce_to(*topics: str, transactional_id: str | None = None, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=i, records=bytes(3)) for i in (0, 1)],
            )
            for topic in topics
        ],
    )


def fetch_from(*topics: str, replica_id: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=100)
                    for i in (0, 1)
                ],
            )
            for topic in topics
        ],
    )


def produce_errors(response: Response) -> dict[str, list[int]]:
    answer = parsed(response, ProduceResponse)
    return {
        topic.name: [partition.error_code for partition in topic.partition_responses]
        for topic in answer.responses
    }


def fetch_errors(response: Response) -> dict[str, list[int]]:
    answer = parsed(response, FetchResponse)
    return {
        topic.topic: [partition.error_code for partition in topic.partitions]
        for topic in answer.responses
    }


def test_a_topic_that_may_not_be_written_is_refused_alone_known_or_not() -> None:
    rights = Rights((Operation.WRITE, ResourceType.TOPIC, "secret"))
    broker = BrokerFixture(authorizer=rights)
    answered(broker, ApiKey.PRODUCE, produce_to("secret", "open"))

    # What is written is no batch, which is found out only where writing is allowed.
    assert produce_errors(broker.sent.pop()) == {"secret": [29, 29], "open": [87, 87]}
    assert rights.asked == [
        (Operation.WRITE, ResourceType.TOPIC, "secret"),
        (Operation.WRITE, ResourceType.TOPIC, "open"),
    ]


def test_a_transactional_id_of_somebody_else_refuses_everything() -> None:
    broker = BrokerFixture(
        authorizer=Rights((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine"))
    )
    answered(broker, ApiKey.PRODUCE, produce_to("a", "b", transactional_id="mine"))

    assert produce_errors(broker.sent.pop()) == {"a": [53, 53], "b": [53, 53]}


def test_a_refused_write_without_an_answer_closes_the_connection() -> None:
    broker = BrokerFixture(authorizer=Rights((Operation.WRITE, ResourceType.TOPIC, "secret")))
    answered(broker, ApiKey.PRODUCE, produce_to("secret", acks=0))

    response = broker.sent.pop()
    assert isinstance(response, CloseConnectionResponse)
    assert "TOPIC_AUTHORIZATION_FAILED" in response.reason


def test_a_consumer_needs_to_read_and_is_asked_once_per_topic() -> None:
    rights = Rights((Operation.READ, ResourceType.TOPIC, "secret"))
    broker = BrokerFixture(authorizer=rights)
    answered(broker, ApiKey.FETCH, fetch_from("secret", "open"))

    assert fetch_errors(broker.sent.pop()) == {"secret": [29, 29], "open": [3, 3]}
    assert rights.asked == [
        (Operation.READ, ResourceType.TOPIC, "secret"),
        (Operation.READ, ResourceType.TOPIC, "open"),
    ]


@pytest.mark.parametrize("is_broker", [True, False])
def test_a_replica_is_told_by_its_right_not_by_its_number(is_broker: bool) -> None:
    cluster_action = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    broker = BrokerFixture(authorizer=Rights() if is_broker else Rights(cluster_action))
    answered(broker, ApiKey.FETCH, fetch_from("t", replica_id=2))

    assert fetch_errors(broker.sent.pop()) == {"t": [3, 3] if is_broker else [29, 29]}


def test_errors_are_counted_by_api_and_code() -> None:
    clock = ManualClock()
    registry = MetricRegistry(clock, Random(1))
    metrics = RequestMetrics(registry, fold_later=lambda: None)
    broker = BrokerFixture(
        authorizer=Rights(
            (Operation.WRITE, ResourceType.TOPIC, "secret"),
            (Operation.READ, ResourceType.TOPIC, "secret"),
        )
    )
    for _ in range(2):
        request = answered(broker, ApiKey.PRODUCE, produce_to("secret", "open"))
        metrics.request_done(request, 1)
        request = answered(broker, ApiKey.FETCH, fetch_from("secret"))
        metrics.request_done(request, 1)

    def counted(api: str, error: ErrorCode) -> int:
        name = MetricName(
            "kafka.network",
            "RequestMetrics",
            "ErrorsPerSec",
            (("request", api), ("error", error.name)),
        )
        meter = registry.get(name)
        assert isinstance(meter, Meter), f"{name} is not there"
        return meter.count

    assert counted("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED) == 4
    assert counted("Produce", ErrorCode.INVALID_RECORD) == 4
    assert counted("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED) == 4
    assert counted("Fetch", ErrorCode.NONE) == 2  # The error of each answer as a whole.
