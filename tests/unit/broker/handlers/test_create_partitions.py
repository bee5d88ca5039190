"""CreatePartitions: what is refused before the controller, and when it is answered."""

import pytest

from odradek.broker.handlers.create_partitions import handle_create_partitions
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture

KEY = ApiKey.CREATE_PARTITIONS


def topic(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> CreatePartitionsTopic:
    rows = None
    if assignments is not None:
        rows = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=rows)


def request(
    *topics: CreatePartitionsTopic, timeout_ms: int = 1000, validate_only: bool = False
) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )


def ask(
    broker: BrokerFixture, message: CreatePartitionsRequest, version: int = 3
) -> CreatePartitionsResponse:
    return broker.ask(handle_create_partitions, KEY, message, version, CreatePartitionsResponse)


def park(broker: BrokerFixture, message: CreatePartitionsRequest) -> None:
    assert broker.call(handle_create_partitions, broker.request(KEY, message, 3)) is None


def codes(response: CreatePartitionsResponse) -> list[tuple[str, int]]:
    return [(row.name, row.error_code) for row in response.results]


def test_answered_once_the_new_partitions_are_led() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", 1)
    park(broker, request(topic("a", 3, [[0], [0]])))
    broker.publish_topic("a", 2)
    assert not broker.sent
    broker.publish_topic("a", 3)
    assert codes(broker.last_sent(CreatePartitionsResponse)) == [("a", ErrorCode.NONE)]
    [(_, [asked])] = broker.controller.calls
    assert (asked.name, asked.total_count, asked.assignments) == ("a", 3, [(0,), (0,)])


def test_time_that_is_up_is_said() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", 1)
    park(broker, request(topic("a", 3), timeout_ms=100))
    broker.advance(100)
    answer = broker.last_sent(CreatePartitionsResponse)
    assert codes(answer) == [("a", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", range(4))
def test_validation_alone(version: int) -> None:
    broker = BrokerFixture()
    broker.controller.refusals = {"b": ErrorCode.INVALID_PARTITIONS}
    answer = ask(broker, request(topic("b", 1), topic("a", 3), validate_only=True), version)
    assert codes(answer) == [("b", ErrorCode.INVALID_PARTITIONS), ("a", ErrorCode.NONE)]
    assert [name for name, _ in broker.controller.calls] == ["validate"]


def test_refused_before_the_controller() -> None:
    broker = BrokerFixture()
    answer = ask(broker, request(topic("a", 2), topic("a", 3), topic("__consumer_offsets", 60)))
    assert codes(answer) == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("__consumer_offsets", ErrorCode.INVALID_REQUEST),
    ]
    broker.controller.is_active = False
    assert codes(ask(broker, request(topic("a", 2)))) == [("a", ErrorCode.NOT_CONTROLLER)]
    assert not broker.controller.calls


def test_a_controller_that_lost_its_office_on_the_way() -> None:
    broker = BrokerFixture()
    broker.controller.error = ErrorCode.NOT_CONTROLLER
    assert codes(ask(broker, request(topic("a", 2)))) == [("a", ErrorCode.NOT_CONTROLLER)]


def test_only_added_partitions_count_against_the_mutation_quota() -> None:
    broker = BrokerFixture()
    broker.publish_quota(("client-id", None), controller_mutation_rate=1)
    broker.publish_topic("a", 3)
    ask(broker, request(topic("a", 3 + 12), validate_only=True))
    answer = ask(broker, request(topic("a", 4), validate_only=True))
    assert codes(answer) == [("a", ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    assert answer.throttle_time_ms == 1000


def test_too_many_partitions_fail_the_whole_request() -> None:
    """What is there already does not count."""
    broker = BrokerFixture()
    broker.publish_topic("a", 3)
    broker.publish_topic("b", 1, number=2)
    refused = ask(broker, request(topic("a", 10_002), topic("b", 3)))

    assert codes(refused) == [("a", 44), ("b", 44)]
    assert broker.controller.calls == []
    ask(broker, request(topic("a", 10_002), topic("b", 2), validate_only=True))
    assert len(broker.controller.calls) == 1
