"""Compacted topics of a whole broker: cleaned by themselves, with nothing lost."""

import threading
import time
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands
from tests.support.log_scenarios import records_of
from tests.support.logs import LogFixture, read_all

pytestmark = pytest.mark.slow

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": str(1 << 20),
    "log.segment.delete.delay.ms": "0",
}
KEYS = 20
ROUNDS = 150
DEADLINE_S = 120


def size_of(directory: Path) -> int:
    """Bytes of the segments; files may go while they are looked at."""
    total = 0
    for path in directory.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def names(checkpoint: Path, partition: str) -> bool:
    """Whether the file is there and has a line of this partition."""
    return checkpoint.exists() and partition in checkpoint.read_text()


def test_a_topic_is_compacted_by_itself(tmp_path: Path) -> None:
    """And dynamic settings reach the cleaner: it does nothing before the ratio allows it."""
    with EmbeddedBroker(SETTINGS, data_dir=tmp_path) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok(
            "topics", "create", "t",
            "--config", "cleanup.policy=compact",
            "--config", "segment.bytes=200000",
            "--config", "min.cleanable.dirty.ratio=1",
        )  # fmt: skip
        for number in range(3):
            lines = [
                f"{key}:{number}-{i}-{'x' * 100}\n" for i in range(ROUNDS) for key in range(KEYS)
            ]
            odradek.ok("produce", "t", "--key-separator", ":", stdin="".join(lines).encode())
        written = size_of(tmp_path / "t-0")
        assert written > 3 * ROUNDS * KEYS * 100
        odradek.ok("configs", "alter", "topic", "t", "--set", "min.cleanable.dirty.ratio=0.01")
        end = time.monotonic() + DEADLINE_S
        # The checkpoint is written at the end of a pass: after the files have shrunk.
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        while size_of(tmp_path / "t-0") > written / 3 or not names(checkpoint, "t 0 "):
            assert time.monotonic() < end, "the log is not compacted"
            time.sleep(0.1)
    # The broker has closed it in order, whatever the cleaner was at.
    with LogFixture(tmp_path) as fixture:
        log = fixture.open(clean=True)
        records = records_of(read_all(log))
    assert log.log_end_offset == 3 * ROUNDS * KEYS
    last = {record.key: record.value for record in records}
    assert last == {b"%d" % key: b"2-%d-%s" % (ROUNDS - 1, b"x" * 100) for key in range(KEYS)}
    assert len(records) < ROUNDS * KEYS


def test_a_throttled_pass_goes_on_when_the_rate_is_raised(tmp_path: Path) -> None:
    """Both settings are changed on the running broker; before, it would look once a day, and need
    days for a pass."""
    settings = {
        **SETTINGS,
        "log.cleaner.backoff.ms": str(86_400_000),
        "log.cleaner.io.max.bytes.per.second": "1",
    }
    with EmbeddedBroker(settings, data_dir=tmp_path) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok(
            "topics", "create", "t",
            "--config", "cleanup.policy=compact",
            "--config", "segment.bytes=200000",
            "--config", "min.cleanable.dirty.ratio=0.01",
        )  # fmt: skip
        for number in range(3):
            lines = [
                f"{key}:{number}-{i}-{'x' * 100}\n" for i in range(ROUNDS) for key in range(KEYS)
            ]
            odradek.ok("produce", "t", "--key-separator", ":", stdin="".join(lines).encode())
        written = size_of(tmp_path / "t-0")
        odradek.ok("configs", "alter", "broker", "default", "--set", "log.cleaner.backoff.ms=50")
        end = time.monotonic() + DEADLINE_S
        # A pass that has read keys waits before it has written anything.
        while "cleaner" not in {thread.name.split("_")[0] for thread in threading.enumerate()}:
            assert time.monotonic() < end, "no pass has begun"
            time.sleep(0.05)
        assert size_of(tmp_path / "t-0") == written
        odradek.ok(
            "configs", "alter", "broker", "default",
            "--set", "log.cleaner.io.max.bytes.per.second=100000000",
        )  # fmt: skip
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        while not names(checkpoint, "t 0 "):
            assert time.monotonic() < end, "the log is not compacted"
            time.sleep(0.1)
        assert size_of(tmp_path / "t-0") < written / 3
