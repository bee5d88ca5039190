"""Produce, Fetch and OffsetCommit of many partitions: served in portions, answered as one."""

import threading
from collections.abc import Iterator

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records.builder import build_batch
from odradek.replication.delayed_fetch import MANY_PARTITIONS
from odradek.testing.broker import EmbeddedBroker
from tests.conformance.clients.raw import RawConnection

COUNT = MANY_PARTITIONS + 100


def batch(number: int) -> bytes:
    return bytes(build_batch([(1_000, None, b"%d" % number, ())]))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with EmbeddedBroker() as broker:
        found = int(broker.bootstrap_servers.rpartition(":")[2])
        with RawConnection(found) as client:
            names = ("produced", "fetched", "awaited", "awaited-in-session", "committed")
            topics = [
                CreatableTopic(name=name, num_partitions=COUNT, replication_factor=1)
                for name in names
            ]
            client.call(
                ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=60_000)
            )
        yield found


def produce(client: RawConnection, topic: str, numbers: list[int], acks: int = -1) -> None:
    rows = [PartitionProduceData(index=number, records=batch(number)) for number in numbers]
    message = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )
    answer = client.call(ApiKey.PRODUCE, 7, message)
    assert isinstance(answer, ProduceResponse)
    [told] = answer.responses
    assert [row.index for row in told.partition_responses] == numbers
    unique = {number for number in numbers if numbers.count(number) == 1 and number < COUNT}
    for row in told.partition_responses:
        if row.index in unique:
            assert row.error_code == ErrorCode.NONE
        elif row.index < COUNT:
            assert row.error_code == ErrorCode.INVALID_REQUEST
        else:
            assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def fetch_request(
    topic: str, *, session_id: int = 0, epoch: int = -1, wait_ms: int = 0, offset: int = 0
) -> FetchRequest:
    rows = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(COUNT)
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=rows)] if epoch <= 0 else [],
    )


def records_of(answer: object) -> dict[int, bytes]:
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == ErrorCode.NONE
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert all(row.error_code == ErrorCode.NONE for row in rows)
    return {row.partition_index: bytes(row.records or b"") for row in rows}


def test_each_batch_of_many_is_stored_and_an_error_is_that_of_its_partition(port: int) -> None:
    with RawConnection(port) as client:
        produce(client, "produced", [*range(COUNT - 2), COUNT + 5, 0])
        found = records_of(client.call(ApiKey.FETCH, 11, fetch_request("produced")))
    assert sorted(found) == list(range(COUNT))
    # An answer has a hundred pieces of files at most, of the first partitions that have records.
    full = [number for number, records in found.items() if records]
    assert full == list(range(1, 101))  # Partition 0 was named twice.
    for number in full:
        assert b"%d" % number in found[number]


def test_a_session_of_many_partitions_is_served_until_all_is_read(port: int) -> None:
    with RawConnection(port) as client:
        produce(client, "fetched", list(range(COUNT)))
        answer = client.call(ApiKey.FETCH, 11, fetch_request("fetched", epoch=0))
        assert isinstance(answer, FetchResponse)
        seen = {number for number, records in records_of(answer).items() if records}
        session_id = answer.session_id
        assert session_id
        epoch = 1
        while len(seen) < COUNT:
            message = fetch_request("fetched", session_id=session_id, epoch=epoch)
            news = records_of(client.call(ApiKey.FETCH, 11, message))
            assert any(news.values()), "the client would wait for ever"
            seen |= {number for number, records in news.items() if records}
            epoch += 1


@pytest.mark.parametrize("in_session", [False, True])
def test_a_fetch_of_many_partitions_waits_and_is_woken(port: int, in_session: bool) -> None:
    last = COUNT - 1
    topic = "awaited-in-session" if in_session else "awaited"
    with RawConnection(port) as reader, RawConnection(port) as writer:
        rows = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
            for number in range(COUNT)
        ]
        topics = [FetchTopic(topic=topic, partitions=rows)]
        message = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=0 if in_session else -1,
            topics=topics,
        )
        got: list[dict[int, bytes]] = []
        waiting = threading.Thread(
            target=lambda: got.append(records_of(reader.call(ApiKey.FETCH, 11, message)))
        )
        waiting.start()
        # Before or after the fetch is parked, or while its partitions are read: each must wake it.
        produce(writer, topic, [last])
        waiting.join()
    assert b"%d" % last in got[0][last]


def test_many_offsets_are_committed(port: int) -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=1_000 + number,
            committed_metadata="x" * 20_000 if number == 7 else "m" * 20,
        )
        for number in [*range(COUNT), COUNT + 1]
    ]
    message = OffsetCommitRequest(
        group_id="many",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="committed", partitions=rows)],
    )
    asked = OffsetFetchRequestTopic(name="committed", partition_indexes=list(range(COUNT)))
    with RawConnection(port) as client:
        while True:
            found = client.call(
                ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["many"])
            )
            assert isinstance(found, FindCoordinatorResponse)
            if found.coordinators[0].error_code == ErrorCode.NONE:
                break
        answer = client.call(ApiKey.OFFSET_COMMIT, 8, message)
        stored = client.call(
            ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id="many", topics=[asked])
        )
    assert isinstance(answer, OffsetCommitResponse)
    errors = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    assert errors.pop(7) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert errors.pop(COUNT + 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(errors.values()) == {ErrorCode.NONE}
    assert isinstance(stored, OffsetFetchResponse)
    offsets = {row.partition_index: row.committed_offset for row in stored.topics[0].partitions}
    assert offsets.pop(7) == -1
    assert offsets == {number: 1_000 + number for number in range(COUNT) if number != 7}
