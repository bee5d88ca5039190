"""A pipeline whose driver, Python workers and broker are killed again and again loses nothing.

Numbers are written to a topic all the while; five queries copy and sum them up. Faults come at
points that a seed chooses: so many batches after the one before, and a moment later. The last is
always the driver's end: what it left is done by `run --once`. Executors are killed in
`test_cluster`, which has some.

    ODRADEK_FAULT_ROUNDS=20 ODRADEK_FAULT_SEED=7 pytest tests/spark/test_faults.py

runs twenty rounds, each with a fault of every kind.
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from tests.support.numbers import (
    Numbers,
    Row,
    copied_rows,
    delta_rows,
    differences,
    make_topics,
    row_of,
    sums,
    written_rows,
)
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.pipeline_runs import PipelineService
from tests.support.ports import free_port
from tests.support.postgres import missing_postgres, running_postgres
from tests.support.spark_python import quick_python

_ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "1"))
_SEED = int(os.environ.get("ODRADEK_FAULT_SEED", "1"))

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


def _database_rows(url: str) -> list[Row]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select part, place, id from numbers").fetchall()
    return [(part, place, number) for part, place, number in rows]


@pytest.mark.timeout(900 + 300 * (_ROUNDS - 1))
def test_nothing_is_missing_and_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    """12:SP-41, 12:SP-42, 12:SP-43, 12:SP-44: faults of every kind, then all is compared."""
    chance = random.Random(_SEED)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(_database())
        broker = _Broker(tmp_path / "broker")
        stack.callback(broker.close)
        make_topics(broker.bootstrap, "numbers", "copy")
        numbers = Numbers(broker.bootstrap)
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
        expected = written_rows(broker.bootstrap, count)
        files = spark.read.parquet(f"{tmp_path}/files")
        held = {
            "files": [row_of(one.asDict()) for one in files.collect()],
            "lake": [row_of(one) for one in delta_rows(tmp_path / "lake")],
        }
        if database:
            held["table"] = _database_rows(database)
        for sink, rows in held.items():
            assert differences(rows, expected) == {}, sink
        copied = set(copied_rows(broker.bootstrap))
        assert differences(sorted(copied), expected) == {}
        held_sums = delta_rows(tmp_path / "sums")
        found = {one["bucket"]: (one["many"], one["total"]) for one in held_sums}
        assert len(held_sums) == len(found)
        assert found == sums(expected)
