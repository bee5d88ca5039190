"""Producer and Admin against Odradek and Apache Kafka: the same checks, the same outcome."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from odradek import Admin, Producer, aio
from odradek.client import EARLIEST, LATEST
from odradek.client.admin import (
    ANY_NAME,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    GroupDescription,
    LogDir,
    NewTopic,
    QuotaEntity,
)
from odradek.client.cluster import TopicView
from odradek.client.consumer import OffsetAndMetadata
from odradek.client.partitioner import partition_of_key
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, running_broker, why_missing
from tests.support.ports import free_port
from tests.support.proxy import proxied

pytestmark = pytest.mark.slow

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Long enough for two slow cores; nothing takes so long when it works.
WAIT_S = 60
_numbers = itertools.count()


def new_topic(bootstrap: str, partitions: int, **configs: str) -> str:
    topic = f"topic-{next(_numbers)}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        new = NewTopic(
            name=topic, partition_count=partitions, replication_factor=1, configs=configs
        )
        created = admin.create_topics([new])[topic]
        assert not isinstance(created, ApiError), created

        def is_there() -> bool:
            told = admin.describe_topics([topic])[topic]
            return isinstance(told, TopicView) and all(one.leader >= 0 for one in told.partitions)

        # Apache Kafka answers before its broker knows of the topic.
        eventually(is_there, f"{topic} has leaders")
    return topic


def read_all(bootstrap: str, topic: str, count: int, partitions: int) -> dict[int, list[Any]]:
    """So many messages of a topic by partition, read by a client that is not ours."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    )
    found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
        )
        deadline = time.monotonic() + WAIT_S
        seen = 0
        while seen < count and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=0.5):
                partition = message.partition()
                if message.error() is None and partition is not None:
                    found[partition].append(message)
                    seen += 1
    finally:
        consumer.close()
    assert sum(map(len, found.values())) == count
    return found


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(0.05)


def check_records_arrive_as_they_were_sent(bootstrap: str) -> None:
    """09:CL-10, 09:CL-11."""
    topic = new_topic(bootstrap, 3)
    headers = [("a", b"1"), ("a", None), ("ü", b"")]
    expected: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec}
        with Producer(settings) as producer:
            sent = []
            for number in range(30):
                key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"k%d" % number
                value = None if number == 7 else f"{codec} {number}".encode() * 9
                delivery = producer.send(
                    topic, value, key, headers if number % 2 else None, timestamp=1_000 + number
                )
                sent.append((key, value, headers if number % 2 else None, 1_000 + number, delivery))
        for key, value, some, timestamp, delivery in sent:
            found = delivery.result(WAIT_S)
            assert found.timestamp == timestamp
            if key is not None:
                assert found.partition == partition_of_key(key, 3)
            assert found.offset == len(expected[found.partition])
            expected[found.partition].append((key, value, some, timestamp))
    read = read_all(bootstrap, topic, 30 * len(CODECS), 3)
    for partition, messages in read.items():
        assert [
            (one.key(), one.value(), one.headers(), one.timestamp()[1]) for one in messages
        ] == expected[partition]


