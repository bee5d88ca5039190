"""A Produce for one partition takes a lane of its own, and is answered as in the general way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.handlers.produce import handle_produce
from odradek.errors import ErrorCode
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.network.request import CloseConnectionResponse, NoOpResponse, Request, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.hot.single_produce import parse_single_produce
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.schema import replace
from odradek.records.compression import Codec
from odradek.security.operations import Operation, ResourceType
from tests.support.logs import batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture, parsed, topic_id
from tests.unit.broker.handlers.test_produce_and_fetch_rights import Rights

VERSIONS = [5, 6, 7, 8, 9, 12, 13]
WRITE = (Operation.WRITE, ResourceType.TOPIC, "t")


class Lanes:
    """A broker that leads two partitions of topic t, and produces to it by either lane."""

    def __init__(self, path: Path, rights: Rights) -> None:
        self.broker = BrokerFixture(log_dirs=[str(path)], authorizer=rights)
        self.broker.log_manager.startup()
        self.broker.publish_topic("t", 2)
        states = [
            PartitionState(
                topic="t",
                partition=partition,
                leader=BROKER_ID,
                leader_epoch=0,
                isr=(BROKER_ID,),
                replicas=(BROKER_ID,),
            )
            for partition in (0, 1)
        ]
        apply_local(
            self.broker.replicas,
            LocalDelta(
                controller_id=BROKER_ID,
                controller_epoch=1,
                hosted=tuple(
                    HostedPartition(state=state, topic_id=None, is_new=True) for state in states
                ),
            ),
        )

    def send(self, message: ProduceRequest, version: int, *, client_id: str = "c1") -> Request:
        request = self.broker.request(ApiKey.PRODUCE, message, version, client_id=client_id)
        # As it comes from a connection: a buffer that may be patched.
        request.payload = memoryview(bytearray(request.payload))
        answer = self.broker.call(handle_produce, request)
        if answer is not None:
            self.broker.sent.append(answer)
        return request

    def single(
        self, records: bytes | None, version: int, *, partition: int = 0, acks: int = -1
    ) -> PartitionProduceResponse:
        request = self.send(message_of(version, acks, (partition, records)), version)
        assert (acks, request.errors is None) != (0, False)
        [topic] = parsed(self.broker.sent.pop(), ProduceResponse).responses
        assert topic.topic_id == topic_id(1).bytes if version >= 13 else topic.name == "t"
        [row] = topic.partition_responses
        assert request.errors == {ErrorCode(row.error_code): 1}
        return row

    def general(self, records: bytes | None, version: int) -> PartitionProduceResponse:
        """The same for partition 1, beside one that does not exist."""
        self.send(message_of(version, -1, (1, records), (7, bytes(70))), version)
        [topic] = parsed(self.broker.sent.pop(), ProduceResponse).responses
        return topic.partition_responses[0]


def message_of(version: int, acks: int, *rows: tuple[int, bytes | None]) -> ProduceRequest:
    topic = TopicProduceData(
        name="" if version >= 13 else "t",
        topic_id=topic_id(1).bytes if version >= 13 else bytes(16),
        partition_data=[PartitionProduceData(index=index, records=each) for index, each in rows],
    )
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[topic])


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
def lanes(tmp_path: Path, rights: Rights) -> Iterator[Lanes]:
    made = Lanes(tmp_path, rights)
    yield made
    made.broker.log_manager.shutdown()


def corrupted() -> bytes:
    data = bytearray(batch(1))
    data[-1] ^= 1
    return bytes(data)


def transactional(producer_id: int) -> bytes:
    """A batch of a transaction, in requests that have no transactional id."""
    epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
    return bytes(
        batch(
            1,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("records", "error"),
    [
        pytest.param(bytes(batch(1)), ErrorCode.NONE, id="stored"),
        pytest.param(corrupted(), ErrorCode.CORRUPT_MESSAGE, id="corrupt"),
        pytest.param(bytes(batch(1)) + bytes(batch(1)), ErrorCode.INVALID_RECORD, id="two-batches"),
        pytest.param(bytes(30), ErrorCode.INVALID_RECORD, id="no-batch"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(
            transactional(7),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transactional",
        ),
        pytest.param(transactional(-1), ErrorCode.INVALID_RECORD, id="of-no-producer"),
    ],
)
def test_both_lanes_say_the_same(
    lanes: Lanes, version: int, records: bytes | None, error: ErrorCode
) -> None:
    for _ in range(2):  # The second time offsets are not 0.
        alone, beside = lanes.single(records, version), lanes.general(records, version)
        assert alone.error_code == error
        message = alone.error_message and alone.error_message.replace("t-0", "t-1")
        assert replace(alone, index=1, error_message=message) == beside
    log = lanes.broker.replicas.partitions()[0].log
    assert log is not None
    assert log.log_end_offset == (2 if error is ErrorCode.NONE else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_everyday_request_is_of_the_short_kind(version: int) -> None:
    """Otherwise everything above would compare the general way with itself."""
    request = BrokerFixture().request(
        ApiKey.PRODUCE, message_of(version, -1, (0, bytes(batch(1)))), version
    )
    assert parse_single_produce(request.payload, 0, version) is not None


@pytest.mark.parametrize("version", [5, 6])
def test_zstd_needs_a_later_version(lanes: Lanes, version: int) -> None:
    """10 section 6.1: also of a request for one partition; other codecs are taken."""
    refused = lanes.single(bytes(batch(1, codec=Codec.ZSTD)), version)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert lanes.single(bytes(batch(1, codec=Codec.GZIP)), version).error_code == ErrorCode.NONE


def test_the_answer_is_returned(lanes: Lanes) -> None:
    """Not sent by another way while the handler runs."""
    request = lanes.broker.request(
        ApiKey.PRODUCE, message_of(9, -1, (0, bytes(batch(1)))), 9, client_id="c1"
    )
    request.payload = memoryview(bytearray(request.payload))
    assert isinstance(lanes.broker.call(handle_produce, request), SendResponse)
    assert lanes.broker.sent == []


def test_who_may_not_write_is_asked_for_once_and_told(lanes: Lanes, rights: Rights) -> None:
    rights.denied = (WRITE,)
    assert lanes.single(bytes(batch(1)), 9).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert rights.asked == [WRITE]


def test_an_unknown_partition(lanes: Lanes) -> None:
    row = lanes.single(bytes(batch(1)), 9, partition=2)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_do_not_exist(lanes: Lanes, acks: int) -> None:
    assert lanes.single(bytes(batch(1)), 9, acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_0_is_not_answered(lanes: Lanes) -> None:
    lanes.send(message_of(9, 0, (0, bytes(batch(1)))), 9)
    assert isinstance(lanes.broker.sent.pop(), NoOpResponse)
    lanes.send(message_of(9, 0, (0, corrupted())), 9)
    assert isinstance(lanes.broker.sent.pop(), CloseConnectionResponse)


def test_a_client_over_its_quota_is_told_and_not_read_from(lanes: Lanes) -> None:
    lanes.broker.publish_quota(("client-id", "c1"), producer_byte_rate=1.0)
    lanes.send(message_of(9, 1, (0, bytes(batch(1)))), 9)
    answer = parsed(lanes.broker.sent.pop(), ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert lanes.broker.throttled == [answer.throttle_time_ms]
    assert answer.throttle_time_ms > 0


@pytest.mark.parametrize("version", [3, 9])
def test_no_transaction_is_opened_that_would_stop_readers_for_ever(
    lanes: Lanes, version: int
) -> None:
    """10 section 10: a read_committed consumer reads up to the first open transaction."""
    lanes.send(message_of(version, -1, (0, transactional(7))), version)
    log = lanes.broker.replicas.partitions()[0].log
    assert log is not None
    assert log.log_end_offset == log.last_stable_offset == 0


@pytest.mark.parametrize("client_id", ["c1", "__admin_client", ""])
@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["single", "general"])
def test_internal_topics_are_not_for_clients(
    lanes: Lanes, client_id: str, partitions: tuple[int, ...]
) -> None:
    """10 section 6.1: whatever client id it claims."""
    lanes.broker.publish_topic("__consumer_offsets", 2, number=2)
    rows = [PartitionProduceData(index=index, records=bytes(batch(1))) for index in partitions]
    topic = TopicProduceData(name="__consumer_offsets", partition_data=rows)
    message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])
    lanes.send(message, 9, client_id=client_id)
    [answered] = parsed(lanes.broker.sent.pop(), ProduceResponse).responses
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [row.error_code for row in answered.partition_responses] == [refused] * len(partitions)


@pytest.mark.parametrize("version", [7, 13])
def test_a_partition_that_comes_twice_is_refused(lanes: Lanes, version: int) -> None:
    """As Kafka does; the other partitions of the request are written."""
    rows = [(0, bytes(batch())), (1, bytes(batch())), (0, bytes(batch()))]
    lanes.send(message_of(version, -1, *rows), version)
    [topic] = parsed(lanes.broker.sent.pop(), ProduceResponse).responses
    assert [row.error_code for row in topic.partition_responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert lanes.single(bytes(batch()), version).base_offset == 0
