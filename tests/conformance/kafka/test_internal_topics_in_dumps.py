"""`odradek log dump` beside Kafka's own tool, on the internal topics that Kafka's brokers wrote."""

import json
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, running_broker, why_missing
from tests.support.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

WAIT_S = 60
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


@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_both_tools_print_the_same(version: str, tmp_path: Path) -> None:
    """10:9.10, 01: what brokers of both lines write, as the newer tool shows it."""
    writer, tool = find_kafka(version), find_kafka(KAFKA_VERSIONS[0])
    for name, install in ((version, writer), (KAFKA_VERSIONS[0], tool)):
        if install is None:
            pytest.skip(why_missing(name))
    assert writer is not None
    assert tool is not None
    with running_broker(writer, tmp_path / "kafka") as broker:
        transact(broker.bootstrap)
    for topic, option in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        path = str(broker.log_dir / f"{topic}-0" / "00000000000000000000.log")
        theirs = tool.dump_log_segments("--deep-iteration", option, "--files", path)
        ours = run_command("log", "dump", "--records", path)
        assert (ours.code, ours.err) == (0, "")
        assert records(ours.lines) == records(theirs.stdout.splitlines())
