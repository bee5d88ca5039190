"""Producing from Python: our client beside others, all against the same broker of ours.

Each sample is a process of its own, clients take turns, and a figure is the median of the samples.
All get the same records, four partitions, acks=all, idempotence and no compression. `client` leaves
batching to each one's defaults:

===============  ==================================================================
odradek          linger 5 ms, 16 KB; a batch that has to wait grows up to 256 KB
confluent-kafka  linger 5 ms, 1 MB, 10,000 messages
aiokafka         no linger, 16 KB
kafka-python     no linger, 16 KB
===============  ==================================================================

`client-128KB` gives all of them a linger of 5 ms and batches of 128 KB. `client-arrow` sends record
batches of 10,000 rows, as Spark hands them over, with our defaults and with 512 KB. The clock runs
from the first `send` until everything is acknowledged; a few records before it let each client
connect. `client-transactions` commits transactions of 100 records of 100 B, one after another, on
Apache Kafka if the run has one, and else on our broker if it has transactions.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.servers import KAFKA, ODRADEK, Run
from benchmarks.table import Row, at_least, server_benchmark
from odradek import Admin
from odradek.broker.dispatch import HANDLERS
from odradek.client.admin import NewTopic
from odradek.protocol.api_keys import ApiKey

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

# Settings of each client for batches of 128 KB.
_LARGE_BATCHES = {
    "odradek": {"linger_ms": 5, "batch_size": 131_072},
    "confluent": {"linger.ms": 5, "batch.size": 131_072},
    "aiokafka": {"linger_ms": 5, "max_batch_size": 131_072},
    "kafka": {"linger_ms": 5, "batch_size": 131_072},
}
_ARROW_ROWS = 10_000
_ARROW_SETTINGS: tuple[tuple[str, dict[str, object]], ...] = (
    ("our defaults", {}),
    ("512 KB", {"batch_size": 524_288}),
)
# What a prototype wrote through Spark.
_ARROW_BAR = 1_250_000

_PREPARE = """
import json, sys, time
servers, topic, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
batching = json.loads(sys.argv[5])
value = b"x" * size
"""
_PROGRAMS = {
    "odradek": """
from odradek import Producer
with Producer(bootstrap_servers=servers, **batching) as producer:
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
    **batching})
producer.produce(topic, value)
producer.flush()
began = time.perf_counter()
for number in range(count):
    try:
        producer.produce(topic, value)
    except BufferError:  # Its queue is full: as its documentation says, wait and try again.
        while True:
            producer.poll(0.01)
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                pass
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
        **batching)
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
    **batching)
producer.send(topic, value).get(60)
began = time.perf_counter()
for _ in range(count):
    producer.send(topic, value)
