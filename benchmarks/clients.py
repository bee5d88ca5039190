"""Producing from Python: our client beside others, all against the same broker of ours.

Each sample is a process of its own, clients take turns, and a figure is the median of the samples.
All get the same records, four partitions, acks=all, a linger of 5 ms and batches of 128 KB: with
each one's own defaults the size of the batches (16 KB here, 1 MB there) would be what is measured.
The clock runs from the first `send` until everything is acknowledged; a few records before it let
each client connect.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.servers import ODRADEK, Run
from benchmarks.table import Row, server_benchmark
from odradek import Admin
from odradek.client.admin import NewTopic

_ROOT = Path(__file__).resolve().parent.parent
_SAMPLES = 3
_PARTITIONS = 4
_TIMEOUT_S = 300

# Label, bytes of a value, records of a sample by client: slow ones get fewer.
_LOADS = (
    ("100 B", 100, {"odradek": 300_000, "confluent": 300_000, "aiokafka": 60_000, "kafka": 20_000}),
    (
        "1 KB",
        1_024,
        {"odradek": 100_000, "confluent": 100_000, "aiokafka": 30_000, "kafka": 15_000},
    ),
)
_NAMES = {"confluent": "confluent-kafka", "aiokafka": "aiokafka", "kafka": "kafka-python"}
_BARS = {"confluent": 0.5, "aiokafka": 3.0, "kafka": 8.0}

_PREPARE = """
import json, sys, time
servers, topic, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
value = b"x" * size
BATCH, LINGER_MS = 128 * 1024, 5
"""
_PROGRAMS = {
    "odradek": """
from odradek import Producer
with Producer(bootstrap_servers=servers, linger_ms=LINGER_MS, batch_size=BATCH) as producer:
    producer.send(topic, value).result(60)
    began = time.perf_counter()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    seconds = time.perf_counter() - began
    assert producer.metrics()["record-error-total"] == 0
""",
    "confluent": """
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True,
    "linger.ms": LINGER_MS, "batch.size": BATCH, "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000})
producer.produce(topic, value)
producer.flush()
began = time.perf_counter()
for number in range(count):
    producer.produce(topic, value)
    if number % 1000 == 0:
        producer.poll(0)
assert producer.flush(120) == 0
seconds = time.perf_counter() - began
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaProducer
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True,
        linger_ms=LINGER_MS, max_batch_size=BATCH)
    await producer.start()
    await producer.send_and_wait(topic, value)
    began = time.perf_counter()
    for _ in range(count):
        await producer.send(topic, value)
    await producer.flush()
    took = time.perf_counter() - began
    await producer.stop()
    return took
seconds = asyncio.run(main())
""",
    "kafka": """
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True,
    linger_ms=LINGER_MS, batch_size=BATCH)
producer.send(topic, value).get(60)
began = time.perf_counter()
for _ in range(count):
    producer.send(topic, value)
producer.flush()
seconds = time.perf_counter() - began
producer.close()
""",
}
_TELL = "\nprint(json.dumps(count / seconds))\n"


@server_benchmark("client")
def producing(run: Run) -> Iterator[Row]:
    """Records per second of each client; the bars are ratios of ours to theirs."""
    for label, size, counts in _LOADS:
        samples: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
        for number in range(1 if run.is_quick else _SAMPLES):
            with contextlib.ExitStack() as stack:
                server = stack.enter_context(run.servers[ODRADEK]())
                for name in _PROGRAMS:
                    count = counts[name] // (10 if run.is_quick else 1)
                    topic = f"{name}-{number}"
                    _create(server.bootstrap, topic)
                    samples[name].append(_measure(name, server.bootstrap, topic, size, count))
        ours = median(samples["odradek"])
        yield Row(
            name=f"client: produce {label}",
            measured=ours,
            unit="records/s",
            raw={"samples": samples["odradek"]},
        )
        for name, known_as in _NAMES.items():
            theirs = median(samples[name])
            yield Row(
                name=f"client: produce {label} by {known_as}'s",
                measured=ours / theirs,
                unit="x",
                bar=None if run.is_quick else _BARS[name],
                is_bar_lowest=True,
                raw={"records/s": samples[name]},
            )


def _create(servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        created = admin.create_topics([NewTopic(name=topic, partition_count=_PARTITIONS)])[topic]
        assert not isinstance(created, Exception), created


def _measure(name: str, servers: str, topic: str, size: int, count: int) -> float:
    program = _PREPARE + _PROGRAMS[name] + _TELL
    done = subprocess.run(
        [sys.executable, "-c", program, servers, topic, str(size), str(count)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
        cwd=_ROOT,
    )
    rate: float = json.loads(done.stdout.splitlines()[-1])
    return rate
