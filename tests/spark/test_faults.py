"""A pipeline whose driver, Python workers and broker are killed again and again loses nothing.

Numbers are written to a topic all the while; five queries copy and sum them up. Every row carries
the partition and the offset of its record, so that a row too many is seen even if a record were in
the topic twice. Faults come at points that a seed chooses: so many batches after the one before,
and a moment later. The last is always the driver's end: what it left is done by `run --once`.

    ODRADEK_FAULT_ROUNDS=20 ODRADEK_FAULT_SEED=7 pytest tests/spark/test_faults.py

runs twenty rounds, each with a fault of every kind.
"""

import contextlib
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.pipeline_runs import PipelineService
from tests.support.ports import free_port
from tests.support.postgres import missing_postgres, running_postgres
from tests.support.spark_python import quick_python
from tests.support.topic_records import records_of

_ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "1"))
_SEED = int(os.environ.get("ODRADEK_FAULT_SEED", "1"))

_TIMEOUT_S = 300
_PARTITIONS = 4
_PER_SECOND = 200
_BUCKETS = 7
_MAX_BATCHES = 6  # Between two faults: a batch more of every query, roughly.
_MAX_MOMENT_S = 1.5

_PIPELINE = """\
name: faults
bootstrap: ${KAFKA}
checkpoint: ${FOLDER}/checkpoints
trigger: {every: 500ms}
restart: {max: 1000, backoff: 200ms, max_backoff: 2s}
kafka: {client.id: faults}
spark:
  master: local[2]
  conf:
    spark.driver.memory: 1g
    spark.driver.extraJavaOptions: >-
      -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir=${SCRATCH}
    spark.sql.shuffle.partitions: "2"
    spark.local.dir: ${SCRATCH}
    spark.sql.warehouse.dir: "${FOLDER}/warehouse"
sources:
  numbers: {topic: numbers, value: {format: json, schema: "id bigint"}}
transforms:
  rows: {sql: "select _partition as part, _offset as place, id from numbers"}
  buckets: {sql: "select id % 7 as bucket, count(*) as many, sum(id) as total from rows group by 1"}
sinks:
  files: {from: rows, files: {path: "${FOLDER}/files"}}
  lake: {from: rows, delta: {path: "${FOLDER}/lake"}}
  copy: {from: rows, topic: copy}
  sums: {from: buckets, output_mode: update, delta: {path: "${FOLDER}/sums", merge_key: [bucket]}}
"""
_JDBC = """\
  table: {from: rows, jdbc: {url: "${DATABASE}", table: numbers, key: [part, place]}}
"""
_SINKS = {"files", "lake", "copy", "sums", "table"}

Row = tuple[int, int, int]  # Partition, offset, id.


class Fault(StrEnum):
    """What is killed."""

    WORKER = "worker"
    BROKER = "broker"
    DRIVER = "driver"


def _faults(chance: random.Random) -> list[Fault]:
    """Each kind once a round, in any order; the driver at the very end."""
    rounds = [chance.sample(list(Fault), len(Fault)) for _ in range(_ROUNDS)]
    rounds[-1].remove(Fault.DRIVER)
    return [fault for one in rounds for fault in one] + [Fault.DRIVER]


class _Numbers(threading.Thread):
    """Writes 0, 1, 2 and so on to a topic until it is closed; all of them arrive."""

    def __init__(self, address: str) -> None:
        super().__init__(name="numbers", daemon=True)
        self._address = address
        self._closed = threading.Event()
        self._error: BaseException | None = None
        self._count = 0

    def run(self) -> None:
        try:
            # A broker that is down is waited for, however long it takes to be up again.
            with Producer(
                bootstrap_servers=self._address,
                delivery_timeout_ms=1_000 * 2 * _TIMEOUT_S,
                max_block_ms=1_000 * 2 * _TIMEOUT_S,
                linger_ms=20,
            ) as producer:
                deliveries = []
                while not self._closed.wait(10 / _PER_SECOND):
                    for number in range(self._count, self._count + 10):
                        value = json.dumps({"id": number}).encode()
                        sent = producer.send("numbers", value, partition=number % _PARTITIONS)
                        deliveries.append(sent)
                    self._count += 10
                producer.flush()
                for sent in deliveries:
                    sent.result()
        except BaseException as error:  # The test is told.
            self._error = error

    def close(self) -> int:
        """Ends it; returns how many numbers there are."""
        self._closed.set()
        self.join(2 * _TIMEOUT_S)
        assert not self.is_alive(), "the numbers do not arrive"
        if self._error is not None:
            raise self._error
        return self._count

    def give_up(self) -> None:
        """Ends it, whatever has arrived."""
        self._closed.set()
        self.join(10)


