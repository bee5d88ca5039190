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
from enum import StrEnum
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.number_sinks import (
    SINKS,
    HeldNumbers,
    held_numbers,
    maybe_postgres,
    sinks_text,
)
from tests.support.numbers import Numbers, make_topics, written_rows
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.pipeline_runs import PipelineService
from tests.support.ports import free_port
from tests.support.postgres import missing_postgres
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
"""


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


@pytest.fixture(scope="module")
def held(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> HeldNumbers:
    """What the sinks hold after faults of every kind; compared sink by sink."""
    chance = random.Random(_SEED)
    folder = tmp_path_factory.mktemp("faults")
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(maybe_postgres())
        broker = _Broker(folder / "broker")
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
            "FOLDER": str(folder),
            "COPY": "copy",
            "DATABASE": database or "",
            "PYSPARK_PYTHON": quick_python(folder),
        }
        file = folder / "faults.yaml"
        file.write_text(_PIPELINE + sinks_text(database))
        pipeline = PipelineService(file, environment)
        stack.callback(pipeline.kill)

        # A sink that has held nothing yet could hold nothing twice.
        pipeline.wait_for_batches(1, SINKS if database else {*SINKS} - {"table"})
        for fault in _faults(chance):
            pipeline.wait_for_batches(chance.randint(1, _MAX_BATCHES))
            time.sleep(chance.uniform(0, _MAX_MOMENT_S))
            _cause(fault, pipeline, broker, chance)
        count = numbers.close()
        pipeline.run_once()

        assert set(pipeline.lags().values()) == {0}
        return held_numbers(
            spark,
            folder,
            bootstrap=broker.bootstrap,
            copy="copy",
            database=database,
            expected=written_rows(broker.bootstrap, count),
        )


@pytest.mark.timeout(900 + 300 * (_ROUNDS - 1))
@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_missing_and_nothing_twice(held: HeldNumbers, sink: str) -> None:
    """12:SP-41, 12:SP-42, 12:SP-43, 12:SP-44: after faults of every kind."""
    if sink == "table" and (reason := missing_postgres()):
        pytest.skip(reason)
    held.check(sink)
