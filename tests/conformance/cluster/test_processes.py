"""Three `odradek serve` on ZooKeeper: elections, deletions, clients, Kafka's tools, as brokers die.

One test with one cluster, since three brokers are dear and would be started by every worker. Every
check finds all brokers alive, and makes topics of its own.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from odradek import Consumer, Producer
from odradek.client.admin import (
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from odradek.clock import SystemClock
from odradek.coordination.store import CoordinationStore
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.errors import ApiError
from odradek.model import TopicPartition
from tests.conformance.cluster.moving_leaders import (
    check_a_broker_dies_and_comes_back_and_leads_again,
    check_readers_are_served_by_the_replica_in_their_rack,
)
from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing
from tests.support.odradek_cluster import ProcessCluster, eventually, running_processes
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

_T = TypeVar("_T")
_TOOLS = "org.apache.kafka.tools"
READS_IN_RACKS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
}
_UNCLEAN = "kafka_controller_controllerstats_uncleanleaderelections_total"


def test_brokers_as_processes(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    installs = [find_kafka(version) for version in KAFKA_VERSIONS]
    newer, older = installs
    if newer is None or older is None:
        pytest.skip(why_missing(KAFKA_VERSIONS[installs.index(None)]))
    failures: list[Exception] = []
    with running_processes(zookeeper, tmp_path, READS_IN_RACKS) as cluster:
        checks: tuple[Callable[[], None], ...] = (
            lambda: check_partitions_without_an_in_sync_replica(cluster, newer, older),
            lambda: check_replicas_are_moved(cluster, newer, tmp_path),
            lambda: check_a_deletion_waits_for_a_broker(cluster),
            lambda: check_a_name_is_used_again(cluster),
            lambda: check_batches_that_are_not_the_leaders(cluster),
            lambda: check_nodes_that_cannot_be_read(cluster),
            lambda: check_readers_are_served_by_the_replica_in_their_rack(cluster),
            lambda: check_a_broker_dies_and_comes_back_and_leads_again(cluster),
        )
        for check in checks:
            cluster.restart_dead()
            try:
                check()
            except Exception as error:
                failures.append(error)
    if failures:
        raise ExceptionGroup("checks failed", failures)


def send(cluster: ProcessCluster, topic: str, *values: bytes) -> list[int]:
    """The offsets, once all are acknowledged by every in-sync replica."""
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        sent = [producer.send(topic, value=value, partition=0) for value in values]
        return [one.result().offset for one in sent]


def read(cluster: ProcessCluster, topic: str) -> list[bytes | None]:
    """All of partition 0."""
    values: list[bytes | None] = []
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            values += [record.value for record in consumer.poll(timeout=1.0)]
    return values


def run_tool(install: KafkaInstall, cluster: ProcessCluster, tool: str, *words: str) -> str:
    alive = ",".join(one.bootstrap for one in cluster.brokers if one.is_alive)
    result = install.run_tool(f"{_TOOLS}.{tool}", "--bootstrap-server", alive, *words)
    assert result.returncode == 0, f"{tool} {words}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def described(install: KafkaInstall, cluster: ProcessCluster, which: str) -> set[str]:
    """The topics with partitions that `kafka-topics --describe` shows for a filter."""
    told = run_tool(install, cluster, "TopicCommand", "--describe", which)
    return set(re.findall(r"Topic: (\S+)\s+Partition: 0", told))


def in_zookeeper(cluster: ProcessCluster, work: Callable[[CoordinationStore], Awaitable[_T]]) -> _T:
    async def main() -> _T:
        config = ZooKeeperConfig(ensemble=parse_connect_string(cluster.connect))
        async with open_store(config, clock=SystemClock(), random=Random(1)) as store:
            return await work(store)

    return asyncio.run(main())


def has_node(cluster: ProcessCluster, path: str) -> bool:
    async def look(store: CoordinationStore) -> bool:
        return await store.exists(path) is not None

    return in_zookeeper(cluster, look)


def folders(cluster: ProcessCluster, broker_id: int, topic: str) -> list[str]:
    """What a broker has on its disk of a topic, deleted or not."""
    return [path.name for path in cluster.brokers[broker_id].log_dir.glob(f"{topic}-*")]


def check_partitions_without_an_in_sync_replica(
    cluster: ProcessCluster, newer: KafkaInstall, older: KafkaInstall
) -> None:
    """Unclean election off, on for one topic, and asked for by `kafka-leader-election`.

    The partition that has none waits and returns whole; the two others lose what only the dead
    broker had, are led by the replica that was left, and `UncleanLeaderElectionsPerSec` counts.
    """
    topics = {"waits", "elects", "forced"}
    for topic in sorted(topics):
        cluster.create(topic, {0: [1, 2]})
        send(cluster, topic, b"both")
    one, two = cluster.brokers[1:]
    two.kill()
    for topic in sorted(topics):
        cluster.wait_for(topic, 0, lambda seen: seen.isr == (1,))
        send(cluster, topic, b"only 1")
    assert topics <= described(older, cluster, "--under-replicated-partitions")
    one.kill()
    for topic in sorted(topics):
        cluster.wait_for(topic, 0, lambda seen: seen.leader == -1)
    two.start()
    for topic in sorted(topics):
        # Broker 2 is back in the metadata, where its replica is not offline, and does not lead.
        cluster.wait_for(topic, 0, lambda seen: seen.offline_replicas == (1,))
        cluster.wait_for(topic, 0, lambda seen: (seen.leader, seen.isr) == (-1, (1,)))
    assert described(newer, cluster, "--unavailable-partitions") == topics
    counted = cluster.all_metrics(_UNCLEAN)

    resource = ConfigResource(ConfigResourceType.TOPIC, "elects")
    change = ConfigOperation.set("unclean.leader.election.enable", "true")
    with cluster.admin() as admin:
        assert admin.incremental_alter_configs({resource: [change]}) == {resource: None}
    cluster.wait_for("elects", 0, lambda seen: (seen.leader, seen.isr) == (2, (2,)))
    assert cluster.all_metrics(_UNCLEAN) == counted + 1
    words = ("--election-type", "unclean", "--topic", "forced", "--partition", "0")
    told = run_tool(newer, cluster, "LeaderElectionCommand", *words)
    assert "forced-0" in told
    cluster.wait_for("forced", 0, lambda seen: (seen.leader, seen.isr) == (2, (2,)))
    assert cluster.all_metrics(_UNCLEAN) == counted + 2
    assert send(cluster, "elects", b"only 2") == [1]
    cluster.wait_for("waits", 0, lambda seen: seen.leader == -1)

    one.start()
    seen = cluster.wait_for("waits", 0, lambda seen: set(seen.isr) == {1, 2})
    assert seen.leader == 1
    assert read(cluster, "waits") == [b"both", b"only 1"]
    cluster.wait_for("elects", 0, lambda seen: set(seen.isr) == {1, 2})
    assert read(cluster, "elects") == [b"both", b"only 2"]

    words = ("--election-type", "preferred", "--topic", "elects", "--partition", "0")
    told = run_tool(older, cluster, "LeaderElectionCommand", *words)
    assert "elects-0" in told
    cluster.wait_for("elects", 0, lambda seen: seen.leader == 1)
    assert read(cluster, "elects") == [b"both", b"only 2"]


THROTTLES = {
    "leader.replication.throttled.replicas": {"0:0,0:1"},
    "follower.replication.throttled.replicas": {"0:2"},
    "leader.replication.throttled.rate": {"1073741824"},
    "follower.replication.throttled.rate": {"1073741824"},
}


def throttles(cluster: ProcessCluster, topic: str) -> dict[str, set[str | None]]:
    """The throttles that the topic and the brokers themselves have."""
    found: dict[str, set[str | None]] = {}
    brokers = [ConfigResource(ConfigResourceType.BROKER, str(each)) for each in range(3)]
    with cluster.admin() as admin:
        told = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic), *brokers])
    for entries in told.values():
        assert not isinstance(entries, ApiError), entries
        for entry in entries:
            is_own = entry.source in (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER)
            if is_own and ".replication.throttled." in entry.name:
                found.setdefault(entry.name, set()).add(entry.value)
    return found


def check_replicas_are_moved(cluster: ProcessCluster, newer: KafkaInstall, folder: Path) -> None:
    """`kafka-reassign-partitions` moves a replica, throttled, and ends the throttle.

    `kafka-log-dirs` sees the replica on the new broker.
    """
    cluster.create("moved", {0: [0, 1]})
    send(cluster, "moved", *(b"%d" % number for number in range(50)))
    plan = folder / "plan.json"
    partitions = [{"topic": "moved", "partition": 0, "replicas": [2, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    command = "reassign.ReassignPartitionsCommand"
    words = ("--reassignment-json-file", str(plan))
    throttle = ("--throttle", str(1 << 30))
    told = run_tool(newer, cluster, command, "--execute", *words, *throttle)
    assert "The inter-broker throttle limit was set to 1073741824 B/s" in told
    assert "Successfully started partition reassignment for moved-0" in told
    assert throttles(cluster, "moved") == THROTTLES
    seen = cluster.wait_for("moved", 0, lambda seen: seen.replicas == (2, 1))
    assert seen.leader in (1, 2)
    told = run_tool(newer, cluster, command, "--verify", *words)
    assert "Reassignment of partition moved-0 is completed." in told
    assert throttles(cluster, "moved") == {}
    eventually(lambda: not folders(cluster, 0, "moved"), lambda: folders(cluster, 0, "moved"))

    told = run_tool(newer, cluster, "LogDirsCommand", "--describe", "--topic-list", "moved")
    sizes = {
        row["broker"]: [
            (part["partition"], part["size"])
            for log in row["logDirs"]
            for part in log["partitions"]
        ]
        for row in json.loads(told.splitlines()[-1])["brokers"]
    }
    size = sum(p.stat().st_size for p in (cluster.brokers[2].log_dir / "moved-0").glob("*.log"))
    assert size > 0
    assert sizes == {0: [], 1: [("moved-0", size)], 2: [("moved-0", size)]}
    assert read(cluster, "moved") == [b"%d" % number for number in range(50)]


def check_a_deletion_waits_for_a_broker(cluster: ProcessCluster) -> None:
    """A topic is deleted while one of its brokers is down: all of it is gone when that returns.

    Until then the name is taken; the topic made anew after that keeps its records when the broker
    starts once more.
    """
    cluster.create("gone", {0: [0, 1, 2]})
    send(cluster, "gone", b"old")
    two = cluster.brokers[2]
    two.kill()
    cluster.wait_for("gone", 0, lambda seen: set(seen.isr) == {0, 1})
    with cluster.admin() as admin:
        assert admin.delete_topics(["gone"]) == {"gone": None}
    assert has_node(cluster, "/admin/delete_topics/gone")
    with pytest.raises(AssertionError, match="exists already"):
        cluster.create("gone", {0: [0, 1]})
    assert folders(cluster, 2, "gone") == ["gone-0"]
    two.start()
    eventually(lambda: not has_node(cluster, "/admin/delete_topics/gone"))
    for path in ("/brokers/topics/gone", "/config/topics/gone"):
        assert not has_node(cluster, path)
    for broker_id in range(3):
        eventually(
            lambda broker_id=broker_id: (
                not [  # type: ignore[misc]  # mypy wants no default here
                    name
                    for name in folders(cluster, broker_id, "gone")
                    if not name.endswith("-delete")
                ]
            )
        )
    cluster.create("gone", {0: [2, 0]})
    assert send(cluster, "gone", b"new") == [0]
    two.kill()
    cluster.wait_for("gone", 0, lambda seen: seen.leader == 0)
    two.start()
    cluster.wait_for("gone", 0, lambda seen: set(seen.isr) == {0, 2})
    assert read(cluster, "gone") == [b"new"]


def check_a_name_is_used_again(cluster: ProcessCluster) -> None:
    """15:KAFKA-16157: a broker returns with a log of the topic that had this name before.

    Its replica was moved elsewhere while it was down, so the deletion did not wait for it. The log
    of another topic id is not adopted: the replica of the new topic begins empty, and follows.
    """
    cluster.create("again", {0: [1, 2]})
    old_values = [b"old %d" % number for number in range(10)]
    send(cluster, "again", *old_values)
    two, tp = cluster.brokers[2], TopicPartition("again", 0)
    two.kill()
    cluster.wait_for("again", 0, lambda seen: seen.isr == (1,))
    with cluster.admin() as admin:
        moved = admin.alter_partition_reassignments({tp: [1, 0]})
        assert not isinstance(moved[tp], ApiError), moved
        cluster.wait_for("again", 0, lambda seen: set(seen.isr) == set(seen.replicas) == {0, 1})
        assert admin.delete_topics(["again"]) == {"again": None}
    eventually(lambda: not has_node(cluster, "/brokers/topics/again"))
    assert folders(cluster, 2, "again") == ["again-0"]
    cluster.create("again", {0: [0, 1]})
    assert send(cluster, "again", b"new") == [0]
    two.start()
    with cluster.admin() as admin:
        moved = admin.alter_partition_reassignments({tp: [2, 0]})
        assert not isinstance(moved[tp], ApiError), moved
    cluster.wait_for("again", 0, lambda seen: set(seen.isr) == set(seen.replicas) == {0, 2})
    cluster.brokers[0].kill()
    cluster.wait_for("again", 0, lambda seen: seen.leader == 2)
    assert read(cluster, "again") == [b"new"]


# Where the fields of a batch are, and what they say instead.
SPOILED = {
    0: (70, b"\xff"),  # in the record, under the checksum
    1: (7, b"\x05"),  # the base offset
    2: (15, b"\x09"),  # the leader epoch
}


def check_batches_that_are_not_the_leaders(cluster: ProcessCluster) -> None:
    """The disk of a leader holds other bytes than it wrote: its follower appends none of them.

    The log of the follower names each partition, and the one that is sound goes on. When the disk
    holds the right bytes again, all are whole.
    """
    numbers = range(len(SPOILED) + 1)
    cluster.create("spoiled", {number: [0, 1] for number in numbers})
    zero, one = cluster.brokers[:2]
    one.kill()
    with Producer(bootstrap_servers=zero.bootstrap, acks=1) as producer:
        for number in numbers:
            producer.send("spoiled", value=b"of %d" % number, partition=number).result()
    files = {number: next((zero.log_dir / f"spoiled-{number}").glob("*.log")) for number in numbers}
    sound = {number: path.read_bytes() for number, path in files.items()}
    for number, (position, byte) in SPOILED.items():
        with files[number].open("r+b") as file:
            file.seek(position)
            assert file.read(1) != byte
            file.seek(position)
            file.write(byte)
    told_before = len(one.log())
    one.start()
    cluster.wait_for("spoiled", len(SPOILED), lambda seen: set(seen.isr) == {0, 1})
    for number in SPOILED:
        name = f"spoiled-{number}"
        eventually(lambda name=name: name in one.log()[told_before:], one.log)  # type: ignore[misc]  # a default, as above
        assert [path.stat().st_size for path in (one.log_dir / name).glob("*.log")] == [0]
        cluster.wait_for("spoiled", number, lambda seen: seen.isr == (0,))
    for number in SPOILED:
        with files[number].open("r+b") as file:
            file.write(sound[number])
    for number in numbers:
        cluster.wait_for("spoiled", number, lambda seen: set(seen.isr) == {0, 1})
        [copy] = (one.log_dir / f"spoiled-{number}").glob("*.log")
        assert copy.read_bytes() == sound[number]


BROKEN = (
    "/brokers/topics/broken",
    "/brokers/ids/77",
    "/config/topics/kept",
    "/config/changes/config_change_",
    "/isr_change_notification/isr_change_",
    "/log_dir_event_notification/log_dir_event_",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
)


def check_nodes_that_cannot_be_read(cluster: ProcessCluster) -> None:
    """Broken JSON in a node: the log names it once, and everything else goes on.

    At the end another broker becomes the controller, which reads all of them anew.
    """
    cluster.create("kept", {0: [0, 1, 2]})

    async def break_nodes(store: CoordinationStore) -> None:
        for path in BROKEN:
            if await store.exists(path) is None:
                await store.create(path, b'{"version":', sequential=path.endswith("_"))
            else:
                await store.set(path, b'{"version":', -1)

    def logs() -> str:
        return "".join(one.log() for one in cluster.brokers)

    in_zookeeper(cluster, break_nodes)
    for path in BROKEN:
        # The config of a topic is read when a notice names it, or by the next controller.
        if path != "/config/topics/kept":
            eventually(lambda path=path: path in logs(), logs)  # type: ignore[misc]  # a default, as above
    assert send(cluster, "kept", b"1") == [0]
    cluster.create("later", {0: [2, 1]})

    async def depose(store: CoordinationStore) -> None:
        await store.set("/controller", b'{"version":', -1)

    before = logs().count("/brokers/topics/broken")
    in_zookeeper(cluster, depose)
    eventually(lambda: logs().count("/brokers/topics/broken") > before, logs)
    cluster.create("latest", {0: [1, 2]})
    assert send(cluster, "kept", b"2") == [1]
    assert all(one.is_alive for one in cluster.brokers)
    assert "Traceback" not in logs()

    async def mend(store: CoordinationStore) -> None:
        await store.set("/config/topics/kept", b'{"version":1,"config":{}}', -1)
        for path in ("/brokers/topics/broken", "/brokers/ids/77"):
            await store.delete(path, -1)

    in_zookeeper(cluster, mend)
    cluster.brokers[2].kill()
    cluster.wait_for("latest", 0, lambda seen: seen.isr == (1,))