def check_the_awaited_face_does_the_same(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2)

    async def work() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap, acks=1) as producer:
            sent = [await producer.send(topic, b"%d" % n, partition=n % 2) for n in range(100)]
            offsets = [(await one).offset for one in sent]
            assert offsets == [n // 2 for n in range(100)]
        async with aio.Admin(bootstrap_servers=bootstrap) as admin:
            partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
            assert [end.offset for end in ends.values() if not isinstance(end, ApiError)] == [
                50,
                50,
            ]

    asyncio.run(work())


def check_without_a_key_batches_are_full_and_spread(bootstrap: str) -> None:
    """09:CL-12, 09:CL-13."""
    topic = new_topic(bootstrap, 4)
    settings = {"bootstrap.servers": bootstrap, "batch.size": 4_000, "linger.ms": 1_000}
    with Producer(settings) as producer:
        for _ in range(4_000):
            producer.send(topic, b"x" * 100)
        producer.flush(WAIT_S)
        figures = producer.metrics()
    assert figures["record-send-total"] == 4_000
    assert figures["record-error-total"] == 0
    assert figures["batch-size-avg"] > 3_000
    read = read_all(bootstrap, topic, 4_000, 4)
    assert all(read.values())  # A hundred full batches at random leave no partition out.


def check_tables_arrive_row_by_row(bootstrap: str) -> None:
    """09:CL-17: what a client that is not ours reads is what the rows say."""
    topic = new_topic(bootstrap, 3)
    count = 2_000
    keys = [None if n % 3 == 0 else b"k%d" % (n % 40) for n in range(count)]
    headers = [None if n % 2 else [("n", b"%d" % n), ("none", None)] for n in range(count)]
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([f"value {n}" for n in range(count)], pa.string()),
            "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
            "timestamp": pa.array(range(1_000, 1_000 + count), pa.int64()),
        }
    )
    for codec in CODECS:
        with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            found = producer.send_arrow(topic, table).result(WAIT_S)
            assert found.record_count == sum(one.record_count for one in found.ranges) == count
    read = read_all(bootstrap, topic, count * len(CODECS), 3)
    by_turn: list[set[int]] = [set() for _ in CODECS]
    for partition, messages in read.items():
        turn, last = 0, -1
        for message in messages:
            number = message.timestamp()[1] - 1_000
            if number < last:
                turn += 1
            last = number
            by_turn[turn].add(number)
            assert message.value() == f"value {number}".encode()
            assert (message.key(), message.headers()) == (keys[number], headers[number])
            if message.key() is not None:
                assert partition == partition_of_key(message.key(), 3)
    # Each table is whole, and every partition holds the rows of each in their order.
    assert by_turn == [set(range(count))] * len(CODECS)


def check_threads_share_a_producer(bootstrap: str) -> None:
    """09:CL-10, 09:CL-14: each record once, and those of a thread in the order of its sends."""
    topic = new_topic(bootstrap, 3)
    deliveries: list[list[Any]] = [[] for _ in range(4)]
    with Producer(bootstrap_servers=bootstrap, buffer_memory=400_000) as producer:

        def work(worker: int) -> None:
            for number in range(2_500):
                value = b"%d %d " % (worker, number) + b"x" * (number % 300)
                key = None if number % 2 else b"%d" % (number % 7)
                deliveries[worker].append(producer.send(topic, value, key))

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        producer.flush(WAIT_S)
        assert producer.metrics()["buffer-available-bytes"] == 400_000
    read = read_all(bootstrap, topic, 10_000, 3)
    at = {
        (message.partition(), message.offset()): message
        for messages in read.values()
        for message in messages
    }
    for worker, some in enumerate(deliveries):
        assert len(some) == 2_500
        for number, delivery in enumerate(some):
            found = delivery.result(0)
            message = at.pop((found.partition, found.offset))
            assert message.value().startswith(b"%d %d " % (worker, number))
        places = [(one.result(0).partition, one.result(0).offset) for one in some]
        for partition in range(3):
            offsets = [offset for found, offset in places if found == partition]
            assert offsets == sorted(offsets)
    assert at == {}


def check_a_refused_record_spares_the_others(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2, **{"max.message.bytes": "2000"})
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20}
    with Producer(settings, on_error=lambda _failed: None) as producer:
        small = [producer.send(topic, b"%d" % n * 300, partition=0) for n in range(10)]
        large = producer.send(topic, b"x" * 5_000, partition=1)
        after = producer.send(topic, b"after", partition=1)
        error = large.exception(WAIT_S)
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        # Ten records of 300 bytes were too large together, and are split until they fit.
        assert [one.result(WAIT_S).offset for one in small] == list(range(10))
        assert after.result(WAIT_S).offset == 0


