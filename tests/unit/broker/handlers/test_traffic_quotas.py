"""Produce and Fetch under the quotas of bytes and of time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.handlers.fetch import handle_fetch
from odradek.broker.handlers.produce import handle_produce
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.network.request import NoOpResponse, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.storage.segments.file_slice import FileSlice
from tests.support.logs import batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture, parsed

# Half a second of the loop, in a window of ten: 5 %.
BUSY_MS = 500
RECORDS = bytes(batch(1))


class Traffic:
    """A broker that leads partition 0 of topic t; each request takes half a second."""

    def __init__(self, path: Path) -> None:
        self.broker = BrokerFixture(log_dirs=[str(path)])
        self.broker.log_manager.startup()
        self.broker.publish_topic("t")
        state = PartitionState(
            topic="t",
            partition=0,
            leader=BROKER_ID,
            leader_epoch=0,
            isr=(BROKER_ID,),
            replicas=(BROKER_ID,),
        )
        hosted = HostedPartition(state=state, topic_id=None, is_new=True)
        apply_local(
            self.broker.replicas,
            LocalDelta(controller_id=BROKER_ID, controller_epoch=1, hosted=(hosted,)),
        )

    def limit(self, **quotas: float) -> None:
        self.broker.publish_quota(("client-id", "c1"), **quotas)

    def produce(self, acks: int = -1, *, partition_count: int = 1) -> None:
        """To one partition, or beside others that are not there."""
        rows = [
            PartitionProduceData(index=index, records=RECORDS) for index in range(partition_count)
        ]
        topic = TopicProduceData(name="t", partition_data=rows)
        message = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[topic]
        )
        request = self.broker.request(ApiKey.PRODUCE, message, 9)
        request.payload = memoryview(bytearray(request.payload))
        self.broker.clock.advance(BUSY_MS)
        answer = self.broker.call(handle_produce, request)
        if answer is not None:
            self.broker.sent.append(answer)

    def produce_throttle_ms(self, *, partition_count: int = 1) -> int:
        self.produce(partition_count=partition_count)
        return parsed(self.broker.sent.pop(), ProduceResponse).throttle_time_ms

    def fetch(self, *, replica_id: int = -1) -> SendResponse:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = FetchTopic(topic="t", partitions=[row])
        message = FetchRequest(replica_id=replica_id, max_wait_ms=0, min_bytes=0, topics=[wanted])
        request = self.broker.request(ApiKey.FETCH, message, 12)
        self.broker.clock.advance(BUSY_MS)
        assert self.broker.call(handle_fetch, request) is None
        response = self.broker.sent.pop()
        assert isinstance(response, SendResponse)
        return response


def is_empty(response: SendResponse) -> bool:
    """Whether it has no records, which come as slices of files."""
    return not any(isinstance(chunk, FileSlice) for chunk in response.chunks)


@pytest.fixture
def traffic(tmp_path: Path) -> Iterator[Traffic]:
    made = Traffic(tmp_path)
    yield made
    made.broker.log_manager.shutdown()


@pytest.mark.parametrize("partition_count", [1, 2])
def test_the_time_of_a_produce_counts(traffic: Traffic, partition_count: int) -> None:
    """13 §12.3: 5 % are above 4 %, by a quarter of ten seconds; one is the most."""
    traffic.limit(request_percentage=4.0)

    assert traffic.produce_throttle_ms(partition_count=partition_count) == 1_000
    assert traffic.broker.throttled == [1_000]


def test_the_longer_wait_counts(traffic: Traffic) -> None:
    traffic.limit(request_percentage=4.0, producer_byte_rate=1.0)

    throttle_ms = traffic.produce_throttle_ms()
    assert throttle_ms > 1_000
    assert traffic.broker.throttled == [throttle_ms]


def test_who_wants_no_answer_is_counted_by_bytes_alone(traffic: Traffic) -> None:
    traffic.limit(request_percentage=4.0)
    traffic.produce(acks=0)
    assert isinstance(traffic.broker.sent.pop(), NoOpResponse)
    assert traffic.broker.throttled == []

    traffic.limit(producer_byte_rate=1.0)
    traffic.produce(acks=0)
    assert len(traffic.broker.throttled) == 1


@pytest.mark.parametrize(
    "quotas",
    [{"request_percentage": 4.0}, {"consumer_byte_rate": 1.0}],
    ids=lambda quotas: next(iter(quotas)),
)
def test_a_fetch_that_has_to_wait_is_empty(traffic: Traffic, quotas: dict[str, float]) -> None:
    traffic.produce()
    traffic.broker.sent.clear()
    traffic.limit(**quotas)

    response = traffic.fetch()
    assert is_empty(response)
    throttle_ms = parsed(response, FetchResponse).throttle_time_ms
    assert throttle_ms > 0
    assert traffic.broker.throttled == [throttle_ms]


def test_bytes_that_are_kept_back_for_another_quota_do_not_count(traffic: Traffic) -> None:
    traffic.produce()
    traffic.broker.sent.clear()
    # One answer is within ten seconds' worth; two would not be.
    traffic.limit(request_percentage=4.0, consumer_byte_rate=len(RECORDS) / 10 * 1.5)
    assert is_empty(traffic.fetch())

    traffic.limit(consumer_byte_rate=len(RECORDS) / 10 * 1.5)
    assert not is_empty(traffic.fetch())


def test_followers_have_no_quota(traffic: Traffic) -> None:
    """13 §12.1: requests between brokers are exempt."""
    traffic.produce()
    traffic.broker.sent.clear()
    traffic.limit(request_percentage=4.0, consumer_byte_rate=1.0)

    traffic.fetch(replica_id=1)
    assert traffic.broker.throttled == []
