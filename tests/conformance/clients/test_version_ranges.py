"""What clients make of the ranges a broker tells them, and of a broker without fetch sessions."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import fetch
from tests.conformance.clients.adaptors import (
    AioKafka,
    Client,
    JavaClient,
    KafkaPython,
    Librdkafka,
    Message,
)
from tests.conformance.clients.raw import RawConnection
from tests.support.apache_kafka import KafkaInstall
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = pytest.mark.slow

_LINES = ("x" * 500 + "\n") * 200  # 100 KB that compress to next to nothing


def _log_bytes(broker: OdradekBroker, topic: str) -> int:
    return sum(path.stat().st_size for path in (broker.log_dir / f"{topic}-0").glob("*.log"))


def _kcat_writes(broker: OdradekBroker, codec: str) -> int:
    """How many bytes the lines take on disk."""
    topic = f"lines-{codec}"
    subprocess.run(
        ["kcat", "-P", "-b", broker.bootstrap, "-t", topic, "-p", "0", "-z", codec],
        input=_LINES.encode(),
        check=True,
        timeout=150,
    )
    return _log_bytes(broker, topic)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on the path")
def test_produce_must_begin_at_zero(odradek: OdradekBroker, tmp_path: Path) -> None:
    """11:PS-6: an old librdkafka compresses only for a broker that still offers Produce 0."""
    codecs = ("gzip", "snappy", "lz4")
    compressed = {codec: _kcat_writes(odradek, codec) for codec in codecs}
    with running_odradek(tmp_path, advertise={"PRODUCE": "3-12"}) as narrow:
        plain = {codec: _kcat_writes(narrow, codec) for codec in codecs}
    assert all(size < 10_000 for size in compressed.values()), compressed
    assert all(size > 100_000 for size in plain.values()), plain


def _session_given(broker: OdradekBroker, topic: str) -> int:
    """The session that is opened for a client who asks for one."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = fetch.FetchTopic(topic=topic, partitions=[partition])
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[wanted])
    with RawConnection(broker.port) as connection:
        answer = connection.call(ApiKey.FETCH, 12, request)
    assert isinstance(answer, fetch.FetchResponse)
    assert answer.error_code == 0
    return answer.session_id


def _exchange(broker: OdradekBroker, clients: list[Client]) -> None:
    for client in clients:
        topic = f"through-{client.name}"
        written = [Message(b"k", str(n).encode(), (("h", b"v"),), 0) for n in range(20)]
        if client.takes_timestamps:
            written = [one._replace(timestamp_ms=int(time.time() * 1000)) for one in written]
        client.produce(broker.bootstrap, topic, "lz4", written)
        read = client.consume(broker.bootstrap, topic, 20)
        assert [one.value for one in read] == [one.value for one in written], client.name


@pytest.mark.kafka
def test_without_topic_ids(kafka: KafkaInstall, tmp_path: Path) -> None:
    """11:PS-7: ranges that end before topic ids; clients work and never send Produce or Fetch 13.

    Also 11:PS-8: the same broker opens no fetch session, which every client copes with.
    """
    clients: list[Client] = [JavaClient(kafka), Librdkafka(), KafkaPython(), AioKafka()]
    settings = {"max.incremental.fetch.session.cache.slots": "0"}
    ranges = {"PRODUCE": "0-12", "FETCH": "4-12"}
    with (
        running_odradek(tmp_path, settings, advertise=ranges) as broker,
        broker.watched() as requests,
    ):
        _exchange(broker, clients)
        assert _session_given(broker, "through-librdkafka") == 0
    assert max(requests.versions_of("Produce")) < 13
    assert max(requests.versions_of("Fetch")) == 12
