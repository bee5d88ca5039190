"""`odradek cluster` as a process: ready, used, stopped, started again on its data."""

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Admin, Consumer, Producer
from odradek.client.admin import NewTopic

pytestmark = pytest.mark.slow

READY = re.compile(r"odradek: (\d+) brokers ready on (127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)*)\n")


@contextlib.contextmanager
def cluster(*words: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "odradek.cli.main", "cluster", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def addresses(running: subprocess.Popen[str]) -> list[str]:
    assert running.stdout is not None
    assert running.stderr is not None
    line = running.stdout.readline()
    match = READY.fullmatch(line)
    assert match is not None, (line, running.stderr.read())
    found = match[2].split(",")
    assert len(found) == int(match[1])
    return found


def test_three_brokers_share_topics_and_keep_them(tmp_path: Path) -> None:
    words = ("--data", tmp_path, "--base-port", 0)
    with cluster(*words) as running:
        servers = addresses(running)
        assert len(servers) == 3
        with Admin(bootstrap_servers=servers[0]) as admin:
            admin.create_topics([NewTopic(name="t", partition_count=3)])
            topic = admin.describe_topics(["t"])["t"]
            assert not isinstance(topic, Exception)
            assert sorted(p.leader for p in topic.partitions) == [0, 1, 2]
            assert all(sorted(p.replicas) == [0, 1, 2] for p in topic.partitions)
        with Producer(bootstrap_servers=servers[1], acks="all") as producer:
            sent = [producer.send("t", value=b"%d" % n, partition=n % 3) for n in range(30)]
            assert [one.result().partition for one in sent] == [n % 3 for n in range(30)]
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0

    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "broker-0",
        "broker-1",
        "broker-2",
        "store",
    ]
    with cluster(*words) as running:
        settings = {
            "bootstrap.servers": addresses(running)[2],
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
        found: list[bytes | None] = []
        with Consumer(settings) as consumer:
            consumer.subscribe(["t"])
            while len(found) < 30:
                found += [record.value for record in consumer.poll(timeout=1.0)]
        assert sorted(found, key=lambda value: int(value or b"")) == [b"%d" % n for n in range(30)]
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130


def test_a_setting_that_cannot_be_used_refuses_the_start(tmp_path: Path) -> None:
    with cluster("--data", tmp_path, "--base-port", 0, "--set", "num.partitions=none") as running:
        out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    assert out == ""
    assert "num.partitions" in err
    assert "none" in err
