"""What no good client sends, and fetch sessions row by row, over a bare connection."""

import struct
import time
from collections.abc import Callable

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    metadata,
    produce,
)
from odradek.records.builder import build_batch
from tests.conformance.clients.raw import RawConnection
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow

_API_VERSIONS_V0 = api_versions.ApiVersionsRequest()


def _header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 2) + b"c1"


@pytest.mark.parametrize("version", [5, 99, -1])
def test_unknown_api_versions_version(odradek: OdradekBroker, version: int) -> None:
    """11:PS-2: the answer of 11:PV-3, and the connection is still usable."""
    with RawConnection(odradek.port) as connection:
        connection.send_frame(_header(18, version))
        assert connection.receive_frame().hex() == "00000007002300000001001200000004"
        answer = connection.call(ApiKey.API_VERSIONS, 4, _named("raw"))
        assert isinstance(answer, api_versions.ApiVersionsResponse)
        assert answer.error_code == 0


def test_a_client_name_that_is_none(odradek: OdradekBroker) -> None:
    """11:PS-3: INVALID_REQUEST, then version 0 works."""
    with RawConnection(odradek.port) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 3, _named("bad name!"))
        assert isinstance(answer, api_versions.ApiVersionsResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        answer = connection.call(ApiKey.API_VERSIONS, 0, _API_VERSIONS_V0)
        assert isinstance(answer, api_versions.ApiVersionsResponse)
        assert answer.error_code == 0


_HOSTILE = {
    "metadata v99": struct.pack(">i", 12) + _header(3, 99),
    "key 999": struct.pack(">i", 12) + _header(999, 0),
    "2147483647 topics": struct.pack(">i", 16) + _header(3, 1) + struct.pack(">i", 2**31 - 1),
    "length 0": struct.pack(">i", 0),
    "length -5": struct.pack(">i", -5),
    "length 2000000000": struct.pack(">i", 2_000_000_000),
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "tls hello": bytes.fromhex("16030102000100") + bytes(200),
}


@pytest.mark.parametrize("sent", [pytest.param(data, id=name) for name, data in _HOSTILE.items()])
def test_hostile_frames(odradek: OdradekBroker, sent: bytes) -> None:
    """11:PS-4, 11:PS-14: that connection closes, with one line in the log; others live on."""
    before = _complaints(odradek)
    with RawConnection(odradek.port) as other:
        other.call(ApiKey.API_VERSIONS, 0, _API_VERSIONS_V0)
        with RawConnection(odradek.port) as connection:
            connection.send(sent)
            assert connection.is_closed_by_peer()
        answer = other.call(ApiKey.METADATA, 1, metadata.MetadataRequest(topics=[]))
        assert isinstance(answer, metadata.MetadataResponse)
    (line,) = _complaints(odradek)[len(before) :]
    assert "127.0.0.1" in line


def _complaints(broker: OdradekBroker) -> list[str]:
    """What the broker logged, but for the ordinary."""
    return [line for line in broker.log().splitlines() if " INFO " not in line]


def test_bytes_behind_a_request_are_ignored(odradek: OdradekBroker) -> None:
    """11:PS-14: Metadata v1 with three bytes behind it is answered."""
    with RawConnection(odradek.port) as connection:
        connection.send_frame(_header(3, 1) + struct.pack(">i", 0) + b"\x01\x02\x03")
        assert connection.receive_frame()[:4] == struct.pack(">i", 7)


def test_a_produce_whose_batch_is_corrupt(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """Refused with the right code, and nothing is appended."""
    topic = new_topic()
    with RawConnection(odradek.port) as connection:
        _create(connection, topic)
        batch = bytearray(_batch(b"value"))
        batch[-1] ^= 1
        assert _produce(connection, topic, bytes(batch)) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert _produce(connection, topic, _batch(b"value")) == (ErrorCode.NONE, 0)


def test_pipelined_requests_are_answered_in_order(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """Also when one of them waits: the fetch in the middle has nothing to return for 300 ms."""
    topic = new_topic()
    with RawConnection(odradek.port) as connection:
        _create(connection, topic)
        for number in range(5):
            if number == 1:
                request, key = _fetch_request(topic, offset=1, max_wait_ms=300), ApiKey.FETCH
                connection.send_request(key, 11, number, request)
            else:
                connection.send_request(
                    ApiKey.PRODUCE, 7, number, _produce_request(topic, _batch(b"x"))
                )
        order = [int.from_bytes(connection.receive_frame()[:4], "big") for _ in range(5)]
    assert order == [0, 1, 2, 3, 4]


class _Sessions:
    """Fetches partition 0 of a topic in any session; by name below v13, by id from then on."""

    def __init__(self, connection: RawConnection, topic: str, topic_id: bytes) -> None:
        self.connection = connection
        self.topic = topic
        self.topic_id = topic_id

    def ask(
        self,
        session_id: int,
        epoch: int,
        *,
        offset: int | None = 0,
        forget: bool = False,
        version: int = 12,
    ) -> tuple[ErrorCode, int, int]:
        """Error, session id and number of partitions of the answer."""
        request = fetch.FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=[] if offset is None else [self._topic(offset)],
            forgotten_topics_data=[
                fetch.ForgottenTopic(topic=self.topic, topic_id=self.topic_id, partitions=[0])
            ]
            if forget
            else [],
        )
        answer = self.connection.call(ApiKey.FETCH, version, request)
        assert isinstance(answer, fetch.FetchResponse)
        count = sum(len(topic.partitions) for topic in answer.responses)
        return ErrorCode(answer.error_code), answer.session_id, count

    def open(self, version: int = 12) -> int:
        error, session_id, count = self.ask(0, 0, version=version)
        assert (error, count) == (ErrorCode.NONE, 1)
        assert session_id != 0
        return session_id

    def _topic(self, offset: int) -> fetch.FetchTopic:
        partition = fetch.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        return fetch.FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=[partition])


def test_fetch_sessions_row_by_row(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """11:PS-8."""
    topic = new_topic()
    unknown = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0)
    with RawConnection(odradek.port) as connection:
        sessions = _Sessions(connection, topic, _create(connection, topic))
        # (0, -1): no session. (0, 0): a new one.
        assert sessions.ask(0, -1) == (ErrorCode.NONE, 0, 1)
        first = sessions.open()
        # (n, e > 0): only what changed; a wrong epoch; an unknown session.
        assert sessions.ask(first, 1, offset=None) == (ErrorCode.NONE, first, 0)
        _produce(connection, topic, _batch(b"value"))
        assert sessions.ask(first, 2, offset=None) == (ErrorCode.NONE, first, 1)
        wrong, _, count = sessions.ask(first, 9, offset=None)
        assert (wrong, count) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
        assert sessions.ask(123_456, 1, offset=None) == unknown
        # (n, 0): n ends, another begins.
        error, second, count = sessions.ask(first, 0)
        assert (error, count) == (ErrorCode.NONE, 1)
        assert second not in (0, first)
        assert sessions.ask(first, 3, offset=None) == unknown
        # (n, -1): n ends.
        assert sessions.ask(second, -1) == (ErrorCode.NONE, 0, 1)
        assert sessions.ask(second, 1, offset=None) == unknown
        # A session that is left empty ends.
        third = sessions.open()
        assert sessions.ask(third, 1, offset=None, forget=True) == (ErrorCode.NONE, 0, 0)
        assert sessions.ask(third, 2, offset=None) == unknown
        # Made with names, continued with ids, and the reverse.
        for made, continued in ((12, 13), (13, 12)):
            session_id = sessions.open(version=made)
            error, _, _ = sessions.ask(session_id, 1, version=continued)
            assert error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_id_of_a_topic_that_is_gone(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """11:PS-7: a topic made anew under its name has another id; the old one is unknown."""
    topic = new_topic()
    with RawConnection(odradek.port) as connection:
        old_id = _create(connection, topic)
        state = delete_topics.DeleteTopicState(name=topic)
        gone = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=60_000)
        connection.call(ApiKey.DELETE_TOPICS, 6, gone)
        new_id = _create(connection, topic)
        assert new_id != old_id
        expected = {old_id: ErrorCode.UNKNOWN_TOPIC_ID, new_id: ErrorCode.NONE}
        for topic_id, error in expected.items():
            partition = produce.PartitionProduceData(index=0, records=_batch(b"value"))
            data = produce.TopicProduceData(topic_id=topic_id, partition_data=[partition])
            request = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            produced = connection.call(ApiKey.PRODUCE, 13, request)
            assert isinstance(produced, produce.ProduceResponse)
            assert produced.responses[0].partition_responses[0].error_code == error
            fetched = connection.call(ApiKey.FETCH, 17, _fetch_by_id(topic_id))
            assert isinstance(fetched, fetch.FetchResponse)
            assert fetched.responses[0].partitions[0].error_code == error


def _fetch_by_id(topic_id: bytes) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = fetch.FetchTopic(topic_id=topic_id, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[wanted])


def _named(name: str) -> api_versions.ApiVersionsRequest:
    return api_versions.ApiVersionsRequest(client_software_name=name, client_software_version="1")


def _create(connection: RawConnection, topic: str) -> bytes:
    new = create_topics.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[new])
    answer = connection.call(ApiKey.CREATE_TOPICS, 7, request)
    assert isinstance(answer, create_topics.CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    return bytes(answer.topics[0].topic_id)


def _batch(value: bytes) -> bytes:
    return bytes(build_batch([(int(time.time() * 1000), b"k", value, ())]))


def _produce_request(topic: str, batch: bytes) -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=0, records=batch)
    data = produce.TopicProduceData(name=topic, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])


def _produce(connection: RawConnection, topic: str, batch: bytes) -> tuple[ErrorCode, int]:
    answer = connection.call(ApiKey.PRODUCE, 9, _produce_request(topic, batch))
    assert isinstance(answer, produce.ProduceResponse)
    (partition,) = answer.responses[0].partition_responses
    return ErrorCode(partition.error_code), partition.base_offset


def _fetch_request(topic: str, *, offset: int, max_wait_ms: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = fetch.FetchTopic(topic=topic, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[wanted])
