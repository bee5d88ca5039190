"""CreateTopics: what is refused before the controller, and when it is answered."""

import pytest

from odradek.broker.handlers.create_topics import handle_create_topics
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, topic_id

KEY = ApiKey.CREATE_TOPICS


def topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def request(
    *topics: CreatableTopic, timeout_ms: int = 1000, validate_only: bool = False
) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def ask(
    broker: BrokerFixture, message: CreateTopicsRequest, version: int = 7
) -> CreateTopicsResponse:
    return broker.ask(handle_create_topics, KEY, message, version, CreateTopicsResponse)


def park(broker: BrokerFixture, message: CreateTopicsRequest, version: int = 7) -> None:
    assert broker.call(handle_create_topics, broker.request(KEY, message, version)) is None


def codes(response: CreateTopicsResponse) -> list[tuple[str, int]]:
    return [(row.name, row.error_code) for row in response.topics]


def test_a_topic_is_answered_once_all_its_partitions_are_led() -> None:
    broker = BrokerFixture()
    park(broker, request(topic("ab", 2)))

    broker.publish_topic("ab", 1, number=2)
    assert not broker.sent
    broker.publish_topic("ab", 2, number=2, leader=9)  # Not alive.
    assert not broker.sent
    broker.publish_topic("ab", 2, number=2)

    [row] = broker.last_sent(CreateTopicsResponse).topics
    assert (row.name, row.error_code, row.num_partitions, row.replication_factor) == ("ab", 0, 2, 1)
    assert row.topic_id == topic_id(2).bytes


def test_metadata_that_is_there_already_is_not_waited_for() -> None:
    broker = BrokerFixture()
    broker.controller.on_call = lambda: broker.publish_topic("ab", number=2)
    park(broker, request(topic("ab")))
    assert codes(broker.last_sent(CreateTopicsResponse)) == [("ab", ErrorCode.NONE)]


def test_a_topic_of_the_name_with_another_id_is_not_the_one() -> None:
    broker = BrokerFixture()
    park(broker, request(topic("ab")))
    broker.publish_topic("ab", number=99)
    assert not broker.sent


def test_time_that_is_up_is_said_and_the_topic_stays() -> None:
    broker = BrokerFixture()
    park(broker, request(topic("a"), topic("bc"), timeout_ms=500))
    broker.publish_topic("a", number=1)
    broker.advance(500)
    answer = broker.last_sent(CreateTopicsResponse)
    assert codes(answer) == [("a", ErrorCode.NONE), ("bc", ErrorCode.REQUEST_TIMED_OUT)]
    assert [name for name, _ in broker.controller.calls] == ["create"]


def test_the_controllers_time_counts() -> None:
    broker = BrokerFixture()
    broker.controller.on_call = lambda: broker.clock.advance(400)
    park(broker, request(topic("a"), timeout_ms=500))
    broker.advance(100)
    assert codes(broker.last_sent(CreateTopicsResponse)) == [("a", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_at_all_answers_7_after_starting(timeout_ms: int) -> None:
    broker = BrokerFixture()
    park(broker, request(topic("a"), timeout_ms=timeout_ms))
    assert codes(broker.last_sent(CreateTopicsResponse)) == [("a", ErrorCode.REQUEST_TIMED_OUT)]
    assert broker.controller.calls


def test_validation_alone_waits_for_nothing() -> None:
    broker = BrokerFixture()
    answer = ask(broker, request(topic("a", 3), validate_only=True))
    assert codes(answer) == [("a", ErrorCode.NONE)]
    assert answer.topics[0].num_partitions == 3
    assert [name for name, _ in broker.controller.calls] == ["validate"]


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    answer = ask(broker, request(topic("a"), topic("b")))
    assert codes(answer) == [("a", ErrorCode.NOT_CONTROLLER), ("b", ErrorCode.NOT_CONTROLLER)]
    assert not broker.controller.calls


def test_a_controller_that_lost_its_office_on_the_way_says_so() -> None:
    broker = BrokerFixture()
    broker.controller.error = ErrorCode.NOT_CONTROLLER
    assert codes(ask(broker, request(topic("a")))) == [("a", ErrorCode.NOT_CONTROLLER)]


def test_results_come_in_the_order_of_the_request() -> None:
    broker = BrokerFixture()
    broker.controller.refusals = {
        "c": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    answer = ask(broker, request(topic("c"), topic("b"), topic("b"), topic("a")))
    assert codes(answer) == [
        ("c", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("b", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REPLICATION_FACTOR),
    ]


def test_an_assignment_is_passed_on_and_a_repeated_partition_refused() -> None:
    broker = BrokerFixture()
    rows = [
        CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2]),
        CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1]),
    ]
    bad = CreatableTopic(name="bad", num_partitions=-1, replication_factor=-1, assignments=rows)
    good = CreatableTopic(
        name="good", num_partitions=-1, replication_factor=-1, assignments=rows[:1]
    )
    answer = ask(broker, request(bad, good, validate_only=True))
    assert codes(answer) == [("bad", ErrorCode.INVALID_REPLICA_ASSIGNMENT), ("good", 0)]
    [(_, [asked])] = broker.controller.calls
    assert asked.assignment == {0: (1, 2)}
    assert (asked.partition_count, asked.replication_factor) == (-1, -1)


