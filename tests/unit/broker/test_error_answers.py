"""What a client hears of a handler that failed (02 section 9.1)."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.context import BrokerContext
from odradek.broker.dispatch import HANDLERS, StartGate, dispatch
from odradek.broker.error_answers import error_answer
from odradek.errors import ApiError, DecodeError, ErrorCode
from odradek.network.request import CloseConnectionResponse, Request, Response
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.schema import ArrayOf, Message, MessageType
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, parsed, run

CODE = ErrorCode.UNKNOWN_SERVER_ERROR
EVERY_VERSION = [
    pytest.param(key, version, id=f"02:D-8-{key.name}-{version}")
    for key in sorted(HANDLERS)
    for version in range(API_SUPPORT[key].accepted.first, API_SUPPORT[key].accepted.last + 1)
]


@pytest.fixture(scope="module")
def broker() -> BrokerFixture:
    return BrokerFixture()


def sample(cls: MessageType, version: int) -> Any:
    """A message with one row in each list."""
    lists = {
        field.name: [_element(field.type.element, version)]
        for field in cls.wire_fields
        if version in field.versions and isinstance(field.type, ArrayOf)
    }
    acks = {"acks": 1} if any(field.name == "acks" for field in cls.wire_fields) else {}
    return cls(**lists, **acks)


def _element(element: Any, version: int) -> Any:
    return sample(element, version) if isinstance(element, MessageType) else element.default


def errors_in(message: Message) -> Iterator[int]:
    for field in message.wire_fields:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, MessageType):
            for row in value or ():
                yield from errors_in(row)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_every_api_has_an_answer_with_the_error(
    broker: BrokerFixture, key: ApiKey, version: int
) -> None:
    request = broker.request(key, sample(request_type(key), version), version)
    answer = parsed(error_answer(request, CODE), response_type(key))
    assert CODE in set(errors_in(answer))


def test_what_was_asked_for_is_repeated(broker: BrokerFixture) -> None:
    topics = [
        TopicProduceData(name="t", partition_data=[PartitionProduceData(index=i) for i in (3, 4)]),
        TopicProduceData(name="u", partition_data=[PartitionProduceData(index=5)]),
    ]
    request = broker.request(ApiKey.PRODUCE, ProduceRequest(acks=-1, topic_data=topics), 9)
    answer = parsed(error_answer(request, CODE), ProduceResponse)
    assert [
        (topic.name, row.index, row.error_code, row.base_offset)
        for topic in answer.responses
        for row in topic.partition_responses
    ] == [("t", 3, CODE, -1), ("t", 4, CODE, -1), ("u", 5, CODE, -1)]


def test_names_that_stand_alone_are_repeated(broker: BrokerFixture) -> None:
    request = broker.request(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["t", "u"]), 5)
    answer = parsed(error_answer(request, CODE), DeleteTopicsResponse)
    assert [(row.name, row.error_code) for row in answer.responses] == [("t", CODE), ("u", CODE)]


def test_a_fetch_before_it_had_an_error_of_its_own(broker: BrokerFixture) -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=8)])]
    request = broker.request(ApiKey.FETCH, FetchRequest(topics=topics), 6)
    [topic] = parsed(error_answer(request, CODE), FetchResponse).responses
    [row] = topic.partitions
    assert (topic.topic, row.partition_index, row.error_code) == ("t", 8, CODE)
    assert (row.high_watermark, row.records) == (-1, None)


@pytest.mark.parametrize(
    ("key", "message", "version"),
    [
        (ApiKey.PRODUCE, ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t")]), 9),
        (ApiKey.METADATA, MetadataRequest(topics=None), 12),
    ],
    ids=["no-answer-wanted", "no-room-for-an-error"],
)
def test_without_room_for_the_error_the_connection_ends(
    broker: BrokerFixture, key: ApiKey, message: Message, version: int
) -> None:
    response = error_answer(broker.request(key, message, version), CODE)
    assert isinstance(response, CloseConnectionResponse)


class Failing:
    """A broker one of whose handlers raises, at once or after it waited."""

    def __init__(self, error: Exception, *, waits: bool) -> None:
        self.broker = BrokerFixture()
        gate = StartGate()
        gate.is_open = True
        handler = self._fail_later if waits else self._fail
        self._error = error
        self._handle = dispatch(self.broker.context, gate, {ApiKey.DELETE_TOPICS: handler})

    def _fail(self, _request: Request, _context: BrokerContext) -> Response:
        raise self._error

    async def _fail_later(self, _request: Request, _context: BrokerContext) -> Response:
        raise self._error

    def ask(self) -> Response:
        message = DeleteTopicsRequest(topic_names=["t"])
        result = self._handle(self.broker.request(ApiKey.DELETE_TOPICS, message, 5))
        answer = result if isinstance(result, Response) else run(result)  # type: ignore[arg-type]
        assert isinstance(answer, Response)
        return answer


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "after-waiting"])
@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("bug"), CODE), (ApiError(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER)],
    ids=["bug", "error-with-a-code"],
)
def test_a_failure_is_logged_and_answered(
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: ErrorCode,
    waits: bool,
) -> None:
    """02:D-8."""
    answer = parsed(Failing(error, waits=waits).ask(), DeleteTopicsResponse)
    assert [(row.name, row.error_code) for row in answer.responses] == [("t", code)]
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "DELETE_TOPICS v5 (correlation id 7, client 'c1'" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "after-waiting"])
def test_bytes_that_are_no_request_stay_the_channels_affair(waits: bool) -> None:
    failing = Failing(DecodeError("short"), waits=waits)
    with pytest.raises(DecodeError):
        failing.ask()
