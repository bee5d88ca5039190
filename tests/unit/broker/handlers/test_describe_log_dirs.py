"""DescribeLogDirs and DescribeProducers, on real logs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from odradek.broker.handlers.describe_producers import handle_describe_producers
from odradek.errors import ErrorCode
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.support.logs import T0, batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, topic_id


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerFixture]:
    fixture = BrokerFixture(log_dirs=[str(tmp_path / "one"), str(tmp_path / "two")])
    fixture.log_manager.startup()
    fixture.publish_topic("t", 2, number=1)
    hosted = tuple(
        HostedPartition(state=state, topic_id=topic_id(1), is_new=True)
        for state in fixture.cache.image.topics["t"].partitions.values()
    )
    apply_local(fixture.replicas, LocalDelta(controller_id=0, controller_epoch=0, hosted=hosted))
    yield fixture
    fixture.log_manager.shutdown()


def describe(
    broker: BrokerFixture, topics: list[DescribableLogDirTopic] | None = None, version: int = 4
) -> DescribeLogDirsResponse:
    return broker.ask(
        handle_describe_log_dirs,
        ApiKey.DESCRIBE_LOG_DIRS,
        DescribeLogDirsRequest(topics=topics),
        version,
        DescribeLogDirsResponse,
    )


@pytest.mark.parametrize("version", range(1, 5))
def test_directories_with_their_partitions_and_volumes(
    broker: BrokerFixture, version: int, tmp_path: Path
) -> None:
    log = broker.log_manager.get_log(TopicPartition("t", 0))
    assert log is not None
    log.append_as_leader(batch(3), leader_epoch=0)
    answer = describe(broker, version=version)
    assert answer.error_code == 0
    assert [row.log_dir for row in answer.results] == [str(tmp_path / "one"), str(tmp_path / "two")]
    sizes = {
        (topic.name, row.partition_index): (row.partition_size, row.offset_lag, row.is_future_key)
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
    }
    assert sizes == {("t", 0): (len(batch(3)), 0, False), ("t", 1): (0, 0, False)}
    if version >= 4:
        volume = os.statvfs(tmp_path)
        assert answer.results[0].total_bytes == volume.f_blocks * volume.f_frsize
        assert 0 < answer.results[0].usable_bytes <= answer.results[0].total_bytes


def test_only_the_partitions_asked_for_in_every_directory(broker: BrokerFixture) -> None:
    topics = [DescribableLogDirTopic(topic="t", partitions=[1, 7])]
    answer = describe(broker, topics)
    assert len(answer.results) == 2
    found = [
        row.partition_index
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
    ]
    assert found == [1]


def test_a_directory_that_failed(broker: BrokerFixture) -> None:
    broker.log_manager.directories[1].fail("test", OSError("gone"))
    first, second = describe(broker).results
    assert first.error_code == 0
    assert (second.error_code, second.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
    assert (second.total_bytes, second.usable_bytes) == (-1, -1)


def producers(broker: BrokerFixture, topic: str, partition: int) -> PartitionResponse:
    answer = broker.ask(
        handle_describe_producers,
        ApiKey.DESCRIBE_PRODUCERS,
        DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])]),
        0,
        DescribeProducersResponse,
    )
    assert answer.topics[0].name == topic
    return answer.topics[0].partitions[0]


class CountedProducer:
    """A producer of a log; counts how often one is told of."""

    told = 0
    producer_epoch = coordinator_epoch = last_timestamp = 0
    current_transaction_first_offset = None
    batches = ()

    @property
    def producer_id(self) -> int:
        CountedProducer.told += 1
        return CountedProducer.told


def test_many_producers_are_told_of_in_steps(broker: BrokerFixture) -> None:
    """02 section 12: a client may have any number of producers write to one partition."""
    log = broker.log_manager.get_log(TopicPartition("t", 0))
    assert log is not None
    many: dict[int, Any] = {number: CountedProducer() for number in range(1_000)}
    log.producer_state.producers.update(many)
    topics = [TopicRequest(name="t", partition_indexes=[0])]
    request = broker.request(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=topics), 0)
    steps = handle_describe_producers.__wrapped__(request, broker.context)  # type: ignore[attr-defined]  # of in_slices
    before, most = 0, 0
    for _ in steps:
        most = max(most, CountedProducer.told - before)
        before = CountedProducer.told
    assert before == 1_000
    assert most <= 50


def test_producers_a_log_remembers(broker: BrokerFixture) -> None:
    log = broker.log_manager.get_log(TopicPartition("t", 0))
    assert log is not None
    for producer_id, transactional in ((9, False), (4, True)):
        log.append_as_leader(
            batch(
                2,
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=0,
                is_transactional=transactional,
            ),
            leader_epoch=0,
        )
    result = producers(broker, "t", 0)
    assert (result.partition_index, result.error_code) == (0, 0)
    assert {
        (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in result.active_producers
    } == {(4, 1, 1, 2), (9, 1, 1, -1)}
    assert {(p.coordinator_epoch, p.last_timestamp) for p in result.active_producers} == {
        (-1, T0 + 1)
    }


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no name!", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_partitions_that_are_not_here(
    broker: BrokerFixture, topic: str, partition: int, code: ErrorCode
) -> None:
    broker.publish_topic("elsewhere", number=2)
    result = producers(broker, topic, partition)
    assert (result.error_code, result.active_producers) == (code, ())
