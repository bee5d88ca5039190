"""Requests to their handlers, and the gate before the first metadata."""

import logging
from collections.abc import Mapping
from random import Random

import pytest

from odradek.broker.dispatch import (
    HANDLERS,
    MAX_REQUEST_BYTES,
    ApiHandler,
    StartGate,
    dispatch,
)
from odradek.errors import DecodeError
from odradek.metrics import MetricRegistry
from odradek.network.loop_turns import LoopTurns
from odradek.network.request import CloseConnectionResponse, NoOpResponse, Request, Response
from odradek.network.request_channel import RequestChannel
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.registry import request_type, response_type
from odradek.protocol.versions import VersionRange
from odradek.purgatory import ManualTimer
from tests.support.kept_tasks import KeptTasks
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, FakeConnection, parsed, run

CONTROL = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
CARRY_BYTES = {ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, *CONTROL}


class Processor:
    """Takes the answers of a channel."""

    id = 0
    response_queue_size = 0

    def __init__(self) -> None:
        self.answers: list[Response] = []

    def enqueue_response(self, response: Response) -> None:
        self.answers.append(response)


class Served:
    """A broker behind a request channel with one slot."""

    def __init__(
        self, *, is_published: bool = True, handlers: Mapping[ApiKey, ApiHandler] = HANDLERS
    ) -> None:
        self.broker = BrokerFixture(is_published=is_published)
        self.gate = StartGate()
        self.tasks = KeptTasks()
        self.processor = Processor()
        self.channel = RequestChannel(
            dispatch(self.broker.context, self.gate, handlers),
            queue_size=1,
            slots=1,
            clock=self.broker.clock,
            timer=ManualTimer("network"),
            metrics=MetricRegistry(self.broker.clock, Random(1)),
            tasks=self.tasks,
            request_turn=lambda: None,
            turns=LoopTurns(),
        )
        self.channel.add_processor(self.processor)
        self.broker.channel = self.channel

    def describe_cluster(self) -> Request:
        return self.broker.request(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), 1)

    def api_versions(self) -> Request:
        return self.broker.request(ApiKey.API_VERSIONS, ApiVersionsRequest(), 2)


def test_a_request_goes_to_its_handler() -> None:
    served = Served()
    served.gate.open()
    response = served.channel.submit(served.describe_cluster())
    assert response is not None
    assert parsed(response, DescribeClusterResponse).error_code == 0


def test_api_versions_names_exactly_what_is_served() -> None:
    """11:PS-12 and 02:D-10, as a client sees it."""
    served = Served()
    response = served.channel.submit(served.api_versions())
    assert response is not None
    rows = parsed(response, ApiVersionsResponse).api_keys
    assert [row.api_key for row in rows] == sorted(HANDLERS)
    for row in rows:
        key = ApiKey(row.api_key)
        assert VersionRange(row.min_version, row.max_version) == API_SUPPORT[key].advertised
        for version in range(row.min_version, row.max_version + 1):
            assert version in request_type(key).wire_versions
            assert version in response_type(key).wire_versions


def test_clients_are_not_told_of_what_only_brokers_may_send() -> None:
    served = Served()
    message = ApiVersionsRequest()
    request = served.broker.request(ApiKey.API_VERSIONS, message, 2, listener="EXTERNAL")
    response = served.channel.submit(request)
    assert response is not None
    rows = parsed(response, ApiVersionsResponse).api_keys
    assert {row.api_key for row in rows} == {
        key for key in HANDLERS if not API_SUPPORT[key].inter_broker
    }


@pytest.mark.parametrize("key", sorted(CONTROL), ids=lambda key: key.name)
def test_requests_of_the_controller_pass_the_gate(key: ApiKey) -> None:
    """14 section 15.4: they bring the metadata that all others wait for."""
    served = Served(is_published=False)
    version = API_SUPPORT[key].accepted.last
    message = request_type(key)(controller_id=1)
    served.channel.submit(served.broker.request(key, message, version))
    assert served.gate.parked_count == 0
    for work in served.tasks.started:
        run(work)
    assert len(served.broker.obeyed) == 1


def test_every_request_with_versions_is_served() -> None:
    assert set(HANDLERS) == set(API_SUPPORT)


def test_a_request_without_a_handler_ends_its_connection() -> None:
    """02:D-10: it has a codec, and is not answered."""
    served = Served(handlers={})
    served.gate.open()
    response = served.channel.submit(served.describe_cluster())
    assert isinstance(response, CloseConnectionResponse)
    assert "DESCRIBE_CLUSTER" in response.reason


