"""Consuming from Python: our client beside others, all from the same broker of ours.

Each sample is a process of its own, clients take turns, and a figure is the median of the samples.
All read the same four partitions, assigned by hand, from the beginning, with each one's own
defaults. The clock runs from the first records on, so that connecting does not count.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.servers import ODRADEK, Run
from benchmarks.table import Row, server_benchmark
from odradek import Admin, Producer
from odradek.client.admin import NewTopic

_ROOT = Path(__file__).resolve().parent.parent
_SAMPLES = 3
_PARTITIONS = 4
_TIMEOUT_S = 300

# Label, bytes of a value, records in the topic, and how many of them a client reads behind those
# it gets first, which are not counted.
_LOADS = (
    (
        "100 B",
        100,
        400_000,
        {"odradek": 300_000, "arrow": 300_000, "confluent": 100_000, "aiokafka": 100_000,
         "kafka": 40_000},
    ),
    (
        "1 KB",
        1_024,
        150_000,
        {"odradek": 120_000, "aiokafka": 40_000, "kafka": 20_000},
    ),
)  # fmt: skip
# (reader of ours, of theirs): least ratio.
_BARS = {
    ("odradek", "aiokafka"): 2.0,
    ("odradek", "kafka"): 4.0,
    ("arrow", "confluent"): 5.0,
}
_NAMES = {"confluent": "confluent-kafka", "aiokafka": "aiokafka", "kafka": "kafka-python"}

_PREPARE = """
import json, sys, time
servers, topic, count, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def measure(read):
    got = 0
    while not got:
        got = first = read()
    began = time.perf_counter()
    while got < first + count:
        got += read()
    return (got - first) / (time.perf_counter() - began)
"""
_PROGRAMS = {
    "odradek": """
from odradek import Consumer
with Consumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
    consumer.assign([(topic, number) for number in range(partitions)])
    consumer.seek_to_beginning()
    rate = measure(lambda: len(consumer.poll(5)))
""",
    "arrow": """
from odradek import Consumer
with Consumer(bootstrap_servers=servers, enable_auto_commit=False) as consumer:
    consumer.assign([(topic, number) for number in range(partitions)])
    consumer.seek_to_beginning()
    rate = measure(lambda: sum(part.num_rows for part in consumer.poll_arrow(5)))
""",
    "confluent": """
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
rate = measure(lambda: len(consumer.consume(10_000, 5)))
consumer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer, TopicPartition
async def main():
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    await consumer.seek_to_beginning()
    async def read():
        return sum(map(len, (await consumer.getmany(timeout_ms=5000)).values()))
    got = 0
    while not got:
        got = first = await read()
    began = time.perf_counter()
    while got < first + count:
        got += await read()
    rate = (got - first) / (time.perf_counter() - began)
    await consumer.stop()
    return rate
rate = asyncio.run(main())
""",
    "kafka": """
from kafka import KafkaConsumer, TopicPartition
consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
consumer.seek_to_beginning()
rate = measure(lambda: sum(map(len, consumer.poll(5000).values())))
consumer.close()
""",
}
_TELL = "\nprint(json.dumps(rate))\n"


@server_benchmark("client-consume")
def consuming(run: Run) -> Iterator[Row]:
    """Records per second of each client; the bars are ratios of ours to theirs."""
    with run.servers[ODRADEK]() as server:
        for label, size, total, counts in _LOADS:
            topic = f"consume-{size}"
            scale = 10 if run.is_quick else 1
            _fill(server.bootstrap, topic, size, total)
            samples: dict[str, list[float]] = {name: [] for name in counts}
            for _ in range(1 if run.is_quick else _SAMPLES):
                for name, count in counts.items():
                    samples[name].append(_measure(name, server.bootstrap, topic, count // scale))
            for name in ("odradek", "arrow"):
                if name in samples:
                    how = "" if name == "odradek" else " with poll_arrow"
                    yield Row(
                        name=f"client: consume {label}{how}",
                        measured=median(samples[name]),
                        unit="records/s",
                        raw={"samples": samples[name]},
                    )
            for (ours, theirs), bar in _BARS.items():
                if ours in samples and theirs in samples:
                    how = "" if ours == "odradek" else " with poll_arrow"
                    yield Row(
                        name=f"client: consume {label}{how} by {_NAMES[theirs]}'s",
                        measured=median(samples[ours]) / median(samples[theirs]),
                        unit="x",
                        bar=None if run.is_quick else bar,
                        is_bar_lowest=True,
                        raw={"records/s": samples[theirs]},
                    )


def _fill(servers: str, topic: str, size: int, count: int) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        created = admin.create_topics([NewTopic(name=topic, partition_count=_PARTITIONS)])[topic]
        assert not isinstance(created, Exception), created
    value = b"x" * size
    with Producer(bootstrap_servers=servers, batch_size=1 << 17, linger_ms=5) as producer:
        for number in range(count):
            producer.send(topic, value, partition=number % _PARTITIONS)


def _measure(name: str, servers: str, topic: str, count: int) -> float:
    program = _PREPARE + _PROGRAMS[name] + _TELL
    done = subprocess.run(
        [sys.executable, "-c", program, servers, topic, str(count), str(_PARTITIONS)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
        cwd=_ROOT,
    )
    rate: float = json.loads(done.stdout.splitlines()[-1])
    return rate
