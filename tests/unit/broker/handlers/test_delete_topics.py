"""DeleteTopics: by name and by id, and when it is answered."""

import pytest

from odradek.broker.handlers.delete_topics import handle_delete_topics
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, topic_id

KEY = ApiKey.DELETE_TOPICS


def by_name(*names: str, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)


def by_state(*states: DeleteTopicState) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=states, timeout_ms=1000)


def ask(broker: BrokerFixture, message: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    return broker.ask(handle_delete_topics, KEY, message, version, DeleteTopicsResponse)


def park(broker: BrokerFixture, message: DeleteTopicsRequest, version: int) -> None:
    assert broker.call(handle_delete_topics, broker.request(KEY, message, version)) is None


def codes(response: DeleteTopicsResponse) -> list[tuple[str | None, int]]:
    return [(row.name, row.error_code) for row in response.responses]


@pytest.mark.parametrize("version", range(1, 6))
def test_a_topic_is_answered_once_it_is_gone(version: int) -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", 2)
    park(broker, by_name("a"), version)
    assert not broker.sent
    broker.remove_topic("a")
    assert codes(broker.last_sent(DeleteTopicsResponse)) == [("a", ErrorCode.NONE)]


def test_a_topic_is_answered_once_its_name_is_free() -> None:
    """Metadata loses a topic first; whoever creates it anew then must not find the old one."""
    broker = BrokerFixture()
    broker.publish_topic("a")
    broker.controller.deleting = {"a"}
    park(broker, by_name("a"), 5)
    broker.remove_topic("a")
    assert not broker.sent
    broker.controller.deleting.clear()
    broker.context.metadata_waiter.notify()
    assert codes(broker.last_sent(DeleteTopicsResponse)) == [("a", ErrorCode.NONE)]


def test_a_new_topic_of_the_name_is_another_one() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", number=1)
    park(broker, by_name("a"), 5)
    broker.publish_topic("a", number=2)
    assert codes(broker.last_sent(DeleteTopicsResponse)) == [("a", ErrorCode.NONE)]


def test_by_id() -> None:
    broker = BrokerFixture()
    found = broker.publish_topic("a", number=5)
    states = [
        DeleteTopicState(topic_id=topic_id(9).bytes),
        DeleteTopicState(topic_id=found.bytes),
        DeleteTopicState(name="gone"),
        DeleteTopicState(name="a", topic_id=found.bytes),
        DeleteTopicState(),
    ]
    broker.controller.refusals = {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    park(broker, by_state(*states[:3]), 6)
    # The controller compares: the name may belong to another topic when it decides.
    assert broker.controller.deleted_ids == {"a": found}
    broker.remove_topic("a")
    answer = broker.last_sent(DeleteTopicsResponse)
    assert codes(answer) == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("a", ErrorCode.NONE),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert answer.responses[1].topic_id == found.bytes
    refused = ask(broker, by_state(*states[3:]), 6)
    assert codes(refused) == [
        ("a", ErrorCode.INVALID_REQUEST),
        (None, ErrorCode.INVALID_REQUEST),
    ]


def test_a_topic_named_twice_is_refused_even_if_once_by_id() -> None:
    broker = BrokerFixture()
    found = broker.publish_topic("a")
    states = [DeleteTopicState(name="a"), DeleteTopicState(topic_id=found.bytes)]
    answer = ask(broker, by_state(*states), 6)
    assert codes(answer) == [("a", ErrorCode.INVALID_REQUEST)] * 2
    assert not broker.controller.calls


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_that_is_switched_off(version: int, code: ErrorCode) -> None:
    broker = BrokerFixture(delete_topics_enabled=False)
    broker.publish_topic("a")
    assert codes(ask(broker, by_name("a"), version)) == [("a", code)]
    assert not broker.controller.calls


def test_not_the_controller() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    assert codes(ask(broker, by_name("a"), 5)) == [("a", ErrorCode.NOT_CONTROLLER)]
    broker.controller.is_active, broker.controller.error = True, ErrorCode.NOT_CONTROLLER
    assert codes(ask(broker, by_name("a"), 5)) == [("a", ErrorCode.NOT_CONTROLLER)]


def test_time_that_is_up_is_said() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a")
    park(broker, by_name("a", timeout_ms=100), 5)
    broker.advance(100)
    assert codes(broker.last_sent(DeleteTopicsResponse)) == [("a", ErrorCode.REQUEST_TIMED_OUT)]


def test_a_name_nobody_can_use_is_asked_of_the_controller() -> None:
    broker = BrokerFixture()
    broker.controller.refusals = {"": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    answer = ask(broker, by_name(""), 5)
    assert codes(answer) == [("", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_partitions_count_against_the_mutation_quota() -> None:
    broker = BrokerFixture()
    broker.publish_quota(("client-id", None), controller_mutation_rate=1)
    broker.publish_topic("a", 12, number=1)
    broker.publish_topic("b", 1, number=2)
    park(broker, by_name("a"), 5)
    answer = ask(broker, by_name("b"), 5)
    assert codes(answer) == [("b", ErrorCode.THROTTLING_QUOTA_EXCEEDED)]
    assert answer.throttle_time_ms == 1000
