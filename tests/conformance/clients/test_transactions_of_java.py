"""Transactions of Kafka's Java clients, Kafka Streams and tools on Odradek, in both protocols.

One Java process and one broker serve all of it, for to start them takes longer than the rest.
"""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from odradek import Admin
from odradek.client.admin import FeatureUpgrade
from odradek.model import TopicPartition
from odradek.testing import EmbeddedBroker
from tests.conformance.interop.producer_transaction_checks import committed_values, eventually_true
from tests.conformance.interop.suite import run_all
from tests.conformance.interop.transaction_tool_checks import STRANGE_PRODUCER_ID, leave_open
from tests.support.group_readers import create_topic, new_name, produce
from tests.support.java_judge import JavaJudge, running_judge
from tests.support.odradek_broker import Requests, running_odradek

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Checks:
    """What a Java process finds out about a broker."""

    def __init__(self, judge: JavaJudge, state_dir: Path) -> None:
        self._judge = judge
        self._state_dir = state_dir

    def all(self) -> tuple[Callable[[str], None], ...]:
        return (
            self.commits_and_aborts,
            self.the_second_producer_fences_the_first,
            self.consume_transform_produce,
            self.the_performance_tool,
            self.the_message_copier,
            self.the_transactions_tool,
            self.kafka_streams,
        )

    def commits_and_aborts(self, bootstrap: str) -> None:
        """10:TX-1, 10:TX-2: as its own reader and two others find it."""
        topic = create_topic(bootstrap, 2)
        self._judge.ask("produce", bootstrap, topic, 6)
        kept = sorted(f"kept-{number}-{index}" for number in (0, 2, 4) for index in range(10))
        assert committed_values(bootstrap, topic) == [value.encode() for value in kept]
        assert sorted(self._judge.ask("read", bootstrap, topic)) == kept

    def the_second_producer_fences_the_first(self, bootstrap: str) -> None:
        """10:TX-4"""
        topic = create_topic(bootstrap, 1)
        assert self._judge.ask("fence", bootstrap, topic) == ["fenced"]
        assert committed_values(bootstrap, topic) == [b"successor"]

    def consume_transform_produce(self, bootstrap: str) -> None:
        """10:TX-12: the first attempt is aborted."""
        source, target = create_topic(bootstrap, 1), create_topic(bootstrap, 1)
        values = [b"%d" % number for number in range(30)]
        produce(bootstrap, source, values, partitions=1)
        assert self._judge.ask("copy", bootstrap, source, target) == ["30"]
        assert committed_values(bootstrap, target) == sorted(b"copy of " + one for one in values)

    def the_performance_tool(self, bootstrap: str) -> None:
        """`kafka-producer-perf-test --transactional-id`"""
        topic, name = create_topic(bootstrap, 1), new_name("perf")
        told = self._judge.tool(
            "ProducerPerformance", bootstrap,
            "--topic", topic, "--num-records", 500, "--record-size", 100, "--throughput", -1,
            "--transactional-id", name, "--transaction-duration-ms", 20,
        )  # fmt: skip
        assert any(line.startswith("500 records sent") for line in told)
        assert len(committed_values(bootstrap, topic)) == 500

    def the_message_copier(self, bootstrap: str) -> None:
        """Kafka's own consume-transform-produce, which aborts at random."""
        source, target = create_topic(bootstrap, 1), create_topic(bootstrap, 1)
        values = [b"%d" % number for number in range(200)]
        produce(bootstrap, source, values, partitions=1)
        self._judge.ask(
            "tool", "org.apache.kafka.tools.TransactionalMessageCopier",
            "--broker-list", bootstrap, "--input-topic", source, "--input-partition", 0,
            "--output-topic", target, "--consumer-group", new_name("copier"),
            "--transaction-size", 20, "--transactional-id", new_name("copier"),
            "--enable-random-aborts",
        )  # fmt: skip
        assert committed_values(bootstrap, target) == sorted(values)

    def the_transactions_tool(self, bootstrap: str) -> None:
        """`kafka-transactions`: list, describe, describe-producers."""
        topic = create_topic(bootstrap, 2)
        self._judge.ask("produce", bootstrap, topic, 2)
        name = f"java-{topic}"

        def told(*words: object) -> list[list[str]]:
            rows = self._judge.tool("TransactionsCommand", bootstrap, *words)[1:]
            return [row.split() for row in rows]

        def state() -> str:
            return next(row[3] for row in told("list") if row[0] == name)

        eventually_true(lambda: state() == "CompleteAbort", "the abort is complete")
        [described] = told("describe", "--transactional-id", name)
        [producer] = told("describe-producers", "--topic", topic, "--partition", 1)
        assert described[1] == name
        assert described[2] == producer[0], "the same producer id"
        assert described[4] == "CompleteAbort"
        assert producer[-1] == "None", "no transaction is open"

    def kafka_streams(self, bootstrap: str) -> None:
        """10:TX-12 by Kafka Streams, `exactly_once_v2`, with a store and its changelog."""
        source, target = create_topic(bootstrap, 1), create_topic(bootstrap, 1)
        words = [b"w%d" % (number % 7) for number in range(50)]
        produce(bootstrap, source, words, partitions=1)
        counts: Counter[bytes] = Counter()
        expected = []
        for word in words:
            counts[word] += 1
            expected.append(b"%s=%d" % (word, counts[word]))
        told = self._judge.ask("streams", bootstrap, source, target, self._state_dir, 50)
        assert sorted(told) == sorted(one.decode() for one in expected)
        assert committed_values(bootstrap, target) == sorted(expected)


def check_hanging_transactions(judge: JavaJudge) -> None:
    """`kafka-transactions`: find-hanging and abort, of what no coordinator knows."""
    # Where partitions are verified no transaction hangs.
    with EmbeddedBroker({"transaction.partition.verification.enable": "false"}) as broker:
        bootstrap = broker.bootstrap_servers
        topic = create_topic(bootstrap, 1)
        leave_open(bootstrap, TopicPartition(topic, 0), STRANGE_PRODUCER_ID)
        place = ("--topic", topic, "--partition", 0)
        found = judge.tool("TransactionsCommand", bootstrap, "find-hanging", *place)
        assert len(found) == 2
        assert found[1].split()[:3] == [topic, "0", str(STRANGE_PRODUCER_ID)]
        judge.tool("TransactionsCommand", bootstrap, "abort", *place, "--start-offset", 0)
        found = judge.tool("TransactionsCommand", bootstrap, "find-hanging", *place)
        assert len(found) == 1, "only the heading"
        assert committed_values(bootstrap, topic) == []


def test_transactions_of_java(tmp_path: Path) -> None:
    """With transaction.version 2 and 0."""
    with (
        running_odradek(tmp_path / "data", _SETTINGS) as broker,
        running_judge(tmp_path / "judge.log") as judge,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        versions: dict[int, Requests] = {}
        for level in (2, 0):
            done = admin.update_features(
                {"transaction.version": level}, upgrade=FeatureUpgrade.UNSAFE_DOWNGRADE
            )
            assert done == {"transaction.version": None}
            with broker.watched() as versions[level]:
                run_all(Checks(judge, tmp_path / f"streams-{level}").all(), broker.bootstrap)
        check_hanging_transactions(judge)
        assert 5 in versions[2].versions_of("EndTxn")
        assert max(versions[0].versions_of("EndTxn")) == 4
        assert re.search(r"ERROR", (tmp_path / "judge.log").read_text()) is None