producer.flush()
seconds = time.perf_counter() - began
producer.close()
""",
}
_ARROW_PROGRAM = """
import pyarrow as pa
from odradek import Producer
rows = pa.record_batch({"value": [value] * min(count, ROWS)})
with Producer(bootstrap_servers=servers, **batching) as producer:
    producer.send(topic, value).result(60)
    began = time.perf_counter()
    sent = [producer.send_arrow(topic, rows) for _ in range(count // len(rows))]
    producer.flush()
    seconds = time.perf_counter() - began
    assert sum(one.result(0).record_count for one in sent) == count
""".replace("ROWS", str(_ARROW_ROWS))
_TRANSACTIONS: Final = 150
_TRANSACTION_BARS = {"aiokafka": 1.0, "kafka": 2.0}
_TRANSACTION_PROGRAMS = {
    "odradek": """
from odradek import Producer
with Producer(bootstrap_servers=servers, transactional_id=topic, **batching) as producer:
    producer.init_transactions()
    def transact():
        with producer.transaction():
            for _ in range(100):
                producer.send(topic, value)
    for _ in range(20):
        transact()
    began = time.perf_counter()
    for _ in range(count):
        transact()
    seconds = time.perf_counter() - began
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaProducer
async def main():
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=topic, **batching)
    await producer.start()
    async def transact():
        async with producer.transaction():
            for _ in range(100):
                await producer.send(topic, value)
    for _ in range(20):
        await transact()
    began = time.perf_counter()
    for _ in range(count):
        await transact()
    took = time.perf_counter() - began
    await producer.stop()
    return took
seconds = asyncio.run(main())
""",
    "kafka": """
from kafka import KafkaProducer
producer = KafkaProducer(bootstrap_servers=servers, transactional_id=topic, **batching)
producer.init_transactions()
def transact():
    producer.begin_transaction()
    for _ in range(100):
        producer.send(topic, value)
    producer.commit_transaction()
for _ in range(20):
    transact()
began = time.perf_counter()
for _ in range(count):
    transact()
seconds = time.perf_counter() - began
producer.close()
""",
}
_TELL = "\nprint(json.dumps(count / seconds))\n"


@server_benchmark("client")
def producing(run: Run) -> Iterator[Row]:
    """Records per second of each client with its own batching; the bars are of ours by theirs."""
    yield from _beside_others(run, "client", {name: {} for name in _PROGRAMS})


@server_benchmark("client-128KB")
def producing_large_batches(run: Run) -> Iterator[Row]:
    """The same with batches of 128 KB for all."""
    yield from _beside_others(run, "client, 128 KB", _LARGE_BATCHES)


@server_benchmark("client-arrow")
def sending_arrow(run: Run) -> Iterator[Row]:
    """Rows per second of `send_arrow`."""
    count = 20_000 if run.is_quick else 1_000_000
    samples: dict[str, list[float]] = {label: [] for label, _ in _ARROW_SETTINGS}
    for number in range(1 if run.is_quick else _SAMPLES):
        with run.servers[ODRADEK]() as server:
            for label, settings in _ARROW_SETTINGS:
                topic = f"arrow-{number}-{len(settings)}"
                _create(server.bootstrap, topic)
                rate = _measure(_ARROW_PROGRAM, server.bootstrap, topic, 100, count, settings)
                samples[label].append(rate)
    for label, rates in samples.items():
        bar = None if run.is_quick else float(_ARROW_BAR)
        yield at_least(f"client: send_arrow 100 B, {label}", rates, "records/s", bar)


@server_benchmark("client-transactions")
def committing(run: Run) -> Iterator[Row]:
    """Transactions per second of each client; the bars are of ours by theirs."""
    start = run.servers.get(KAFKA)
    where = "on Kafka"
    if start is None:
        if ApiKey.END_TXN not in HANDLERS:
            return
        start, where = run.servers[ODRADEK], "on ours"
    count = 20 if run.is_quick else _TRANSACTIONS
    samples: dict[str, list[float]] = {name: [] for name in _TRANSACTION_PROGRAMS}
    with start() as server:
        for number in range(1 if run.is_quick else _SAMPLES):
            for name, program in _TRANSACTION_PROGRAMS.items():
                topic = f"{name}-{number}"
                _create(server.bootstrap, topic)
                samples[name].append(_measure(program, server.bootstrap, topic, 100, count, {}))
    ours = median(samples["odradek"])
    yield Row(
        name=f"client: transactions of 100 records, {where}",
        measured=ours,
        unit="1/s",
        raw={"samples": samples["odradek"]},
    )
    for name, bar in _TRANSACTION_BARS.items():
        yield Row(
            name=f"client: transactions by {_NAMES[name]}'s, {where}",
            measured=ours / median(samples[name]),
            unit="x",
            bar=None if run.is_quick else bar,
            is_bar_lowest=True,
            raw={"1/s": samples[name]},
        )


def _beside_others(
    run: Run, title: str, settings: Mapping[str, Mapping[str, object]]
) -> Iterator[Row]:
    for label, size, counts in _LOADS:
        samples: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
        for number in range(1 if run.is_quick else _SAMPLES):
            with run.servers[ODRADEK]() as server:
                for name, program in _PROGRAMS.items():
                    count = counts[name] // (10 if run.is_quick else 1)
                    topic = f"{name}-{number}"
                    _create(server.bootstrap, topic)
                    rate = _measure(program, server.bootstrap, topic, size, count, settings[name])
                    samples[name].append(rate)
        ours = median(samples["odradek"])
        yield Row(
            name=f"{title}: produce {label}",
            measured=ours,
            unit="records/s",
            raw={"samples": samples["odradek"]},
        )
        for name, known_as in _NAMES.items():
            theirs = median(samples[name])
            yield Row(
                name=f"{title}: produce {label} by {known_as}'s",
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


def _measure(
    program: str,
    servers: str,
    topic: str,
    size: int,
    count: int,
    settings: Mapping[str, object],
) -> float:
    arguments = (servers, topic, str(size), str(count), json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE + program + _TELL, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
        cwd=_ROOT,
    )
    rate: float = json.loads(done.stdout.splitlines()[-1])
    return rate
