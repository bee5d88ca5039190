"""docs/operations/backup.md, word by word: a copy of a running broker's directory is a backup."""

import re
import subprocess
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from odradek import Consumer, Producer
from tests.support.commands import Commands
from tests.support.served import served

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "backup.md"
ANY_PORT = ("--listen", "127.0.0.1:0", "--set", "log.segment.bytes=65536")
PARTITIONS = 3


class Writer(threading.Thread):
    """Numbers for each partition in turn, until it is told to stop; counts those acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._server = bootstrap
        self.acknowledged = 0  # In every partition.
        self.is_told = threading.Event()
        self.has_begun = threading.Event()

    def run(self) -> None:
        with Producer({"bootstrap.servers": self._server, "acks": "all"}) as producer:
            while not self.is_told.is_set():
                value = b"%d" % self.acknowledged
                sent = [producer.send("t", value * 50, partition=p) for p in range(PARTITIONS)]
                for each in sent:
                    each.result(60)
                self.acknowledged += 1
                if self.acknowledged == 200:
                    self.has_begun.set()


def commands() -> dict[str, str]:
    """The commands of the page, by their first word."""
    found = re.findall(r"^    ((?:cp|odradek) .*)$", PAGE.read_text(), re.MULTILINE)
    return {line.split()[0]: line for line in found}


def read_all(bootstrap: str) -> dict[int, list[int]]:
    values: dict[int, list[int]] = defaultdict(list)
    settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "group.id": "all"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(timeout=1.0)
        partitions = sorted(consumer.assignment())
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(partitions)
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            for record in consumer.poll(timeout=1.0):
                assert record.value is not None
                values[record.partition].append(int(record.value[: len(record.value) // 50]))
    return values


def test_a_copy_of_a_running_broker_is_restored(tmp_path: Path) -> None:
    lines = commands()
    assert set(lines) == {"cp", "odradek"}
    with served(tmp_path / "a", *ANY_PORT, "--data", tmp_path / "data") as broker:
        odradek = Commands(broker.address)
        odradek.ok("topics", "create", "t", "--partitions", PARTITIONS)
        writer = Writer(broker.address)
        writer.start()
        assert writer.has_begun.wait(120)
        odradek.ok("consume", "t", "--group", "g", "--from-beginning", "--max-messages", 30)
        before = writer.acknowledged
        copy = lines["cp"].replace("/var/lib/odradek/data", str(tmp_path / "data"))
        copy = copy.replace("/backup/odradek", str(tmp_path / "backup"))
        subprocess.run(copy.split(), check=True)
        writer.is_told.set()
        writer.join(60)
        assert writer.acknowledged >= before

    words = lines["odradek"].replace("/backup/odradek", str(tmp_path / "backup")).split()
    with served(tmp_path / "b", *ANY_PORT, *words[2:]) as restored:
        assert list(restored.lines("ERROR")) == []
        values = read_all(restored.address)
        assert sorted(values) == list(range(PARTITIONS))
        for found in values.values():
            assert len(found) >= before
            assert found == list(range(len(found)))
        shown = Commands(restored.address)("groups", "describe", "g", "--json")
        assert sum(row["current_offset"] for row in shown.json) == 30
        assert restored.stop() == 0
