"""kafka-python and aiokafka against Odradek: administration, offsets by time, versions sent."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import aiokafka
import aiokafka.admin
import pytest

from tests.conformance.clients.adaptors import AioKafka, KafkaPython, Message
from tests.conformance.clients.adaptors import kafka as kafka_python
from tests.support.group_members import wait_until
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow


def _numbered(count: int, first_ms: int) -> list[Message]:
    return [
        Message(b"k", str(number).encode(), (("h", b"1"),), first_ms + number * 100)
        for number in range(count)
    ]


def _a_minute_ago_ms() -> int:
    return int(time.time() * 1000) - 60_000


@pytest.fixture
def admin(odradek: OdradekBroker) -> Iterator[kafka_python.KafkaAdminClient]:
    client = kafka_python.KafkaAdminClient(bootstrap_servers=odradek.bootstrap)
    yield client
    client.close()


def test_kafka_python_produces_and_consumes(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """11:PS-13."""
    topic = new_topic()
    with odradek.watched() as requests:
        KafkaPython().produce(odradek.bootstrap, topic, "none", _numbered(10, _a_minute_ago_ms()))
        assert len(KafkaPython().consume(odradek.bootstrap, topic, 10)) == 10
    assert requests.without_introduction() == {
        ("InitProducerId", 4),
        ("Produce", 9),
        ("Fetch", 12),
    }


def test_kafka_python_administrates(
    odradek: OdradekBroker,
    admin: kafka_python.KafkaAdminClient,
    new_topic: Callable[[], str],
) -> None:
    """11:PS-13: create, describe, alter, delete; configs, log directories, records."""
    topic = new_topic()
    partition = kafka_python.TopicPartition(topic, 0)
    with odradek.watched() as requests:
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        admin.create_partitions({topic: 3})
        resource = kafka_python.admin.ConfigResource(
            kafka_python.admin.ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"}
        )
        admin.alter_configs([resource])
        wait_until(
            lambda: (
                admin.describe_configs([resource])["topic"][topic]["retention.ms"]["value"]
                == "3600000"
            ),
            "the change shows",
        )
        KafkaPython().produce(odradek.bootstrap, topic, "none", _numbered(10, _a_minute_ago_ms()))
        admin.delete_records({partition: 3})
        (directories,) = admin.describe_log_dirs()
        assert str(odradek.log_dir) in str(directories)
        cluster = admin.describe_cluster()
        assert [one["broker_id"] for one in cluster["brokers"]] == [0]
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
    sent = requests.without_introduction()
    assert {
        ("CreateTopics", 7),
        ("DeleteTopics", 6),
        ("DescribeCluster", 2),
        ("DescribeConfigs", 4),
        ("DescribeLogDirs", 5),
        ("CreatePartitions", 3),
        ("DeleteRecords", 2),
    } <= sent


def test_kafka_python_asks_for_times(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """11:PS-13: ListOffsets 11, the newest one."""
    topic, first_ms = new_topic(), _a_minute_ago_ms()
    KafkaPython().produce(odradek.bootstrap, topic, "lz4", _numbered(20, first_ms))
    partition = kafka_python.TopicPartition(topic, 0)
    with odradek.watched() as requests:
        consumer = kafka_python.KafkaConsumer(bootstrap_servers=odradek.bootstrap)
        try:
            found = consumer.offsets_for_times({partition: first_ms + 450})[partition]
            assert (found.offset, found.timestamp) == (5, first_ms + 500)
            assert consumer.offsets_for_times({partition: first_ms + 99_999})[partition] is None
            assert consumer.beginning_offsets([partition]) == {partition: 0}
            assert consumer.end_offsets([partition]) == {partition: 20}
        finally:
            consumer.close()
    assert requests.without_introduction() == {("ListOffsets", 11)}


def test_aiokafka_produces_and_consumes(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """11:PS-13: the oldest versions that a current client sends."""
    topic = new_topic()
    with odradek.watched() as requests:
        AioKafka().produce(odradek.bootstrap, topic, "none", _numbered(10, _a_minute_ago_ms()))
        assert len(AioKafka().consume(odradek.bootstrap, topic, 10)) == 10
    assert requests.without_introduction() == {
        ("InitProducerId", 0),
        ("Produce", 7),
        ("Fetch", 11),
    }
    assert requests.versions_of("ApiVersions") == {0}
    assert requests.versions_of("Metadata") == {5}


def test_aiokafka_administrates(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """11:PS-13: create, describe, alter, delete; configs and records."""
    topic = new_topic()
    partition = aiokafka.TopicPartition(topic, 0)
    resource = aiokafka.admin.config_resource.ConfigResource(
        aiokafka.admin.config_resource.ConfigResourceType.TOPIC, topic, {"retention.ms": "3600000"}
    )

    async def work(admin: aiokafka.admin.AIOKafkaAdminClient) -> None:
        new = aiokafka.admin.NewTopic(topic, num_partitions=2, replication_factor=1)
        await admin.create_topics([new])
        await admin.create_partitions({topic: aiokafka.admin.NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        await admin.alter_configs([resource])
        while "3600000" not in str(await admin.describe_configs([resource])):
            pass  # Stored, and about to be shown.
        await asyncio.to_thread(
            AioKafka().produce, odradek.bootstrap, topic, "none", _numbered(5, _a_minute_ago_ms())
        )
        low = await admin.delete_records({partition: aiokafka.admin.RecordsToDelete(3)})
        assert low == {partition: 3}
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()

    with odradek.watched() as requests:
        asyncio.run(_with_admin(odradek.bootstrap, work))
    assert {("CreateTopics", 3), ("DeleteTopics", 3), ("DeleteRecords", 2)} <= (
        requests.without_introduction()
    )


def test_aiokafka_asks_for_times(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """11:PS-13: ListOffsets 3, which knows no leader epoch."""
    topic, first_ms = new_topic(), _a_minute_ago_ms()
    AioKafka().produce(odradek.bootstrap, topic, "snappy", _numbered(20, first_ms))
    partition = aiokafka.TopicPartition(topic, 0)

    async def ask() -> None:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=odradek.bootstrap) as consumer:
            found = (await consumer.offsets_for_times({partition: first_ms + 450}))[partition]
            assert (found.offset, found.timestamp) == (5, first_ms + 500)
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 20}

    with odradek.watched() as requests:
        asyncio.run(ask())
    assert requests.without_introduction() == {("ListOffsets", 3)}


async def _with_admin(
    bootstrap: str, work: Callable[[aiokafka.admin.AIOKafkaAdminClient], Awaitable[None]]
) -> None:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await work(admin)
    finally:
        await admin.close()
