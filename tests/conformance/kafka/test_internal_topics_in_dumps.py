"""`odradek log dump` beside Kafka's own tool, on the internal topics that both brokers write."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, running_broker, why_missing
from tests.support.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

WAIT_S = 60
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
RECORD = re.compile(r"\| offset: (\d+) .* key: (.*) payload: (.*)")


def transact(bootstrap: str) -> None:
    """Each state that stays in the log, and an offset that a group commits."""
    producers = {}
    for name in ("committed", "aborted", "öpen", "empty"):
        producers[name] = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 2}
        )
        producers[name].init_transactions(WAIT_S)
        if name == "empty":
            continue
        producers[name].begin_transaction()
        for topic in ("t", "u"):
            producers[name].produce(topic, b"v")
        assert producers[name].flush(WAIT_S) == 0
    producers["committed"].commit_transaction(WAIT_S)
    producers["aborted"].abort_transaction(WAIT_S)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 2}
    )
    offset = confluent_kafka.TopicPartition("t", 0, 1)
    consumer.commit(offsets=[offset], asynchronous=False)
    consumer.close()


def records(lines: list[str]) -> list[tuple[int, Any, Any]]:
    found = [RECORD.fullmatch(line) for line in lines if line.startswith("| ")]
    assert found
    assert None not in found
    return [(int(one[1]), json.loads(one[2]), comparable(one[3])) for one in found if one]


def comparable(text: str) -> Any:
    """Without what our coordinator does not keep."""
    told = json.loads(text)
    if isinstance(told, dict):
        told["data"].pop("topicId", None)
        if "protocolType" in told["data"]:
            told["data"]["protocolType"] = told["data"]["protocolType"] or None
    return told


@contextlib.contextmanager
def running_writer(name: str, data_dir: Path) -> Iterator[tuple[str, Path]]:
    """Runs a broker: its address, and its directory of partitions."""
    if name == "odradek":
        with EmbeddedBroker(SETTINGS, data_dir=data_dir) as broker:
            yield broker.bootstrap_servers, data_dir
        return
    install = find_kafka(name)
    if install is None:
        pytest.skip(why_missing(name))
    with running_broker(install, data_dir) as kafka:
        yield kafka.bootstrap, kafka.log_dir


@pytest.mark.parametrize("writer", [*KAFKA_VERSIONS, "odradek"])
def test_both_tools_print_the_same(writer: str, tmp_path: Path) -> None:
    """10:9.10, 01: what brokers of both lines and ours write, as the newer tool shows it."""
    tool = find_kafka(KAFKA_VERSIONS[0])
    if tool is None:
        pytest.skip(why_missing(KAFKA_VERSIONS[0]))
    with running_writer(writer, tmp_path / "data") as (bootstrap, log_dir):
        transact(bootstrap)
    for topic, option in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        path = str(log_dir / f"{topic}-0" / "00000000000000000000.log")
        theirs = tool.dump_log_segments("--deep-iteration", option, "--files", path)
        ours = run_command("log", "dump", "--records", path)
        assert (ours.code, ours.err) == (0, "")
        shown = records(ours.lines)
        assert shown == records(theirs.stdout.splitlines())
        if topic == "__transaction_state":
            # Empty, Ongoing, and the decisions with their ends.
            states = {one[2]["data"]["transactionStatus"] for one in shown}
            assert states == {0, 1, 2, 3, 4, 5}
