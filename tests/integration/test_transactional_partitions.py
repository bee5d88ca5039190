"""Transactions of librdkafka on one broker: readers, groups, fencing, restarts (10 section 9)."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.testing import EmbeddedBroker
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

WAIT_S = 60
TOPIC, PARTITIONS = "t", 3


def make_topic(broker: EmbeddedBroker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        topic = NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1)
        admin.create_topics([topic])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        make_topic(broker)
        yield broker


def producer_of(broker: EmbeddedBroker) -> confluent_kafka.Producer:
    made = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
    )
    made.init_transactions(WAIT_S)
    return made


def consumer_of(
    broker: EmbeddedBroker, isolation: str = "read_committed"
) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def send(producer: confluent_kafka.Producer, name: str) -> None:
    """One record to each partition, and the broker has them."""
    for number in range(PARTITIONS):
        producer.produce(TOPIC, f"{name}-{number}".encode(), partition=number)
    assert producer.flush(WAIT_S) == 0


def values(broker: EmbeddedBroker, isolation: str = "read_committed") -> list[str]:
    """What a consumer reads before it is at the end of every partition."""
    consumer = consumer_of(broker, isolation)
    consumer.assign(
        [
            confluent_kafka.TopicPartition(TOPIC, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(PARTITIONS)
        ]
    )
    found: list[str] = []
    at_end: set[int | None] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the broker does not answer"
        error, value = message.error(), message.value()
        if error is None:
            assert value is not None
            found.append(value.decode())
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            at_end.add(message.partition())
    consumer.close()
    return sorted(found)


def expected(*names: str) -> list[str]:
    return sorted(f"{name}-{number}" for name in names for number in range(PARTITIONS))


def test_records_are_seen_whole_or_never(broker: EmbeddedBroker) -> None:
    """10:TX-1, 10:TX-2: also in the order committed, aborted, open."""
    producer = producer_of(broker)
    producer.begin_transaction()
    send(producer, "committed")
    assert values(broker) == []
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    send(producer, "aborted")
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    send(producer, "open")
    assert values(broker) == expected("committed")
    everything = expected("committed", "aborted", "open")
    assert values(broker, "read_uncommitted") == everything
    producer.commit_transaction(WAIT_S)
    assert values(broker) == expected("committed", "open")


def test_a_producer_that_was_replaced_writes_nothing(broker: EmbeddedBroker) -> None:
    """10:TX-4: its open transaction is aborted."""
    zombie = producer_of(broker)
    zombie.begin_transaction()
    send(zombie, "zombie")
    successor = producer_of(broker)
    with pytest.raises(confluent_kafka.KafkaException):
        zombie.commit_transaction(WAIT_S)
    successor.begin_transaction()
    send(successor, "successor")
    successor.commit_transaction(WAIT_S)
    assert values(broker) == expected("successor")


def committed_offset(broker: EmbeddedBroker) -> int:
    consumer = consumer_of(broker)
    asked = [confluent_kafka.TopicPartition(TOPIC, 0)]
    [found] = consumer.committed(asked, WAIT_S)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_transaction(broker: EmbeddedBroker, is_commit: bool) -> None:
    """10:TX-12: the old offset or the new one, and nothing between for who asks for stable ones."""
    producer, consumer = producer_of(broker), consumer_of(broker)
    group = consumer.consumer_group_metadata()
    for offset, is_last in [(5, False), (7, True)]:
        producer.begin_transaction()
        send(producer, str(offset))
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(TOPIC, 0, offset)], group, WAIT_S
        )
        if is_last and not is_commit:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
    consumer.close()
    assert committed_offset(broker) == (7 if is_commit else 5)


def test_an_open_transaction_survives_a_restart(tmp_path: Path) -> None:
    """10 section 8.4: leaders and groups know it again; its end counts for both."""
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with EmbeddedBroker(settings, data_dir=tmp_path) as broker:
        make_topic(broker)
        producer, consumer = producer_of(broker), consumer_of(broker)
        producer.begin_transaction()
        send(producer, "before")
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(TOPIC, 0, 3)],
            consumer.consumer_group_metadata(),
            WAIT_S,
        )
        consumer.close()
    with EmbeddedBroker(settings, data_dir=tmp_path) as broker:
        assert values(broker) == []
        send(producer, "after")
        producer.commit_transaction(WAIT_S)
        assert values(broker) == expected("before", "after")
        assert committed_offset(broker) == 3