def test_version_5_tells_the_settings_of_the_new_topic_and_where_they_come_from() -> None:
    broker = BrokerFixture(settings={"log.retention.ms": "1000"})
    answer = ask(broker, request(topic("a", segment_bytes="2000"), validate_only=True), version=5)
    told = {row.name: (row.value, row.config_source) for row in answer.topics[0].configs or ()}
    assert told["segment.bytes"] == ("2000", 1)
    assert told["retention.ms"] == ("1000", 4)
    assert told["cleanup.policy"] == ("delete", 5)


def test_version_4_has_no_settings() -> None:
    broker = BrokerFixture()
    answer = ask(broker, request(topic("a"), validate_only=True), version=4)
    assert codes(answer) == [("a", 0)]
    assert answer.topics[0].num_partitions == -1


class OnlySome:
    """CREATE on topics a and c, DESCRIBE_CONFIGS on none."""

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        return (
            operation is Operation.CREATE and resource is ResourceType.TOPIC and name in ("a", "c")
        )


def test_checks_before_creation_in_their_order() -> None:
    """02:N-20."""
    broker = BrokerFixture(authorizer=OnlySome())
    park(broker, request(topic("a"), topic("a"), topic("b"), topic("c")))
    broker.publish_topic("c", number=1)
    answer = broker.last_sent(CreateTopicsResponse)
    assert codes(answer) == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("c", ErrorCode.NONE),
    ]
    row = answer.topics[2]
    assert row.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not row.configs


def test_the_mutation_quota_refuses_in_version_6_and_throttles_before() -> None:
    """13:Q6, through a request."""
    broker = BrokerFixture()
    broker.publish_quota(("client-id", None), controller_mutation_rate=5)
    first = ask(broker, request(topic("a", 60), validate_only=True))
    assert (codes(first), first.throttle_time_ms) == ([("a", 0)], 0)

    strict = ask(broker, request(topic("b"), validate_only=True), version=6)
    assert codes(strict) == [("b", ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    assert strict.throttle_time_ms == 1000
    assert broker.throttled == [1000]

    permissive = ask(broker, request(topic("b", 5), validate_only=True), version=5)
    assert codes(permissive) == [("b", 0)]
    assert permissive.throttle_time_ms == 2000


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_is_answered(version: int) -> None:
    broker = BrokerFixture()
    answer = ask(broker, request(topic("a"), validate_only=True), version)
    assert codes(answer) == [("a", 0)]


@pytest.mark.parametrize("validate_only", [False, True])
def test_too_many_partitions_fail_the_whole_request(validate_only: bool) -> None:
    """As Kafka 4.3.1 was seen to: 9,999 and 2 are 10,001, so not even the small one is made."""
    broker = BrokerFixture()
    small, large = topic("small", 2), topic("large", 9_999)
    response = ask(broker, request(large, small, validate_only=validate_only))

    assert codes(response) == [("large", 44), ("small", 44)]
    assert "10001 partitions, 10000 at most" in str(response.topics[0].error_message)
    assert broker.controller.calls == []


def test_as_many_partitions_as_a_request_may_make() -> None:
    broker = BrokerFixture(settings={"num.partitions": "3"})
    ask(broker, request(topic("a", 9_997), topic("b", -1), validate_only=True))
    assert len(broker.controller.calls) == 1

    explicit = [CreatableReplicaAssignment(partition_index=i, broker_ids=[0]) for i in range(4)]
    assigned = CreatableTopic(
        name="c", num_partitions=-1, replication_factor=-1, assignments=explicit
    )
    assert codes(ask(broker, request(topic("a", 9_997), assigned))) == [("a", 44), ("c", 44)]