class _Broker:
    """A broker that can be killed and comes back with the same data in the same place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not one that a client's own connection could be given while nobody listens.
        self._port = free_port()
        self._running = contextlib.ExitStack()
        self._broker = self._start()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    def kill(self) -> None:
        self._broker.kill()
        self._running.close()

    def start_again(self) -> None:
        self._broker = self._start()

    def _start(self) -> OdradekBroker:
        started = running_odradek(self._folder, port=self._port)
        return self._running.enter_context(started)

    def close(self) -> None:
        self._running.close()


def _cause(fault: Fault, pipeline: PipelineService, broker: _Broker, chance: random.Random) -> None:
    match fault:
        case Fault.WORKER:
            pipeline.kill_worker(chance)
        case Fault.BROKER:
            broker.kill()
            time.sleep(chance.uniform(0, _MAX_MOMENT_S))
            broker.start_again()
        case Fault.DRIVER:
            pipeline.kill()


@contextlib.contextmanager
def _database() -> Iterator[str | None]:
    if missing_postgres() is not None:
        yield None
        return
    with running_postgres() as url:
        yield url


def _row(fields: dict[str, Any]) -> Row:
    return fields["part"], fields["place"], fields["id"]


def _table(path: Path) -> Any:
    # Arrow's threads outlive the reading, and abort a process that ends just then.
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table(use_threads=False)


def _delta_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _table(path).to_pylist()
    return rows


def _database_rows(url: str) -> list[Row]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select part, place, id from numbers").fetchall()
    return [(part, place, number) for part, place, number in rows]


def _topic_rows(bootstrap: str) -> list[Row]:
    records = records_of(bootstrap, "copy", range(_PARTITIONS))
    return [_row(json.loads(record.value or b"")) for record in records]


def _sums(rows: list[Row]) -> dict[int, tuple[int, int]]:
    """How many numbers each bucket has, and their sum."""
    buckets: dict[int, list[int]] = {}
    for _, _, number in rows:
        buckets.setdefault(number % _BUCKETS, []).append(number)
    return {bucket: (len(numbers), sum(numbers)) for bucket, numbers in buckets.items()}


def _differences(found: list[Row], expected: list[Row]) -> dict[str, list[Row]]:
    """What is missing and what is there too often, a few of each."""
    missing, more = Counter(expected), Counter(found)
    missing.subtract(found)
    more.subtract(expected)
    lists = {"missing": sorted(+missing), "too many": sorted(+more)}
    return {what: rows[:5] for what, rows in lists.items() if rows}


def _written(bootstrap: str, count: int) -> list[Row]:
    """The rows that there have to be: every number is in the topic, once."""
    records = records_of(bootstrap, "numbers", range(_PARTITIONS))
    rows = [(one.partition, one.offset, json.loads(one.value or b"")["id"]) for one in records]
    assert sorted(number for _, _, number in rows) == list(range(count))
    return rows


@pytest.mark.timeout(900 + 300 * (_ROUNDS - 1))
def test_nothing_is_missing_and_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    """12:SP-41, 12:SP-42, 12:SP-43, 12:SP-44: faults of every kind, then all is compared."""
    chance = random.Random(_SEED)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(_database())
        broker = _Broker(tmp_path / "broker")
        stack.callback(broker.close)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            topics = [
                NewTopic(name=one, partition_count=_PARTITIONS) for one in ("numbers", "copy")
            ]
            made = admin.create_topics(topics)
        assert not any(isinstance(one, Exception) for one in made.values()), made
        numbers = _Numbers(broker.bootstrap)
        numbers.start()
        stack.callback(numbers.give_up)
        # What a killed Java leaves behind. Paths of sockets are in it, which have to be short.
        scratch = tempfile.TemporaryDirectory(prefix="odradek-spark-", ignore_cleanup_errors=True)
        environment = {
            "KAFKA": broker.bootstrap,
            "SCRATCH": stack.enter_context(scratch),
            "FOLDER": str(tmp_path),
            "DATABASE": database or "",
            "PYSPARK_PYTHON": quick_python(tmp_path),
        }
        file = tmp_path / "faults.yaml"
        file.write_text(_PIPELINE + (_JDBC if database else ""))
        pipeline = PipelineService(file, environment)
        stack.callback(pipeline.kill)

        # A sink that has held nothing yet could hold nothing twice.
        pipeline.wait_for_batches(1, _SINKS if database else _SINKS - {"table"})
        for fault in _faults(chance):
            pipeline.wait_for_batches(chance.randint(1, _MAX_BATCHES))
            time.sleep(chance.uniform(0, _MAX_MOMENT_S))
            _cause(fault, pipeline, broker, chance)
        count = numbers.close()
        pipeline.run_once()

        assert set(pipeline.lags().values()) == {0}
        expected = _written(broker.bootstrap, count)
        files = spark.read.parquet(f"{tmp_path}/files")
        held = {
            "files": [_row(one.asDict()) for one in files.collect()],
            "lake": [_row(one) for one in _delta_rows(tmp_path / "lake")],
        }
        if database:
            held["table"] = _database_rows(database)
        for sink, rows in held.items():
            assert _differences(rows, expected) == {}, sink
        copied = set(_topic_rows(broker.bootstrap))
        assert _differences(sorted(copied), expected) == {}
        sums = _delta_rows(tmp_path / "sums")
        assert len(sums) == _BUCKETS
        assert {one["bucket"]: (one["many"], one["total"]) for one in sums} == _sums(expected)
