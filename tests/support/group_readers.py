"""Consumers of several makes in one group, polled by turns until something holds."""

import contextlib
import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from odradek import Admin, Consumer, Producer
from odradek.client.admin import NewTopic
from odradek.client.consumer import RebalanceInProgressError
from odradek.errors import ApiError
from odradek.model import TopicPartition
from tests.support.apache_kafka import KafkaInstall

DEADLINE_S = 120
# Long: these tests are not about expiry, and the machine may be slow.
SESSION_MS = 30_000


def new_name(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def create_topic(bootstrap: str, partitions: int, what: str = "t") -> str:
    name = new_name(what)
    with Admin(bootstrap_servers=bootstrap) as admin:
        created = admin.create_topics([NewTopic(name=name, partition_count=partitions)])[name]
    if isinstance(created, ApiError):
        raise created
    return name


def produce(bootstrap: str, topic: str, values: Sequence[bytes], *, partitions: int) -> None:
    """Value i goes to partition i modulo their number."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for index, value in enumerate(values):
            producer.send(topic, value, partition=index % partitions)


class OurReader:
    """A consumer of ours, with all that it was told."""

    def __init__(self, bootstrap: str, group: str, topic: Any, **settings: Any) -> None:
        self.values: list[bytes | None] = []
        # Partition and offset of all that was read.
        self.seen: set[tuple[int, int]] = set()
        self.told: list[tuple[str, frozenset[int]]] = []
        self.threads: set[int] = set()
        self.consumer = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            **{
                "auto_offset_reset": "earliest",
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": 200,
                **settings,
            },
        )
        self.consumer.subscribe(topic if hasattr(topic, "fullmatch") else [topic], listener=self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.consumer.close(60)

    def poll(self) -> None:
        for record in self.consumer.poll(0.1):
            self.values.append(record.value)
            self.seen.add((record.partition, record.offset))

    def commit(self) -> None:
        """Commit; if a rebalance is under way, poll until it is over, as the error says."""
        while True:
            try:
                self.consumer.commit_sync(timeout=60)
            except RebalanceInProgressError:
                self.poll()
            else:
                return

    @property
    def partitions(self) -> set[int]:
        return {tp.partition for tp in self.consumer.assignment()}

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.threads.add(threading.get_ident())
        if partitions:
            self.told.append((what, frozenset(tp.partition for tp in partitions)))


class LibrdkafkaReader:
    """A consumer of confluent-kafka."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        import confluent_kafka

        self.seen: set[tuple[int, int]] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
            }
        )
        self._consumer.subscribe([topic])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._consumer.close()

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.1):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                self.seen.add((partition, offset))

    @property
    def partitions(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}


class JavaReader:
    """Kafka's verifiable consumer, a process that prints what happens to it."""

    def __init__(
        self,
        install: KafkaInstall,
        out_path: Path,
        bootstrap: str,
        group: str,
        topic: str,
        assignment_strategy: str,
    ) -> None:
        self._out_path = out_path
        arguments = [
            "--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic,
            "--reset-policy", "earliest", "--enable-autocommit",
            "--session-timeout", str(SESSION_MS), "--assignment-strategy", assignment_strategy,
        ]  # fmt: skip
        with out_path.open("wb") as out:
            self._process = subprocess.Popen(
                install.command("org.apache.kafka.tools.VerifiableConsumer", *arguments),
                stdout=out,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.kill()
        self._process.wait()

    def poll(self) -> None:
        """It polls by itself."""
        assert self._process.poll() is None, f"it ended: {self._out_path.read_text()[-2000:]}"

    @property
    def partitions(self) -> set[int]:
        owned: set[int] = set()
        for event in self._events():
            numbers = {one["partition"] for one in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                owned |= numbers
            elif event["name"] == "partitions_revoked":
                owned -= numbers
        return owned

    @property
    def seen(self) -> set[tuple[int, int]]:
        return {
            (part["partition"], offset)
            for event in self._events()
            if event["name"] == "records_consumed"
            for part in event["partitions"]
            for offset in range(part["minOffset"], part["maxOffset"] + 1)
        }

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self._out_path.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)


def poll_until(readers: Sequence[Any], condition: Callable[[], bool], what: str) -> None:
    """Poll all of them by turns, as their applications would."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        for reader in readers:
            reader.poll()


def are_shared(readers: Sequence[Any], count: int) -> bool:
    """Whether each partition has one reader, and every reader some."""
    owned = [reader.partitions for reader in readers]
    return all(owned) and sorted(p for some in owned for p in some) == list(range(count))
