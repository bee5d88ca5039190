"""A consumer whose broker, and with it its coordinator, goes away and comes back."""

import time
from pathlib import Path

import pytest

from odradek import Producer
from odradek.client.errors import CallTimeoutError
from odradek.testing import EmbeddedBroker
from tests.support.group_readers import OurReader, create_topic, new_name, poll_until
from tests.support.ports import free_port

pytestmark = pytest.mark.slow


def produce(bootstrap: str, topic: str, start: int, end: int) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
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
        began = time.monotonic()
        reader.consumer.close(1)
        took_s = time.monotonic() - began
    assert took_s < 60
