"""Our partitioner beside the Java client's: every key must land in the same place."""

import random
import subprocess
import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.client.partitioner import partition_of_key
from tests.support.apache_kafka import find_kafka, why_missing
from tests.support.odradek_broker import OdradekBroker

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KEYS = 10_000
PARTITIONS = 97  # A prime: wrong hashes do not agree by chance.
_VERSION = "4.3.1"
_WAIT_S = 60


def some_keys() -> list[bytes]:
    """Different keys of every length from 0 to 40 letters, some of several bytes each."""
    rng = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_äß€"
    keys = {b""}
    while len(keys) < KEYS:
        keys.add("".join(rng.choices(letters, k=rng.randrange(1, 41))).encode())
    return sorted(keys)


def test_ten_thousand_keys_land_where_java_puts_them(
    odradek: OdradekBroker, new_topic: Callable[[], str]
) -> None:
    """09:CL-11."""
    install = find_kafka(_VERSION)
    if install is None:
        pytest.skip(why_missing(_VERSION))
    topic = new_topic()
    admin = AdminClient({"bootstrap.servers": odradek.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(_WAIT_S)
    keys = some_keys()
    lines = b"".join(key + b"|v\n" for key in keys)
    tool = install.command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", odradek.bootstrap, "--topic", topic),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=|"),
        *("--request-timeout-ms", "30000"),  # Its default of 1.5 s is short on a busy machine.
    )
    tool.insert(1, "-Dfile.encoding=UTF-8")
    done = subprocess.run(tool, input=lines, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")

    placed = {key: partition_of_key(key, PARTITIONS) for key in keys}
    assert read_places(odradek.bootstrap, topic) == placed


def read_places(bootstrap: str, topic: str) -> dict[bytes, int]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    )
    found: dict[bytes, int] = {}
    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        )
        deadline = time.monotonic() + _WAIT_S
        while len(found) < KEYS and time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.5):
                key, partition = message.key(), message.partition()
                if message.error() is None and key is not None and partition is not None:
                    found[key] = partition
    finally:
        consumer.close()
    return found
