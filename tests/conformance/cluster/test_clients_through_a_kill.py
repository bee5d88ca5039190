"""Foreign clients write and read with groups while a leader is killed under them.

Each client has a topic of its own, with a partition led by each broker, one producer with acks=all
and one member of a group. Once each has something acknowledged, one broker is killed with SIGKILL;
the producers go on until each has more acknowledged of every partition with the new leaders.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing
from tests.support.odradek_cluster import eventually, running_processes
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

PARTITIONS = 3
_IN_FLIGHT = 60
_WANTED = 50  # Acknowledged of each partition, before the kill and after it.
_GIVE_UP_S = 120


@dataclass(slots=True)
class Story:
    """What one client wrote and read."""

    bootstrap: str
    topic: str
    # Value by offset, as acknowledged and as read, for each partition. Values are sent ascending.
    acknowledged: dict[int, dict[int, int]] = field(
        default_factory=lambda: {number: {} for number in range(PARTITIONS)}
    )
    read: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    reads_that_differ: list[tuple[int, int, int]] = field(default_factory=list)
    is_enough: threading.Event = field(default_factory=threading.Event)
    is_read: threading.Event = field(default_factory=threading.Event)

    def acknowledge(self, partition: int, offset: int, value: int) -> None:
        self.acknowledged[partition][offset] = value

    def see(self, partition: int, offset: int, value: int) -> None:
        if self.read[partition].setdefault(offset, value) != value:
            self.reads_that_differ.append((partition, offset, value))

    def has_acknowledged(self, *, beyond: dict[int, int]) -> bool:
        return all(len(self.acknowledged[n]) >= beyond[n] + _WANTED for n in beyond)

    def has_read_all(self) -> bool:
        return all(
            self.read[number].keys() >= offsets.keys()
            for number, offsets in self.acknowledged.items()
        )

    def check(self) -> None:
        """Nothing acknowledged is lost or twice there, and order is kept in each partition."""
        assert not self.reads_that_differ
        for number, acknowledged in self.acknowledged.items():
            read = self.read[number]
            assert {offset: read.get(offset) for offset in acknowledged} == acknowledged
            values = [read[offset] for offset in sorted(read)]
            assert values == sorted(set(values)), self.topic


def librdkafka_writes(story: Story) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": story.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    errors: list[object] = []

    def on_delivery(error: object, message: confluent_kafka.Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or offset is None or value is None:
            errors.append(error)
        else:
            story.acknowledge(partition, offset, int(value))

    number = 0
    while not story.is_enough.is_set():
        if len(producer) < _IN_FLIGHT:
            partition = number % PARTITIONS
            producer.produce(
                story.topic, b"%d" % number, partition=partition, on_delivery=on_delivery
            )
            number += 1
        producer.poll(0.005)
    assert (producer.flush(_GIVE_UP_S), errors) == (0, [])


def librdkafka_reads(story: Story) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": story.bootstrap,
            "group.id": f"group-of-{story.topic}",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([story.topic])
        while not story.is_read.is_set():
            for message in consumer.consume(500, 0.2):
                partition, offset, value = message.partition(), message.offset(), message.value()
                if message.error() is None:
                    assert partition is not None
                    assert offset is not None
                    story.see(partition, offset, int(value or b""))
    finally:
        consumer.close()


def aiokafka_writes(story: Story) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=story.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            number = 0
            while not story.is_enough.is_set():
                sent = {
                    value: await producer.send(
                        story.topic, b"%d" % value, partition=value % PARTITIONS
                    )
                    for value in range(number, number + _IN_FLIGHT)
                }
                number += _IN_FLIGHT
                for value, future in sent.items():
                    found = await asyncio.wait_for(future, _GIVE_UP_S)
                    story.acknowledge(found.partition, found.offset, value)

    asyncio.run(write())


def aiokafka_reads(story: Story) -> None:
    async def read() -> None:
        async with aiokafka.AIOKafkaConsumer(
            story.topic,
            bootstrap_servers=story.bootstrap,
            group_id=f"group-of-{story.topic}",
            auto_offset_reset="earliest",
        ) as consumer:
            while not story.is_read.is_set():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for one in records:
                        story.see(one.partition, one.offset, int(one.value or b""))

    asyncio.run(read())


@dataclass(frozen=True, slots=True)
class Programs:
    """A client as two programs, each of whose lines tells of one record."""

    write_command: Callable[[Story], Sequence[str]]
    read_command: Callable[[Story], Sequence[str]]
    folder: Path

    def writes(self, story: Story) -> None:
        self._run(self.write_command(story), story, story.is_enough, self._acknowledged)

    def reads(self, story: Story) -> None:
        self._run(self.read_command(story), story, story.is_read, self._seen)

    def _run(
        self,
        command: Sequence[str],
        story: Story,
        until: threading.Event,
        take: Callable[[Story, dict[str, object]], None],
    ) -> None:
        errors = self.folder / f"{story.topic}-{take.__name__}.log"
        with (
            errors.open("wb") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):

            def end() -> None:
                until.wait(_GIVE_UP_S)
                process.send_signal(signal.SIGTERM)

            ending = threading.Thread(target=end)
            ending.start()
            assert process.stdout is not None
            for line in process.stdout:
                take(story, json.loads(line))
            ending.join()
        assert until.is_set(), errors.read_text()[-4000:]

    @staticmethod
    def _acknowledged(story: Story, event: dict[str, object]) -> None:
        assert event["name"] != "producer_send_error", event
        if event["name"] == "producer_send_success":
            story.acknowledge(
                int(str(event["partition"])), int(str(event["offset"])), int(str(event["value"]))
            )

    @staticmethod
    def _seen(story: Story, event: dict[str, object]) -> None:
        if event["name"] == "record_data":
            story.see(
                int(str(event["partition"])), int(str(event["offset"])), int(str(event["value"]))
            )


def java(install: KafkaInstall, folder: Path) -> Programs:
    """`VerifiableProducer` and `VerifiableConsumer`."""

    def command(tool: str, story: Story, *words: str) -> Sequence[str]:
        return install.command(
            f"org.apache.kafka.tools.{tool}",
            *("--bootstrap-server", story.bootstrap, "--topic", story.topic, *words),
        )

    def write(story: Story) -> Sequence[str]:
        config = folder / f"{story.topic}.properties"
        # The tool sets no retries, which only a file of settings can undo.
        config.write_text("retries=2147483647\nenable.idempotence=true\nacks=all\n")
        option = "--producer.config" if install.version.startswith("3.") else "--command-config"
        words = ("--acks", "-1", "--throughput", "300", option, str(config))
        return command("VerifiableProducer", story, *words)

    def read(story: Story) -> Sequence[str]:
        words = ("--group-id", f"group-of-{story.topic}", "--verbose", "--reset-policy", "earliest")
        return command("VerifiableConsumer", story, *words)

    return Programs(write, read, folder)


def kafka_python(folder: Path) -> Programs:
    program = Path(__file__).with_name("kafka_python_program.py")

    def command(what: str, story: Story) -> Sequence[str]:
        words = (what, story.bootstrap, story.topic, str(PARTITIONS))
        return (sys.executable, str(program), *words)

    return Programs(lambda story: command("writes", story), lambda s: command("reads", s), folder)


def test_no_client_loses_what_was_acknowledged(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    """08:K-16 with librdkafka, kafka-python, aiokafka and the Java clients of two versions."""
    foreign = kafka_python(tmp_path)
    clients: dict[str, tuple[Callable[[Story], None], Callable[[Story], None]]] = {
        "librdkafka": (librdkafka_writes, librdkafka_reads),
        "kafka-python": (foreign.writes, foreign.reads),
        "aiokafka": (aiokafka_writes, aiokafka_reads),
    }
    for version in KAFKA_VERSIONS:
        install = find_kafka(version)
        if install is None:
            pytest.skip(why_missing(version))
        foreign = java(install, tmp_path)
        clients[f"java-{version}"] = (foreign.writes, foreign.reads)
    settings = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}
    with (
        running_processes(zookeeper, tmp_path, settings) as cluster,
        ThreadPoolExecutor(2 * len(clients)) as pool,
    ):
        stories = {name: Story(cluster.bootstrap, name) for name in clients}
        replicas = {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0, 1]}
        for name in clients:
            cluster.create(name, replicas)
        running = {
            f"{name} {verb}": pool.submit(work, stories[name])
            for name, (writes, reads) in clients.items()
            for verb, work in (("writes", writes), ("reads", reads))
        }

        def wait_for(condition: Callable[[Story], bool]) -> None:
            for name, story in stories.items():
                eventually(
                    lambda story=story: (
                        condition(story)  # type: ignore[misc]  # mypy wants no default here
                        or any(one.done() for one in running.values())
                    ),
                    lambda story=story: story,  # type: ignore[misc]  # likewise
                )
                assert condition(story), (
                    name,
                    {n: one for n, one in running.items() if one.done()},
                )

        try:
            nothing = dict.fromkeys(replicas, 0)
            wait_for(lambda story: story.has_acknowledged(beyond=nothing))
            wait_for(lambda story: any(story.read.values()))
            cluster.brokers[1].kill()
            for name in clients:
                for number in replicas:
                    cluster.wait_for(name, number, lambda seen: seen.leader in (0, 2))
            before = {
                name: {number: len(found) for number, found in story.acknowledged.items()}
                for name, story in stories.items()
            }
            wait_for(lambda story: story.has_acknowledged(beyond=before[story.topic]))
            for name, story in stories.items():
                story.is_enough.set()
                running.pop(f"{name} writes").result(_GIVE_UP_S)
            wait_for(Story.has_read_all)
        finally:
            for story in stories.values():
                story.is_enough.set()
                story.is_read.set()
        for one in running.values():
            one.result(_GIVE_UP_S)
        for story in stories.values():
            story.check()
