"""librdkafka against Odradek: the current one through confluent-kafka, an old one through kcat."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.conformance.clients.adaptors import CODECS, AioKafka, KafkaPython, Librdkafka, Message
from tests.support.group_members import wait_until
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow

_TIMEOUT_S = 90


@pytest.fixture
def admin(odradek: OdradekBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": odradek.bootstrap})


@pytest.fixture
def consumer(odradek: OdradekBroker) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": odradek.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    yield consumer
    consumer.close()


def _create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, config=settings)
    admin.create_topics([new])[topic].result(_TIMEOUT_S)


def _now_ms() -> int:
    return int(time.time() * 1000)


def test_admin_round_trip(
    odradek: OdradekBroker, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    """11:PS-13: what its admin client sends, and that each call does what it says."""
    topic = new_topic()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with odradek.watched() as requests:
        _create(admin, topic, 2, retention_ms="3600000")
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            _create(admin, topic)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(_TIMEOUT_S)
        partitions = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        assert sorted(partitions) == [0, 1, 2, 3]
        assert {(one.leader, *one.replicas, *one.isrs) for one in partitions.values()} == {
            (0, 0, 0)
        }

        change = ConfigEntry(
            "max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET
        )
        altered = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        admin.incremental_alter_configs([altered])[altered].result(_TIMEOUT_S)

        def described() -> tuple[str, str]:
            configs = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
            return configs["max.message.bytes"].value, configs["retention.ms"].value

        wait_until(lambda: described() == ("2000000", "3600000"), "the change shows")

        Librdkafka().produce(odradek.bootstrap, topic, "none", _numbered(10))
        partition = TopicPartition(topic, 0)
        deleted = admin.delete_records([TopicPartition(topic, 0, 4)])
        assert deleted[partition].result(_TIMEOUT_S).low_watermark == 4
        first: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # theirs
        earliest = admin.list_offsets({partition: first})
        assert earliest[partition].result(_TIMEOUT_S).offset == 4

        admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
        assert topic not in admin.list_topics(timeout=_TIMEOUT_S).topics
    assert requests.without_introduction() == {
        ("CreateTopics", 4),
        ("CreatePartitions", 2),
        ("IncrementalAlterConfigs", 1),
        ("DescribeConfigs", 1),
        ("InitProducerId", 4),
        ("Produce", 10),
        ("DeleteRecords", 2),
        ("ListOffsets", 7),
        ("DeleteTopics", 4),
    }


def test_a_broken_setting_is_refused_by_name(
    admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    with pytest.raises(KafkaException, match=r"INVALID_CONFIG.*segment\.bytes"):
        _create(admin, new_topic(), segment_bytes="many")


def test_fetches_by_topic_id(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """11:PS-7, 11:PS-13: Produce 10, Fetch 16, and no coordinator for a manual assignment."""
    topic = new_topic()
    with odradek.watched() as requests:
        Librdkafka().produce(odradek.bootstrap, topic, "zstd", _numbered(10))
        assert len(Librdkafka().consume(odradek.bootstrap, topic, 10)) == 10
    sent = requests.without_introduction()
    assert {("InitProducerId", 4), ("Produce", 10), ("Fetch", 16)} <= sent
    assert requests.versions_of("Fetch") == {16}


def test_offsets_by_time(
    odradek: OdradekBroker, admin: AdminClient, consumer: Consumer, new_topic: Callable[[], str]
) -> None:
    """First offset at or after a time, the end if there is none, the greatest timestamp."""
    topic, first_ms = new_topic(), _now_ms() - 60_000
    Librdkafka().produce(odradek.bootstrap, topic, "lz4", _numbered(100, first_ms, step_ms=100))
    partition = TopicPartition(topic, 0)

    def offset_for(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], _TIMEOUT_S)
        offset: int = found.offset
        return offset

    assert offset_for(first_ms - 1) == 0
    assert offset_for(first_ms + 4200) == 42
    assert offset_for(first_ms + 4201) == 43
    assert offset_for(first_ms + 9901) == -1  # OFFSET_END
    assert consumer.get_watermark_offsets(partition, _TIMEOUT_S) == (0, 100)
    last: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # theirs
    found = admin.list_offsets({partition: last})[partition].result(_TIMEOUT_S)
    assert (found.offset, found.timestamp) == (99, first_ms + 9900)


def test_log_append_time(
    odradek: OdradekBroker, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    _create(admin, topic, message_timestamp_type="LogAppendTime")
    before_ms = _now_ms()
    Librdkafka().produce(odradek.bootstrap, topic, "gzip", _numbered(5, first_ms=1))
    after_ms = _now_ms()
    for client in (Librdkafka(), KafkaPython(), AioKafka()):
        read = client.consume(odradek.bootstrap, topic, 5)
        assert all(before_ms <= one.timestamp_ms <= after_ms for one in read), client.name


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(odradek: OdradekBroker, new_topic: Callable[[], str], acks: str) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": odradek.bootstrap, "acks": acks})
    for number in range(100):
        producer.produce(topic, value=str(number), partition=0)
    assert producer.flush(_TIMEOUT_S) == 0
    read = Librdkafka().consume(odradek.bootstrap, topic, 100)
    assert [one.value for one in read] == [str(number).encode() for number in range(100)]


def test_absent_keys_values_and_empty_ones(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": odradek.bootstrap})
    sent = [(None, None), (b"", b""), (b"\x00\xff", None), (None, b"\xc3\x28")]
    for key, value in sent:
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(_TIMEOUT_S) == 0
    for client in (Librdkafka(), KafkaPython(), AioKafka()):
        read = client.consume(odradek.bootstrap, topic, len(sent))
        assert [(one.key, one.value) for one in read] == sent, client.name


def test_large_messages(
    odradek: OdradekBroker, admin: AdminClient, new_topic: Callable[[], str]
) -> None:
    """5 MB pass where the topic allows them, and are refused by name where it does not."""
    large, small = new_topic(), new_topic()
    _create(admin, large, max_message_bytes="6000000")
    _create(admin, small)
    content = bytes(range(256)) * 20_000
    messages = [Message(b"key", content, (("size", b"5 MB"),), _now_ms())]
    clients = (Librdkafka(), KafkaPython(), AioKafka())
    for client in clients:
        client.produce(odradek.bootstrap, large, "none", messages)
    for client in clients:
        read = client.consume(odradek.bootstrap, large, len(clients))
        assert [one.value == content for one in read] == [True] * len(clients), client.name
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        Librdkafka().produce(odradek.bootstrap, small, "none", messages)


def test_five_hundred_partitions(
    odradek: OdradekBroker, admin: AdminClient, consumer: Consumer, new_topic: Callable[[], str]
) -> None:
    topic, count = new_topic(), 500
    _create(admin, topic, count)
    producer = Producer({"bootstrap.servers": odradek.bootstrap, "linger.ms": 50})
    for partition in range(count):
        producer.produce(topic, value=str(partition), partition=partition)
    assert producer.flush(_TIMEOUT_S) == 0

    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    read: dict[int | None, bytes | str | None] = {}
    while len(read) < count:
        messages = consumer.consume(count, _TIMEOUT_S)
        assert messages, f"only {len(read)} of {count} came"
        for message in messages:
            assert message.error() is None
            read[message.partition()] = message.value()
    assert read == {partition: str(partition).encode() for partition in range(count)}
    admin.delete_topics([topic])[topic].result(_TIMEOUT_S)


def test_a_topic_made_anew_under_its_name(
    odradek: OdradekBroker, admin: AdminClient, consumer: Consumer, new_topic: Callable[[], str]
) -> None:
    """11:PS-7: a client that knows the old id goes on with the new topic."""
    topic = new_topic()
    _create(admin, topic)
    producer = Producer({"bootstrap.servers": odradek.bootstrap, "acks": "all"})
    for _ in range(3):  # More than the new one will have, so that the old position is beyond it.
        producer.produce(topic, value=b"old", partition=0)
    assert producer.flush(_TIMEOUT_S) == 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [one.value() for one in consumer.consume(3, _TIMEOUT_S)] == [b"old"] * 3

    admin.delete_topics([topic])[topic].result(_TIMEOUT_S)
    _create(admin, topic)
    producer.produce(topic, value=b"new", partition=0)
    assert producer.flush(_TIMEOUT_S) == 0
    deadline = time.monotonic() + _TIMEOUT_S
    seen: list[object] = []
    while b"new" not in seen and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value())
    assert seen == [b"new"]


# kcat


def _kcat(*args: str, lines: str = "") -> str:
    if shutil.which("kcat") is None:
        pytest.skip("no kcat on the path; Debian's package is kcat")
    result = subprocess.run(
        # Its own patience is five seconds otherwise.
        ["kcat", "-m", "60", *args],
        input=lines,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "ERROR" not in result.stderr
    return result.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_kcat_writes_and_reads(
    odradek: OdradekBroker, new_topic: Callable[[], str], codec: str
) -> None:
    """11:PS-13: an old librdkafka; keys, headers and every codec."""
    topic = new_topic()
    lines = "".join(f"key-{number}:{'value ' * 50}{number}\n" for number in range(200))
    with odradek.watched() as requests:
        _kcat(
            *("-P", "-b", odradek.bootstrap, "-t", topic, "-p", "0", "-z", codec),
            *("-K", ":", "-H", "from=kcat", "-X", "enable.idempotence=true"),
            lines=lines,
        )
        told = _kcat("-C", "-b", odradek.bootstrap, "-t", topic, "-p", "0", "-o", "0", "-e", "-J")
    read = [json.loads(line) for line in told.splitlines()]
    assert "".join(f"{one['key']}:{one['payload']}\n" for one in read) == lines
    assert [one["offset"] for one in read] == list(range(200))
    assert {tuple(one["headers"]) for one in read} == {("from", "kcat")}
    sent = requests.without_introduction()
    assert {("Produce", 7), ("Fetch", 11)} <= sent
    assert len(requests.versions_of("Produce") | requests.versions_of("Fetch")) == 2


def test_kcat_describes_and_asks_for_times(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """11:PS-13: ListOffsets 2, the oldest that anybody sends."""
    topic, first_ms = new_topic(), _now_ms() - 60_000
    Librdkafka().produce(odradek.bootstrap, topic, "none", _numbered(10, first_ms, step_ms=10))
    told = json.loads(_kcat("-L", "-J", "-b", odradek.bootstrap, "-t", topic))
    (described,) = told["topics"]
    assert (described["topic"], len(described["partitions"])) == (topic, 1)
    assert told["brokers"] == [{"id": 0, "name": odradek.bootstrap}]
    with odradek.watched() as requests:
        told_offset = _kcat("-Q", "-b", odradek.bootstrap, "-t", f"{topic}:0:{first_ms + 45}")
    assert told_offset.strip() == f"{topic} [0] offset 5"
    assert requests.without_introduction() == {("ListOffsets", 2)}


def _numbered(count: int, first_ms: int | None = None, step_ms: int = 1) -> list[Message]:
    start_ms = _now_ms() - 1000 if first_ms is None else first_ms
    return [
        Message(
            key=f"key-{number}".encode(),
            value=f"value-{number}".encode(),
            headers=(("number", str(number).encode()),),
            timestamp_ms=start_ms + number * step_ms,
        )
        for number in range(count)
    ]
