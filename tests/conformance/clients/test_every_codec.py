"""What any client writes, with any codec, all clients read alike."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.records.batch import CODEC_MASK, iter_headers
from tests.conformance.clients.adaptors import (
    CODECS,
    AioKafka,
    Client,
    JavaClient,
    KafkaPython,
    Librdkafka,
    Message,
    Read,
)
from tests.support.apache_kafka import KafkaInstall
from tests.support.odradek_broker import OdradekBroker

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

_COUNT = 25


def _messages(client: Client, codec: str) -> list[Message]:
    # Of this day: retention would soon remove what is older than a week.
    first_ms = int(time.time() * 1000) - 3_600_000
    return [
        Message(
            key=f"{client.name}/{number}".encode(),
            value=f"{client.name} {codec} {number} ".encode() * 20,
            headers=(("from", client.name.encode()), ("number", str(number).encode())),
            timestamp_ms=first_ms + number,
        )
        for number in range(_COUNT)
    ]


def _codecs_on_disk(log_dir: Path) -> Iterator[str]:
    for path in sorted(log_dir.glob("*.log")):
        for _, header in iter_headers(path.read_bytes()):
            yield CODECS[header.attributes & CODEC_MASK]


@pytest.mark.parametrize("codec", CODECS)
def test_written_by_each_and_read_by_all(
    odradek: OdradekBroker, new_topic: Callable[[], str], kafka: KafkaInstall, codec: str
) -> None:
    """10:CF-1: keys, values, headers, offsets and timestamps are equal for every reader.

    All producers are idempotent; what they compress stays compressed on disk.
    """
    topic = new_topic()
    clients: list[Client] = [Librdkafka(), KafkaPython(), AioKafka(), JavaClient(kafka)]
    written = {client.name: _messages(client, codec) for client in clients}
    for client in clients:
        client.produce(odradek.bootstrap, topic, codec, written[client.name])

    total = sum(map(len, written.values()))
    read = {client.name: client.consume(odradek.bootstrap, topic, total) for client in clients}

    first = read["librdkafka"]
    assert [one.offset for one in first] == list(range(total))
    for client in clients:
        assert read[client.name] == first, f"{client.name} read something else"
        _check_order_and_content(client, first, written[client.name])
    assert set(_codecs_on_disk(odradek.log_dir / f"{topic}-0")) == {codec}


def _check_order_and_content(client: Client, read: list[Read], written: list[Message]) -> None:
    mine = [one for one in read if one.headers[0][1] == client.name.encode()]
    assert [(one.key, one.value, one.headers) for one in mine] == [
        (one.key, one.value, one.headers) for one in written
    ]
    if client.takes_timestamps:
        assert [one.timestamp_ms for one in mine] == [one.timestamp_ms for one in written]
