"""What a broker acknowledged is there after it was killed, and after it was stopped."""

import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.odradek_broker import running_odradek

PARTITIONS = 3
WAIT_S = 90


def create_topic(bootstrap: str, name: str, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, PARTITIONS, 1, config=dict(config or {}))
    for future in admin.create_topics([topic]).values():
        future.result(WAIT_S)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> dict[tuple[int, int], bytes]:
    """Sends idempotently; returns what was acknowledged, by partition and offset."""
    acknowledged: dict[tuple[int, int], bytes] = {}

    def note(error: object, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is None and partition is not None and offset is not None and value is not None:
            acknowledged[partition, offset] = bytes(value)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, key=str(number), value=value, on_delivery=note)
    assert producer.flush(WAIT_S) == 0
    return acknowledged


def read_all(bootstrap: str, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """Everything in a topic that has `count` messages."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    found: dict[tuple[int, int], bytes] = {}
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                if message.error() is not None:
                    continue  # The client tries again, which is all it asks for.
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                found[partition, offset] = bytes(value)
    finally:
        consumer.close()
    return found


@pytest.mark.slow
def test_every_acknowledged_message_survives_kills(tmp_path: Path) -> None:
    random = Random(4)
    acknowledged: dict[tuple[int, int], bytes] = {}
    for round_number in range(3):
        with running_odradek(tmp_path) as broker:
            if round_number == 0:
                create_topic(broker.bootstrap, "kept")
            values = [b"%d-%d" % (round_number, n) + random.randbytes(200) for n in range(500)]
            fresh = produce(broker.bootstrap, "kept", values)
            assert len(fresh) == len(values)
            assert not fresh.keys() & acknowledged.keys(), "an offset was handed out twice"
            acknowledged |= fresh
            broker.kill()
    with running_odradek(tmp_path) as broker:
        assert read_all(broker.bootstrap, "kept", len(acknowledged)) == acknowledged


@pytest.mark.slow
def test_topics_and_their_settings_survive_a_stop(tmp_path: Path) -> None:
    with running_odradek(tmp_path) as broker:
        create_topic(broker.bootstrap, "compacted", {"cleanup.policy": "compact"})
        before = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WAIT_S)
        assert broker.stop() == 0
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    with running_odradek(tmp_path) as broker:
        after = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=WAIT_S)
        assert after.cluster_id == before.cluster_id
        assert sorted(after.topics) == ["compacted"]
        assert len(after.topics["compacted"].partitions) == PARTITIONS
        # 14:SM-6: the log has its topic's settings, also after a restart: no key, no message.
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        refused: list[object] = []
        producer.produce("compacted", value=b"x", on_delivery=lambda e, _m: refused.append(e))
        producer.flush(WAIT_S)
        assert refused
        assert refused[0] is not None
