"""A topic that has its own codec: the broker compresses anew what comes otherwise."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.records.batch import CODEC_MASK, iter_headers
from tests.conformance.clients.adaptors import (
    CODECS,
    AioKafka,
    Client,
    KafkaPython,
    Librdkafka,
    Message,
)
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow

_COUNT = 20


def _messages(client: Client) -> list[Message]:
    first_ms = int(time.time() * 1000) - 60_000
    return [
        Message(
            key=str(number).encode(),
            value=f"{client.name} {number} ".encode() * 50,
            headers=(("from", client.name.encode()),),
            timestamp_ms=first_ms + number,
        )
        for number in range(_COUNT)
    ]


def _codecs_on_disk(log_dir: Path) -> set[str]:
    return {
        CODECS[header.attributes & CODEC_MASK]
        for path in log_dir.glob("*.log")
        for _, header in iter_headers(path.read_bytes())
    }


@pytest.mark.parametrize(
    ("setting", "sent", "stored"),
    [
        ("gzip", "none", "gzip"),
        ("snappy", "none", "snappy"),
        ("lz4", "none", "lz4"),
        ("zstd", "none", "zstd"),
        ("zstd", "lz4", "zstd"),
        ("gzip", "gzip", "gzip"),
        ("uncompressed", "zstd", "none"),
        ("producer", "lz4", "lz4"),
    ],
)
def test_batches_are_stored_with_the_codec_of_the_topic(
    odradek: OdradekBroker, new_topic: Callable[[], str], setting: str, sent: str, stored: str
) -> None:
    """10 §3.6: idempotent producers notice nothing, and all consumers read alike."""
    topic = new_topic()
    admin = AdminClient({"bootstrap.servers": odradek.bootstrap})
    new = NewTopic(topic, num_partitions=1, config={"compression.type": setting})
    admin.create_topics([new])[topic].result(90)
    clients: list[Client] = [Librdkafka(), KafkaPython(), AioKafka()]
    written = [(client, _messages(client)) for client in clients]
    for client, messages in written:
        client.produce(odradek.bootstrap, topic, sent, messages)

    assert _codecs_on_disk(odradek.log_dir / f"{topic}-0") == {stored}
    total = len(clients) * _COUNT
    expected = [message for _, messages in written for message in messages]
    for client in clients:
        read = client.consume(odradek.bootstrap, topic, total)
        assert [one.offset for one in read] == list(range(total)), client.name
        assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in read] == expected
