"""The first half of `make demo`: a million messages in and out, a kill the broker recovers from.

1. `odradek serve` starts on a free port, and a topic is created.
2. A million messages are written, acknowledged by all in-sync replicas, and read again by a
   consumer group, which commits its offsets.
3. More are written, and the broker is killed with SIGKILL meanwhile. The script appends half a
   batch to the log, as a power cut would leave it.
4. The broker starts on the same data, cuts the torn batch, and has all messages it acknowledged;
   the group has its offsets.
5. It is stopped gracefully.
"""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from odradek import Admin, Consumer, Producer
from odradek.client.admin import NewTopic
from odradek.errors import OdradekError
from odradek.model import TopicPartition

TOPIC = "demo"
GROUP = "demo-readers"
PARTITIONS = 4
MESSAGES = 1_000_000
MESSAGE_BYTES = 100
ROUND = 40_000  # Messages between two looks at the progress.
BATCH_BYTES = 128 * 1024
READY = "ready on "


def main() -> int:
    """Shows all steps; returns 0 if every acknowledged message was found."""
    directory = tempfile.mkdtemp(prefix="odradek-demo-")
    try:
        return show(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def show(directory: str) -> int:
    """Runs the steps in a directory of their own."""
    with serve(directory) as (process, address, seconds):
        print(f"broker   ready on {address} after {seconds:.2f} s")
        exchange(address)
        print("kill     writing on, then SIGKILL")
        acknowledged = write_until_killed(address, process)
    torn = tear_a_tail(directory)
    with serve(directory) as (process, address, seconds):
        found, lag = look_again(address)
        print(
            f"recover  ready again after {seconds:.2f} s: {acknowledged:,} messages were"
            f" acknowledged, {found:,} are there; a torn batch of {torn} bytes was cut"
        )
        print(f"group    {GROUP} is where it was: {found - lag:,} read, {lag:,} to go")
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=30)
        print(f"stop     in order, exit code {code}")
    if found < acknowledged or found - lag != MESSAGES or code != 0:
        print("demo: FAILED, something acknowledged is missing or the broker did not stop well")
        return 1
    return 0


@contextlib.contextmanager
def serve(directory: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """A broker process on that data: (process, address, seconds until it was ready)."""
    began = time.monotonic()
    command = [sys.executable, "-m", "odradek.cli.main", "serve"]
    options = ["--data", directory, "--listen", "127.0.0.1:0", "--log-level", "error"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if READY not in line:
            raise SystemExit(f"demo: the broker did not start, it said {line!r}")
        yield process, line.split(READY)[1].strip(), time.monotonic() - began
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def exchange(address: str) -> None:
    """A million messages in and out."""
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name=TOPIC, partition_count=PARTITIONS)])
    print(f"topic    {TOPIC} created, {PARTITIONS} partitions")
    value = b"x" * MESSAGE_BYTES
    began = time.monotonic()
    with Producer(bootstrap_servers=address, batch_size=BATCH_BYTES) as producer:
        for done in range(0, MESSAGES, ROUND):
            for _ in range(ROUND):
                producer.send(TOPIC, value)
            progress("in", done + ROUND)
    tell("in", time.monotonic() - began)
    with reader(address) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.assignment():  # The group waits for others to join it.
            consumer.poll(timeout=0)
            time.sleep(0.01)
        began = time.monotonic()
        seen = 0
        while seen < MESSAGES:
            seen += len(consumer.poll(timeout=1.0))
            progress("out", seen)
        tell("out", time.monotonic() - began)
        consumer.commit_sync()


def reader(address: str) -> Consumer:
    """A member of the group."""
    return Consumer(
        bootstrap_servers=address,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10_000,
    )


def partitions() -> list[TopicPartition]:
    """All partitions of the topic."""
    return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


def progress(way: str, done: int) -> None:
    """Shows the progress on a terminal."""
    if sys.stdout.isatty():
        print(f"\r{way:8} {done:,} messages", end="", flush=True)


def tell(way: str, seconds: float) -> None:
    """Shows the time and rate of a million messages."""
    end = "\r" if sys.stdout.isatty() else ""
    rate = MESSAGES / seconds
    print(
        f"{end}{way:8} {MESSAGES:,} messages of {MESSAGE_BYTES} bytes in {seconds:.1f} s:"
        f" {rate:,.0f} messages/s, {rate * MESSAGE_BYTES / 1e6:.0f} MB/s"
    )


def write_until_killed(address: str, process: subprocess.Popen[str]) -> int:
    """Writes until the broker dies; returns how many messages it has acknowledged in all."""
    acknowledged = MESSAGES
    # Short timeouts: the killed broker does not come back to answer.
    producer = Producer(
        bootstrap_servers=address,
        request_timeout_ms=1_000,
        delivery_timeout_ms=2_000,
        max_block_ms=1_000,
        on_error=lambda _failed: None,
    )
    with producer:
        threading.Timer(0.7, process.kill).start()
        with contextlib.suppress(OdradekError):
            while True:
                sent = [producer.send(TOPIC, b"y" * MESSAGE_BYTES) for _ in range(1_000)]
                for delivery in sent:
                    delivery.result()
                    acknowledged += 1
    return acknowledged


def tear_a_tail(directory: str) -> int:
    """Appends half a batch to a partition; returns its size."""
    path = max(glob.glob(os.path.join(directory, f"{TOPIC}-0", "*.log")))
    with open(path, "r+b") as log:
        head = log.read(90)
        log.seek(0, os.SEEK_END)
        return log.write(head)


def look_again(address: str) -> tuple[int, int]:
    """Messages in all partitions, and how many of them the group has not read."""
    with reader(address) as consumer:
        first = consumer.beginning_offsets(partitions())
        last = consumer.end_offsets(partitions())
        committed = consumer.committed(partitions())
    found = sum(last[tp] - first[tp] for tp in partitions())
    read = sum(one.offset for one in committed.values() if one is not None)
    return found, found - read