@pytest.mark.parametrize("key", HANDLERS, ids=lambda key: key.name)
def test_a_request_that_is_too_long_is_not_read(key: ApiKey) -> None:
    """02 section 12: its elements would keep the loop for many seconds."""
    broker = BrokerFixture()
    gate = StartGate()
    gate.open()
    handle = dispatch(broker.context, gate, {key: lambda request, _: NoOpResponse(request)})
    request = broker.request(key, request_type(key)(), API_SUPPORT[key].advertised.last)
    request.parsed = request_type(key)()
    request.payload = memoryview(bytes(MAX_REQUEST_BYTES))
    handle(request)
    request.payload = memoryview(bytes(MAX_REQUEST_BYTES + 1))
    if key in CARRY_BYTES:
        assert isinstance(handle(request), NoOpResponse)
    else:
        with pytest.raises(DecodeError, match=f"{key.name} of {MAX_REQUEST_BYTES + 1} bytes"):
            handle(request)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP], ids=lambda key: key.name)
def test_members_of_groups_have_a_limit_of_their_own(key: ApiKey) -> None:
    broker = BrokerFixture()
    gate = StartGate()
    gate.open()
    handle = dispatch(broker.context, gate, {key: lambda request, _: NoOpResponse(request)})
    request = broker.request(key, request_type(key)(), API_SUPPORT[key].advertised.last)
    request.parsed = request_type(key)()
    request.payload = memoryview(bytes(8 << 20))
    assert isinstance(handle(request), NoOpResponse)
    request.payload = memoryview(bytes((8 << 20) + 1))
    with pytest.raises(DecodeError, match=key.name):
        handle(request)


def test_before_the_first_metadata_requests_are_kept_without_a_slot() -> None:
    """14:SM-8, the part of the gate: nothing is answered, nothing is created."""
    served = Served()
    topics = [MetadataRequestTopic(name="t")]
    wants_topic = served.broker.request(ApiKey.METADATA, MetadataRequest(topics=topics), 4)
    wants_all = served.broker.request(ApiKey.METADATA, MetadataRequest(topics=None), 4)
    for request in (wants_topic, wants_all, served.describe_cluster()):
        assert served.channel.submit(request) is None
    assert served.gate.parked_count == 3
    assert served.channel.suspended_count == 0
    assert served.channel.submit(served.api_versions()) is not None

    served.broker.publish_topic("t")
    served.gate.open()

    answers = served.processor.answers
    assert [answer.request for answer in answers[:2]] == [wants_topic, wants_all]
    for answer in answers[:2]:
        assert [topic.name for topic in parsed(answer, MetadataResponse).topics] == ["t"]
    assert parsed(answers[2], DescribeClusterResponse).error_code == 0
    assert served.gate.parked_count == 0


@pytest.mark.parametrize("version", [0, 4, 12, 13])
def test_no_client_ever_sees_an_empty_cluster(version: int) -> None:
    """06:M16: Metadata that comes before any UpdateMetadata waits for it."""
    served = Served(is_published=False)
    assert not served.broker.cache.is_published
    request = served.broker.request(ApiKey.METADATA, MetadataRequest(topics=[]), version)
    assert served.channel.submit(request) is None
    assert served.processor.answers == []

    served.broker.publish_brokers(0, 1)
    served.gate.open()

    [answer] = served.processor.answers
    assert [broker.node_id for broker in parsed(answer, MetadataResponse).brokers] == [0, 1]


def test_a_kept_request_whose_handler_waits_gets_its_answer_too() -> None:
    served = Served()
    served.broker.controller.is_active = False
    message = CreateTopicsRequest()
    assert served.channel.submit(served.broker.request(ApiKey.CREATE_TOPICS, message, 7)) is None
    served.gate.open()
    assert served.processor.answers == []
    run(served.tasks.started.pop())
    [answer] = served.processor.answers
    assert parsed(answer, CreateTopicsResponse).topics == ()


def test_a_client_that_left_meanwhile_is_forgotten() -> None:
    served = Served()
    request = served.describe_cluster()
    served.channel.submit(request)
    assert isinstance(request.connection, FakeConnection)
    request.connection.is_closed = True
    served.gate.open()
    assert served.processor.answers == []


def test_the_gate_opens_once() -> None:
    served = Served()
    served.channel.submit(served.describe_cluster())
    served.gate.open()
    served.gate.open()
    assert len(served.processor.answers) == 1
    assert served.channel.submit(served.describe_cluster()) is not None


def test_requests_can_be_traced(caplog: pytest.LogCaptureFixture) -> None:
    served = Served()
    served.gate.open()
    caplog.set_level(5, logger="odradek.broker.dispatch")
    served.channel.submit(served.describe_cluster())
    assert "DESCRIBE_CLUSTER v1" in caplog.text
    assert caplog.records[-1].levelno < logging.DEBUG
