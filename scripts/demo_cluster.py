"""The second part of `make demo`: three brokers, one killed while messages flow, none lost.

1. Three brokers start, as processes on a ZooKeeper; in one process where there is no ZooKeeper.
2. A topic with three replicas gets messages, each acknowledged by all replicas in sync.
3. The broker that leads the first partition is killed with SIGKILL. The producer goes on.
4. Every acknowledged message is read from the two that are left.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek import Admin, Consumer, Producer
from odradek.client.admin import NewTopic
from odradek.errors import ApiError
from odradek.model import TopicPartition
from odradek.testing import EmbeddedCluster
from tests.support.zookeeper import missing_zookeeper, running_zookeeper

TOPIC = "ledger"
PARTITIONS = 6
SESSION_TIMEOUT_MS = 6_000
BROKER_READY = re.compile(r"odradek: broker (\d+) ready on \S+ \(process (\d+)\)")
CLUSTER_READY = re.compile(r"odradek: 3 brokers ready on (\S+)")


class Cluster(NamedTuple):
    """Brokers that run."""

    servers: str
    kill: Callable[[int], None]
    kind: str


def main() -> int:
    """Shows all steps; returns 0 if every acknowledged message was found."""
    directory = tempfile.mkdtemp(prefix="odradek-demo-")
    try:
        if subprocess.run(["scripts/debian-packages", "zookeeper"], check=False).returncode:
            print("cluster  no ZooKeeper here: three brokers in one process")
        with run_cluster(directory) as cluster:
            return show(cluster)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def run_cluster(directory: str) -> Iterator[Cluster]:
    """Three brokers, until the end of the block."""
    if missing_zookeeper() is not None:
        settings = {"default.replication.factor": "3", "min.insync.replicas": "2"}
        with EmbeddedCluster(3, settings, data_dir=directory) as embedded:
            yield Cluster(embedded.bootstrap_servers, embedded.kill, "in one process")
        return
    with running_zookeeper() as zookeeper:
        command = [sys.executable, "-m", "odradek.cli.main", "cluster", "--base-port", "0"]
        options = ["--zookeeper", f"{zookeeper.address}/demo", "--data", directory]
        options += ["--set", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"]
        process = subprocess.Popen(
            [*command, *options, "--log-level", "error"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            servers, processes = read_ready_lines(process)
            yield Cluster(
                servers,
                lambda broker_id: os.kill(processes[broker_id], signal.SIGKILL),
                "as processes on ZooKeeper",
            )
        finally:
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def read_ready_lines(process: subprocess.Popen[str]) -> tuple[str, dict[int, int]]:
    """The address of the cluster, and the process of each broker."""
    processes: dict[int, int] = {}
    assert process.stdout is not None
    for line in process.stdout:
        if (one := BROKER_READY.match(line)) is not None:
            processes[int(one[1])] = int(one[2])
        elif (ready := CLUSTER_READY.match(line)) is not None:
            return ready[1], processes
    raise SystemExit("demo: the cluster did not start")


def show(cluster: Cluster) -> int:
    """Runs the steps on a cluster."""
    print(f"cluster  3 brokers ready on {cluster.servers}, {cluster.kind}")
    with Admin(bootstrap_servers=cluster.servers) as admin:
        admin.create_topics([NewTopic(name=TOPIC, partition_count=PARTITIONS)])
        topic = admin.describe_topics([TOPIC])[TOPIC]
        assert not isinstance(topic, ApiError)
        leader = topic.partitions[0].leader
    assert leader is not None
    print(f"topic    {TOPIC} created, {PARTITIONS} partitions, 3 replicas each")
    acknowledged: list[int] = []
    is_over = threading.Event()
    writer = threading.Thread(target=write, args=(cluster.servers, acknowledged, is_over))
    writer.start()
    try:
        wait_for(acknowledged, 20_000)
        before = len(acknowledged)
        cluster.kill(leader)
        print(f"kill     broker {leader}, which leads partition 0, after {before:,} messages")
        began = time.monotonic()
        wait_for(acknowledged, before + 40_000)
        print(f"go on    40,000 more were acknowledged {time.monotonic() - began:.1f} s later")
    finally:
        is_over.set()
        writer.join()
    missing = set(acknowledged) - read_all(cluster.servers)
    print(f"read     {len(acknowledged):,} messages were acknowledged, {len(missing):,} are lost")
    return 1 if missing else 0


def wait_for(acknowledged: list[int], count: int) -> None:
    """Waits until so many messages are acknowledged."""
    until = time.monotonic() + 120
    while len(acknowledged) < count:
        if time.monotonic() > until:
            raise SystemExit(f"demo: {len(acknowledged):,} messages, {count:,} were expected")
        time.sleep(0.05)


def write(servers: str, acknowledged: list[int], is_over: threading.Event) -> None:
    """Sends numbers, a thousand at a time, and notes those that are acknowledged."""
    with Producer(bootstrap_servers=servers, acks="all", linger_ms=5) as producer:
        first = 0
        while not is_over.is_set():
            numbers = range(first, first + 1_000)
            sent = [
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                for number in numbers
            ]
            for number, delivery in zip(numbers, sent, strict=True):
                delivery.result()
                acknowledged.append(number)
            first = numbers.stop


def read_all(servers: str) -> set[int]:
    """The numbers in all partitions, up to their ends."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: set[int] = set()
    with Consumer(bootstrap_servers=servers, max_poll_records=10_000) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found.update(int(record.value or b"-1") for record in consumer.poll(timeout=1.0))
    return found
