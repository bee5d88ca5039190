"""Topics that are made because somebody asks for them."""

import dataclasses
import logging
from collections.abc import Sequence

import pytest

from odradek.broker.handlers.metadata import handle_metadata
from odradek.broker.topic_creation import MAX_CREATIONS, AutoTopicCreator
from odradek.errors import ErrorCode
from odradek.metadata.admin_requests import NewTopic, TopicResult
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.kept_tasks import KeptTasks
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeController, run


class Creation:
    def __init__(self) -> None:
        self.controller = FakeController()
        tasks = KeptTasks()
        self.tasks = tasks.started
        self.creator = AutoTopicCreator(self._create, tasks)

    async def _create(self, topics: Sequence[NewTopic]) -> Sequence[TopicResult]:
        return await self.controller.create_topics(topics, validate_only=False)

    def run_all(self) -> None:
        while self.tasks:
            run(self.tasks.pop(0))


def test_a_topic_is_made_with_the_brokers_defaults() -> None:
    creation = Creation()
    creation.creator.start_creation("a")
    creation.run_all()
    [(call, [topic])] = creation.controller.calls
    assert (call, topic.name) == ("create", "a")
    assert (topic.partition_count, topic.replication_factor) == (-1, -1)


def test_a_creation_under_way_is_not_started_again() -> None:
    creation = Creation()
    for name in ("a", "a", "b"):
        creation.creator.start_creation(name)
    assert len(creation.tasks) == 2
    creation.run_all()
    creation.creator.start_creation("a")
    assert len(creation.tasks) == 1
    creation.run_all()


def test_creations_under_way_are_limited() -> None:
    creation = Creation()
    for number in range(MAX_CREATIONS + 1):
        creation.creator.start_creation(str(number))
    assert len(creation.tasks) == MAX_CREATIONS
    creation.run_all()


@pytest.mark.parametrize(
    ("code", "lines"),
    [(ErrorCode.TOPIC_ALREADY_EXISTS, 0), (ErrorCode.INVALID_REPLICATION_FACTOR, 1)],
)
def test_failures_are_logged_and_may_be_tried_again(
    code: ErrorCode, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    creation = Creation()
    creation.controller.refusals = {"a": code}
    creation.creator.start_creation("a")
    creation.run_all()
    assert len(caplog.records) == lines
    creation.creator.start_creation("a")
    assert len(creation.tasks) == 1
    creation.run_all()


def test_a_broker_that_is_not_the_controller_leaves_it(caplog: pytest.LogCaptureFixture) -> None:
    creation = Creation()
    creation.controller.error = ErrorCode.NOT_CONTROLLER
    creation.creator.start_creation("a")
    creation.run_all()
    assert "cannot be created" in caplog.text


def test_metadata_for_a_missing_topic_makes_it() -> None:
    """02:N-22."""
    creation = Creation()
    broker = BrokerFixture()
    broker.context = dataclasses.replace(broker.context, topic_creator=creation.creator)

    def ask() -> list[tuple[str | None, int, list[int]]]:
        message = MetadataRequest(topics=[MetadataRequestTopic(name="test-topic")])
        answer = broker.ask(handle_metadata, ApiKey.METADATA, message, 5, MetadataResponse)
        return [
            (topic.name, topic.error_code, [p.leader_id for p in topic.partitions])
            for topic in answer.topics
        ]

    assert ask() == [("test-topic", ErrorCode.LEADER_NOT_AVAILABLE, [])]
    creation.run_all()
    assert [call for call, _ in creation.controller.calls] == ["create"]
    broker.publish_topic("test-topic")
    assert ask() == [("test-topic", ErrorCode.NONE, [0])]
