"""Answers to consumers that wait for the same records: made once, and right for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.handlers.fetch import handle_fetch
from odradek.errors import ErrorCode
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import Request, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.storage.segments.file_slice import FileSlice
from tests.support.logs import batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture, topic_id

TP = TopicPartition("t", 0)
TOPIC_ID = topic_id(1)
VERSIONS = (4, 6, 7, 11, 12, 13)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerFixture]:
    """Leads the one, empty partition of topic t."""
    made = BrokerFixture(log_dirs=[str(tmp_path)])
    made.log_manager.startup()
    made.publish_topic("t", 1)
    state = PartitionState(
        topic="t", partition=0, leader=BROKER_ID, leader_epoch=0, isr=(BROKER_ID,),
        replicas=(BROKER_ID,),
    )  # fmt: skip
    hosted = (HostedPartition(state=state, topic_id=TOPIC_ID, is_new=True),)
    apply_local(
        made.replicas, LocalDelta(controller_id=BROKER_ID, controller_epoch=1, hosted=hosted)
    )
    yield made
    made.log_manager.shutdown()


def wait(broker: BrokerFixture, version: int, *, has_session: bool = False) -> Request:
    """A consumer that waits at the end of the partition."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[row])
    if version >= 13:
        topic = FetchTopic(topic_id=TOPIC_ID.bytes, partitions=[row])
    message = FetchRequest(
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=0 if has_session else -1,
        topics=[topic],
    )
    request = broker.request(ApiKey.FETCH, message, version)
    assert broker.call(handle_fetch, request) is None
    return request


def append(broker: BrokerFixture, size: int = 100) -> None:
    broker.replicas.appends.append_records(
        timeout_ms=0,
        required_acks=1,
        internal_topics_allowed=False,
        origin=AppendOrigin.CLIENT,
        entries={TP: memoryview(bytearray(batch(1, size=size)))},
        respond=lambda _results: None,
    )


def answer(broker: BrokerFixture, request: Request) -> FetchResponse:
    """What the consumer receives."""
    [sent] = [one for one in broker.sent if one.request is request]
    assert isinstance(sent, SendResponse)
    parts = [one.read() if isinstance(one, FileSlice) else one for one in sent.chunks]
    payload = b"".join(parts)  # type: ignore[arg-type]  # only bytes are left
    correlation_id, response = parse_response(payload, ApiKey.FETCH, request.header.api_version)
    assert correlation_id == request.header.correlation_id
    assert isinstance(response, FetchResponse)
    return response


def records(response: FetchResponse) -> bytes:
    [topic] = response.responses
    [row] = topic.partitions
    assert (row.partition_index, row.error_code, row.high_watermark) == (0, ErrorCode.NONE, 1)
    assert row.records is not None
    return bytes(row.records)


def test_each_consumer_gets_its_version_its_name_of_the_topic_and_its_session(
    broker: BrokerFixture,
) -> None:
    waiting = [
        wait(broker, version, has_session=has_session)
        for version in (*VERSIONS, *VERSIONS)
        for has_session in ((False, True) if version >= 7 else (False,))
    ]
    assert broker.replicas.purgatories.fetch.watched == len(waiting)

    append(broker)

    answers = [answer(broker, request) for request in waiting]
    assert len({records(one) for one in answers}) == 1
    for request, one in zip(waiting, answers, strict=True):
        [topic] = one.responses
        if request.header.api_version >= 13:
            assert topic.topic_id == TOPIC_ID.bytes
        else:
            assert topic.topic == "t"
        assert request.errors == {ErrorCode.NONE: 2}
    sessions = [one.session_id for one in answers if one.session_id]
    assert len(sessions) == len(set(sessions)) == 8


def test_the_bytes_of_an_answer_are_made_once(broker: BrokerFixture) -> None:
    waiting = [wait(broker, 11) for _ in range(3)]
    append(broker)
    chunks = [one.chunks for one in broker.sent if isinstance(one, SendResponse)]
    assert len(chunks) == len(waiting)
    assert all(len(parts) == 1 for parts in chunks), "the records are inside, not in a file"


def test_many_records_stay_in_their_file(broker: BrokerFixture) -> None:
    """They are sent from there, once for each consumer."""
    waiting = [wait(broker, 11) for _ in range(3)]
    append(broker, size=20_000)
    sent = [one for one in broker.sent if isinstance(one, SendResponse)]
    assert [sum(isinstance(part, FileSlice) for part in one.chunks) for one in sent] == [1] * 3
    assert len({records(answer(broker, request)) for request in waiting}) == 1
