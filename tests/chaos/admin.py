"""What a campaign asks of a cluster as its operator, through librdkafka and Kafka's tools."""

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.nodes import wait_until
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka

__all__ = ["Admin", "PartitionView"]

CALL_S = 10
TOOL_LIMIT_S = 90
# So that a broker may die while a replica moves: some seconds for what a run has written.
MOVED_BYTES_PER_S = 20_000


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as a broker tells it."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Admin:
    """The operator of a cluster."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._client = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 0,
            }
        )

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """All partitions; empty if no broker answers, or the topic is not known to it."""
        with contextlib.suppress(KafkaException):
            told = self._client.list_topics(topic, timeout=CALL_S).topics[topic]
            if told.error is None:
                return {
                    number: PartitionView(
                        one.leader if one.leader >= 0 else None,
                        tuple(one.replicas),
                        tuple(one.isrs),
                    )
                    for number, one in sorted(told.partitions.items())
                }
        return {}

    def leader(self, topic: str, partition: int) -> int | None:
        view = self.partitions(topic).get(partition)
        return view.leader if view is not None else None

    def is_whole(self, topic: str, factor: int = 3) -> bool:
        """Whether each partition has all replicas in sync and a leader."""
        views = self.partitions(topic).values()
        return bool(views) and all(
            one.leader is not None and len(one.isr) == len(one.replicas) == factor for one in views
        )

    def brokers(self) -> frozenset[int]:
        """The brokers that are known."""
        with contextlib.suppress(KafkaException):
            return frozenset(self._client.list_topics(timeout=CALL_S).brokers)
        return frozenset()

    def coordinator(self, group: str) -> int | None:
        with contextlib.suppress(KafkaException):
            futures = self._client.describe_consumer_groups([group], request_timeout=CALL_S)
            node = futures[group].result().coordinator
            return int(node.id) if node is not None else None
        return None

    def create_topic(
        self, topic: str, partitions: int, limit_s: float = 90, factor: int = 3
    ) -> None:
        """Makes a topic and waits until it is whole.

        Raises:
            TimeoutError: It is not.
        """

        def is_there() -> bool:
            if not self.partitions(topic):
                with contextlib.suppress(KafkaException):
                    new = NewTopic(topic, num_partitions=partitions, replication_factor=factor)
                    self._client.create_topics([new], request_timeout=CALL_S)[topic].result()
            return self.is_whole(topic, factor)

        if not wait_until(is_there, limit_s, pause_s=1):
            raise TimeoutError(f"topic {topic} is not whole: {self.partitions(topic)}")

    def delete_topic(self, topic: str, limit_s: float = 90) -> bool:
        """Deletes a topic; whether it is gone."""

        def is_gone() -> bool:
            if not self._exists(topic):
                return True
            with contextlib.suppress(KafkaException):
                self._client.delete_topics([topic], request_timeout=CALL_S)[topic].result()
            return False

        return wait_until(is_gone, limit_s, pause_s=1)

    def _exists(self, topic: str) -> bool:
        """Whether a topic is there; so it is as long as no broker denies it."""
        try:
            future = self._client.describe_topics(TopicCollection([topic]), request_timeout=CALL_S)[
                topic
            ]
            future.result()
        except KafkaException as error:
            return bool(error.args[0].name() != "UNKNOWN_TOPIC_OR_PART")
        return True

    def reassign(self, topic: str, wanted: Mapping[int, Sequence[int]]) -> bool:
        """Moves replicas with Kafka's tool and waits until they are there."""
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for number, replicas in wanted.items()
        ]

        def is_done() -> bool:
            views = self.partitions(topic)
            return all(
                number in views
                and set(views[number].replicas) == set(replicas) == set(views[number].isr)
                for number, replicas in wanted.items()
            )

        for _ in range(3):
            self._execute(rows)
            if wait_until(is_done, 30, pause_s=0.5):
                return True
        return False

    def move_directories(self, topic: str, partition: int, folders: Mapping[int, Path]) -> bool:
        """Begins to move replicas to other directories of their brokers; slowly, and whether."""
        row = {
            "topic": topic,
            "partition": partition,
            "replicas": list(folders),
            "log_dirs": [str(folder) for folder in folders.values()],
        }
        told = self._execute([row], "--replica-alter-log-dirs-throttle", str(MOVED_BYTES_PER_S))
        return "Successfully started moving log directory" in told

    def _execute(self, rows: Sequence[Mapping[str, Any]], *words: str) -> str:
        """What Kafka's tool says to a reassignment."""
        install = find_kafka(KAFKA_VERSIONS[0])
        assert install is not None, "the fault needs Kafka's tools"
        path = self._folder / "reassignment.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        command = install.command(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            "--bootstrap-server", self._bootstrap,
            "--reassignment-json-file", str(path), "--execute", *words,
        )  # fmt: skip
        told = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            told = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=TOOL_LIMIT_S, check=False,
            ).stdout  # fmt: skip
        with (self._folder / "reassignment.log").open("a") as log:
            log.write(told)
        return told