def check_topics_and_partitions(bootstrap: str) -> None:
    """09:CL-31."""
    topic = new_topic(bootstrap, 1, **{"retention.ms": "3600000"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        bad = NewTopic(name="no good!", partition_count=1, replication_factor=1)
        other = NewTopic(name=f"{topic}-b", partition_count=1, replication_factor=1)
        results = admin.create_topics([bad, other])
        assert isinstance(error := results["no good!"], ApiError)
        assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert not isinstance(results[other.name], ApiError)
        assert isinstance(error := admin.create_topics([other])[other.name], ApiError)
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert admin.create_partitions({topic: 3}) == {topic: 3}

        def has_three() -> bool:
            told = admin.describe_topics([topic])[topic]
            return isinstance(told, TopicView) and len(told.partitions) == 3

        eventually(has_three, "the topic has three partitions")
        assert {topic, other.name} <= set(admin.list_topics())
        gone = admin.delete_topics([other.name, "nowhere"])
        assert gone[other.name] is None
        missing = gone["nowhere"]
        assert missing is not None
        assert missing.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        eventually(lambda: other.name not in admin.list_topics(), "the topic is gone")
        assert isinstance(admin.describe_topics(["nowhere"])["nowhere"], ApiError)


def check_records_and_producers(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2)
    tp, empty, missing = (TopicPartition(topic, number) for number in (0, 1, 9))
    with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Producer(bootstrap_servers=bootstrap) as sender,
    ):
        for number in range(10):
            sender.send(topic, b"%d" % number, partition=0, timestamp=1_000 + number)
        sender.flush(WAIT_S)
        found = admin.list_offsets({tp: LATEST, empty: LATEST, missing: LATEST})
        assert [getattr(found[one], "offset", None) for one in (tp, empty)] == [10, 0]
        assert isinstance(found[missing], ApiError)
        by_time = admin.list_offsets({tp: 1_004})[tp]
        assert getattr(by_time, "offset", None) == 4
        deleted = admin.delete_records({tp: 3, empty: 5})
        assert deleted[tp] == 3
        assert isinstance(error := deleted[empty], ApiError)
        assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert getattr(admin.list_offsets({tp: EARLIEST})[tp], "offset", None) == 3
        (state,) = admin.describe_producers([tp])[tp]  # type: ignore[misc]  # not an error
        assert state.last_sequence == 9


def check_configs_and_quotas(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 1)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    missing = ConfigResource(ConfigResourceType.TOPIC, "nowhere")
    entity = QuotaEntity.of({"client-id": "somebody"})
    with Admin(bootstrap_servers=bootstrap) as admin:
        change = {resource: [ConfigOperation.set("retention.ms", "1234567")]}
        assert admin.incremental_alter_configs(change, validate_only=True) == {resource: None}
        assert admin.incremental_alter_configs(change) == {resource: None}

        def is_set() -> bool:
            entries = admin.describe_configs([resource])[resource]
            if isinstance(entries, ApiError):
                return False  # The broker has not heard of the topic yet.
            (one,) = [entry for entry in entries if entry.name == "retention.ms"]
            return (one.value, one.source) == ("1234567", ConfigSource.DYNAMIC_TOPIC)

        eventually(is_set, "the setting is there")
        refused = admin.incremental_alter_configs(
            {resource: [ConfigOperation.set("retention.ms", "soon")]}
        )[resource]
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_CONFIG
        assert isinstance(admin.describe_configs([missing])[missing], ApiError)

        assert admin.alter_client_quotas({entity: {"producer_byte_rate": 1e9}}) == {entity: None}
        wanted = {entity: {"producer_byte_rate": 1e9}}
        eventually(
            lambda: admin.describe_client_quotas({"client-id": ANY_NAME}) == wanted,
            "the quota is there",
        )
        assert admin.alter_client_quotas({entity: {"producer_byte_rate": None}}) == {entity: None}
        eventually(
            lambda: not admin.describe_client_quotas({"client-id": "somebody"}), "it is gone"
        )


def check_the_cluster(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2)
    tp = TopicPartition(topic, 1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        told = admin.describe_cluster()
        (node,) = told.nodes
        assert f"{node.host}:{node.port}" == bootstrap
        assert told.controller == node

        def log_dir() -> LogDir:
            dirs = admin.describe_log_dirs()[node.id]
            assert not isinstance(dirs, ApiError)
            (told,) = dirs.values()
            assert not isinstance(told, ApiError)
            return told

        # Apache Kafka answers CreateTopics before its broker has made the partitions.
        eventually(lambda: tp in log_dir().replicas, "the partition is in the directory")
        assert log_dir().total_bytes > log_dir().usable_bytes > 0
        assert isinstance(admin.describe_log_dirs([77])[77], ApiError)
        (versions,) = admin.describe_api_versions()
        assert {"PRODUCE", "FETCH"} <= {row.name for row in versions.apis}
        elected = admin.elect_leaders(ElectionType.PREFERRED, [tp])
        error = elected.get(tp)
        assert error is None or error.code is ErrorCode.ELECTION_NOT_NEEDED
        assert admin.list_partition_reassignments() == {}


def check_groups(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2)
    group = f"group of {topic}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = {first: OffsetAndMetadata(0, "note"), second: OffsetAndMetadata(0, "")}
        admin.alter_group_offsets(group, offsets, timeout=WAIT_S)
        assert group in [one.group_id for one in admin.list_groups()]
        told = admin.describe_groups([group, "nowhere"])
        described = told[group]
        assert isinstance(described, GroupDescription)
        assert (described.state, described.members) == ("Empty", ())
        assert isinstance(error := told["nowhere"], ApiError)
        assert error.code is ErrorCode.GROUP_ID_NOT_FOUND
        committed = admin.list_group_offsets([group])[group]
        assert not isinstance(committed, ApiError)
        assert {tp: (one.offset, one.metadata) for tp, one in committed.items()} == {
            first: (0, "note"),
            second: (0, ""),
        }
        assert admin.delete_group_offsets(group, [second]) == {second: None}
        rest = admin.list_group_offsets([group])[group]
        assert not isinstance(rest, ApiError)
        assert list(rest) == [first]
        assert admin.delete_groups([group]) == {group: None}
        assert group not in [one.group_id for one in admin.list_groups()]


CHECKS = (
    check_records_arrive_as_they_were_sent,
    check_the_awaited_face_does_the_same,
    check_without_a_key_batches_are_full_and_spread,
    check_tables_arrive_row_by_row,
    check_threads_share_a_producer,
    check_a_refused_record_spares_the_others,
    check_topics_and_partitions,
    check_records_and_producers,
    check_configs_and_quotas,
    check_the_cluster,
    check_groups,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_against_odradek(check: Callable[[str], None], odradek: str) -> None:
    check(odradek)


@pytest.fixture(scope="module")
def odradek() -> Any:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.kafka
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_against_apache_kafka(version: str, tmp_path: Path) -> None:
    """09:CL-3: Kafka 4.x and 3.9 with the same code. One broker for all: to start one is dear."""
    install = find_kafka(version)
    if install is None:
        pytest.skip(why_missing(version))
    with running_broker(install, tmp_path) as broker:
        for check in CHECKS:
            check(broker.bootstrap)


# Faults.


def broker_at(port: int, data_dir: Path, **settings: str) -> AbstractContextManager[EmbeddedBroker]:
    return EmbeddedBroker(
        {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **settings}, data_dir=data_dir
    )


def test_restarts_of_the_broker_lose_and_double_nothing(tmp_path: Path) -> None:
    """One request at a time: of what it had before a restart, a broker knows the last batch only.

    Kafka's snapshot of producers has room for one. Of several batches whose answers got lost with
    the broker, the earlier ones are refused as out of order, and a client cannot tell why.
    """
    port = free_port()
    bootstrap = f"127.0.0.1:{port}"
    sent = []
    with broker_at(port, tmp_path):
        topic = new_topic(bootstrap, 2)
        producer = Producer(
            bootstrap_servers=bootstrap,
            batch_size=500,
            linger_ms=1,
            max_in_flight_requests_per_connection=1,
        )
        sent += [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(500)]
        sent[0].result(WAIT_S)
    try:
        # Nobody is there; records wait in the buffer.
        sent += [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(500, 1_000)]
        with broker_at(port, tmp_path):
            sent += [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(1_000, 1_500)]
            producer.flush(WAIT_S)
            offsets = [one.result().offset for one in sent]
            with Admin(bootstrap_servers=bootstrap) as admin:
                ends = admin.list_offsets({TopicPartition(topic, n): LATEST for n in (0, 1)})
            assert [getattr(end, "offset", end) for end in ends.values()] == [750, 750]
            read = read_all(bootstrap, topic, 1_500, 2)
            # -1 where the broker had a batch from the attempt before.
            offsets = [n // 2 if found < 0 else found for n, found in enumerate(offsets)]
            assert offsets == [n // 2 for n in range(1_500)]
            for partition, messages in read.items():
                values = [int(one.value()) for one in messages]
                assert values == list(range(partition, 1_500, 2))
    finally:
        producer.close(timeout=1)


@pytest.mark.parametrize("damage", ["cut", "half_close", "swallow"])
def test_a_damaged_way_to_the_broker_loses_and_doubles_nothing(damage: str, tmp_path: Path) -> None:
    """09:TV-15b, as it happens: answers that never come, connections that end halfway."""
    port, real_port = free_port(), free_port()
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{real_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    with EmbeddedBroker(listeners, data_dir=tmp_path), proxied(port) as proxy:
        proxy.broker_port = real_port
        bootstrap = f"127.0.0.1:{port}"
        topic = new_topic(bootstrap, 1)
        settings: dict[str, Any] = {"batch_size": 300, "linger_ms": 0, "request_timeout_ms": 10_000}
        with Producer(bootstrap_servers=bootstrap, **settings) as producer:
            sent = []
            for turn in range(4):
                sent += [producer.send(topic, b"%d" % n) for n in range(turn * 50, turn * 50 + 50)]
                if turn == 3:
                    break
                if damage == "swallow":
                    # The broker stores, the client does not hear of it, and gives up on the way.
                    proxy.is_deaf = True
                    time.sleep(0.05)
                    proxy.cut()
                    proxy.is_deaf = False
                else:
                    getattr(proxy, damage)()
            assert [one.result(WAIT_S).offset for one in sent] == list(range(200))
        (messages,) = read_all(bootstrap, topic, 200, 1).values()
        assert [int(one.value()) for one in messages] == list(range(200))


def send_first(producer: Producer, topic: str) -> None:
    """Let a producer with little patience learn of its topic."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            producer.send(topic, b"first").result(WAIT_S)
        except TimeoutError:
            assert time.monotonic() < deadline
        else:
            return


def test_a_broker_that_falls_silent_is_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    """09:CL-5, 09:TV-15c, 09:TV-15d: timeouts, bounded memory, and a close that ends."""
    port, real_port = free_port(), free_port()
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{real_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    with EmbeddedBroker(listeners, data_dir=tmp_path), proxied(port) as proxy:
        proxy.broker_port = real_port
        bootstrap = f"127.0.0.1:{port}"
        topic = new_topic(bootstrap, 1)
        settings: dict[str, Any] = {"buffer_memory": 1_000_000, "max_block_ms": 500}
        failed: list[Any] = []
        producer = Producer(bootstrap_servers=bootstrap, on_error=failed.append, **settings)
        admin = Admin(bootstrap_servers=bootstrap)
        try:
            send_first(producer, topic)
            assert topic in admin.list_topics()
            proxy.is_deaf = True
            sent = []

            def fill() -> None:
                while True:
                    sent.append(producer.send(topic, b"x" * 10_000))

            with pytest.raises(TimeoutError, match=r"buffer\.memory"):
                fill()
            assert 50 <= len(sent) <= 100  # A megabyte of them, and not more.
            with pytest.raises(TimeoutError):
                sent[-1].result(timeout=0.1)
            with pytest.raises(TimeoutError):
                producer.flush(timeout=0.1)
            with pytest.raises(TimeoutError):
                admin.list_topics(timeout=0.2)
        finally:
            producer.close(timeout=0)
            admin.close()
        assert all(one.done() for one in sent)
        assert sum(one.record_count for one in failed) == len(sent)
