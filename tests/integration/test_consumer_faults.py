"""A consumer whose broker, and with it its coordinator, goes away, or the way to it does."""

import time
from pathlib import Path
from typing import Any

import pytest

from odradek import Producer
from odradek.client.errors import CallTimeoutError
from odradek.testing import EmbeddedBroker
from tests.support.group_readers import OurReader, create_topic, new_name, poll_until
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxied

pytestmark = pytest.mark.slow


def produce(bootstrap: str, topic: str, start: int, end: int, **settings: Any) -> None:
    with Producer(bootstrap_servers=bootstrap, **settings) as producer:
        for number in range(start, end):
            producer.send(topic, b"%d" % number, partition=number % 2)


def test_a_restart_of_the_broker_loses_nothing_and_hangs_nobody(tmp_path: Path) -> None:
    """09:CL-5, 09:CL-22: calls keep their timeouts meanwhile, and close does at the end."""
    bootstrap = f"127.0.0.1:{free_port()}"
    settings = {"listeners": f"PLAINTEXT://{bootstrap}", "group.initial.rebalance.delay.ms": "0"}
    with EmbeddedBroker(settings, data_dir=tmp_path):
        topic = create_topic(bootstrap, 2)
        produce(bootstrap, topic, 0, 500)
        reader = OurReader(bootstrap, new_name("g"), topic)
        poll_until([reader], lambda: len(set(reader.values)) == 500, "what is there")
        reader.commit()
    try:
        reader.consumer.poll(0.2)
        with pytest.raises(CallTimeoutError):
            reader.consumer.commit_sync(timeout=0.5)
        with EmbeddedBroker(settings, data_dir=tmp_path):
            produce(bootstrap, topic, 500, 1000)
            poll_until([reader], lambda: len(set(reader.values)) == 1000, "what came since")
            reader.commit()
    finally:
        reader.consumer.close(1)


COUNT = 1200  # Records, by turns in two partitions: record n is at offset n // 2 of n % 2.
# Small answers, of a few small batches, so that some are always on their way.
PIECES: dict[str, Any] = {
    "max_partition_fetch_bytes": 600,
    "max_poll_records": 20,
    "enable_auto_commit": False,
}


def numbers(reader: OurReader, partition: int) -> list[int]:
    """What a reader was given of a partition, repetitions too, in the order in which it came."""
    read = [int(value or b"") for value in reader.values]
    return [number for number in read if number % 2 == partition]


def strike(damage: str, proxy: Proxy, reader: OurReader) -> None:
    if damage != "swallow":
        getattr(proxy, damage)()
        return
    # The broker answers, fetches and commits alike, and nobody hears of it.
    proxy.is_deaf = True
    reader.poll()
    proxy.cut()
    proxy.is_deaf = False


def read_on(damage: str, proxy: Proxy, reader: OurReader, *, end: int) -> None:
    """Read up to so many records, and damage the way at every fifth poll that may bring some."""
    polls = 0
    deadline = time.monotonic() + 120
    while len(reader.values) < end:
        assert time.monotonic() < deadline, f"{len(reader.values)} of {end} were read"
        reader.poll()
        if reader.partitions:
            polls += 1
            if polls % 5 == 0:
                strike(damage, proxy, reader)


@pytest.mark.parametrize("damage", ["cut", "half_close", "swallow"])
def test_a_damaged_way_loses_nothing_and_repeats_only_what_was_not_committed(
    damage: str, tmp_path: Path
) -> None:
    """09:CL-21, 09:CL-24: a member reads each record once; who follows, from the last commit on."""
    port, real_port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{real_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group.initial.rebalance.delay.ms": "0",
    }
    bootstrap, group = f"127.0.0.1:{port}", new_name("g")
    with EmbeddedBroker(settings, data_dir=tmp_path), proxied(port) as proxy:
        proxy.broker_port = real_port
        topic = create_topic(bootstrap, 2)
        produce(bootstrap, topic, 0, COUNT, batch_size=300, linger_ms=0)
        with OurReader(bootstrap, group, topic, **PIECES) as first:
            read_on(damage, proxy, first, end=COUNT // 2)
            strike(damage, proxy, first)
            first.commit()
            committed = [len(numbers(first, partition)) for partition in (0, 1)]
            read_on(damage, proxy, first, end=COUNT)
            assert first.told == [("assigned", frozenset({0, 1}))]
        with OurReader(bootstrap, group, topic, **PIECES) as second:
            read_on(damage, proxy, second, end=COUNT - sum(committed))
            second.commit()
    for partition in (0, 1):
        everything = list(range(partition, COUNT, 2))
        assert numbers(first, partition) == everything
        assert numbers(second, partition) == everything[committed[partition] :]
