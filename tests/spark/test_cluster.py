"""A real cluster: a master and two workers, which cannot see this package.

Its executors are killed while a pipeline runs on it, at points that a seed chooses.

    ODRADEK_FAULT_ROUNDS=20 ODRADEK_FAULT_SEED=7 pytest tests/spark/test_cluster.py -k executor

has twenty times as many of them killed.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek import Admin, Producer
from tests.support.held_connections import holders
from tests.support.number_sinks import (
    SINKS,
    HeldNumbers,
    held_numbers,
    maybe_postgres,
    sinks_text,
)
from tests.support.numbers import Numbers, make_topics, written_rows
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipeline_runs import PipelineService
from tests.support.postgres import missing_postgres
from tests.support.spark_cluster import SparkCluster, running_cluster
from tests.support.topic_records import records_of

TIMEOUT_S = 600
# An idle producer or reader is closed after half of it.
LONGEST_HOLD_S = 60

_ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "1"))
_SEED = int(os.environ.get("ODRADEK_FAULT_SEED", "1"))
_KILLS = 2  # In a round.
_MAX_BATCHES = 4  # Between two of them.
_MAX_MOMENT_S = 1.0

_PIPELINE = """\
name: executors
bootstrap: ${KAFKA}
checkpoint: file://${FOLDER}/checkpoints
trigger: {every: 500ms}
restart: {max: 1000, backoff: 200ms, max_backoff: 2s}
spark:
  master: ${CLUSTER}
  conf:
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.driver.memory: 512m
    spark.driver.extraJavaOptions: >-
      -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir=${SCRATCH}
    spark.executor.memory: 512m
    spark.executor.cores: "1"
    spark.executor.extraJavaOptions: -XX:+UseSerialGC -XX:TieredStopAtLevel=1
    spark.cores.max: "2"
    spark.sql.shuffle.partitions: "2"
    spark.local.dir: ${SCRATCH}
    spark.sql.warehouse.dir: "${FOLDER}/warehouse"
    spark.ui.enabled: "false"
sources:
  numbers: {topic: "${NUMBERS}", value: {format: json, schema: "id bigint"}}
include: [steps.py]
transforms:
  buckets: {sql: "select id % 7 as bucket, count(*) as many, sum(id) as total from rows group by 1"}
"""
# What lies beside the file: no worker sees the folder.
_STEPS = """\
import beside_the_steps
from pyspark.sql.functions import udf

from odradek.spark import transform

@transform(inputs=["numbers"])
def rows(numbers):
    same = udf(beside_the_steps.same, "bigint")
    return numbers.select(
        numbers._partition.alias("part"), numbers._offset.alias("place"), same("id").alias("id")
    )
"""
_BESIDE = """\
def same(number):
    return number
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster for the tests of this module, one application at a time."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def left_behind(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> Callable[[], None]:
    """Has the workers of another session connect to the broker; checks that they let go of it.

    They may take a minute: less than the cluster needs, so that nobody has to wait for them.
    """
    process = SparkContext._gateway.proc  # type: ignore[union-attr]  # of a running session
    name, kafka = topic(partitions=2), {"kafka.bootstrap.servers": broker.bootstrap}
    for number in range(5):  # On a machine that stood still, they may have let go already.
        frame = spark.createDataFrame([("x",)], "value string")
        frame.write.format("odradek").mode("append").options(**kafka, topic=name).save()
        query = (
            spark.readStream.format("odradek")
            .options(**kafka, subscribe=name, startingOffsets="earliest")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()
        if holders(process.pid, broker.port):
            break
    else:
        raise AssertionError("nobody keeps a connection; this cannot show that they are closed")
    stopped = time.monotonic()

    def check() -> None:
        while held := holders(process.pid, broker.port):
            # As much again, for a machine that is busy.
            assert time.monotonic() < stopped + 2 * LONGEST_HOLD_S, held
            time.sleep(0.2)

    return check


def test_the_package_reaches_workers_that_do_not_have_it(
    cluster: SparkCluster,
    broker: OdradekBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    left_behind: Callable[[], None],
) -> None:
    """12:SP-14, 12:SP-41: refused with a table without shipping; with it, reads and writes.

    12:SP-45: meanwhile, what the queries of another session held is let go.
    """
    source, sink = topic(partitions=4), topic(partitions=2)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type="lz4") as producer:
        for number in range(1000):
            producer.send(source, str(number).encode(), key=str(number % 7).encode())
    told = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("cluster_job.py")),
            cluster.url,
            broker.bootstrap,
            source,
            sink,
            str(tmp_path),
        ],
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PYSPARK_PYTHON": cluster.python,
            "ODRADEK_CACHE": str(tmp_path / "cache"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert told.returncode == 0, f"{told.stdout}\n{told.stderr[-6000:]}\n{cluster.logs()}"
    answer = json.loads(told.stdout.splitlines()[-1])
    assert "executors have other versions than the driver" in answer["refusal"]
    assert "none: No module named 'odradek'" in answer["refusal"]
    assert "the tasks of this pipeline import deltalake: install it" in answer["refusal"]
    assert "fastavro" not in answer["refusal"], "the workers have it"
    assert answer["count"] == 1000
    assert answer["executors"] == 2
    values = sorted(
        int(record.value or b"") for record in records_of(broker.bootstrap, sink, [0, 1])
    )
    assert values == list(range(1000))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_group_offsets(["cluster"])["cluster"]
    assert not isinstance(offsets, Exception)
    assert sum(one.offset for one in offsets.values()) == 1000
    left_behind()


@pytest.fixture(scope="module")
def held(
    spark: SparkSession,
    cluster: SparkCluster,
    broker: OdradekBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> HeldNumbers:
    """What the sinks hold after executors were killed; compared sink by sink."""
    chance = random.Random(_SEED)
    folder = tmp_path_factory.mktemp("executors")
    source, copy = "executors-numbers", "executors-copy"
    make_topics(broker.bootstrap, source, copy)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(maybe_postgres())
        numbers = Numbers(broker.bootstrap, source)
        numbers.start()
        stack.callback(numbers.give_up)
        # What a killed Java leaves behind. Paths of sockets are in it, which have to be short.
        scratch = tempfile.TemporaryDirectory(prefix="odradek-spark-", ignore_cleanup_errors=True)
        environment = {
            "KAFKA": broker.bootstrap,
            "CLUSTER": cluster.url,
            "SCRATCH": stack.enter_context(scratch),
            "FOLDER": str(folder),
            "NUMBERS": source,
            "COPY": copy,
            "DATABASE": database or "",
            "PYSPARK_PYTHON": cluster.python,
            "ODRADEK_CACHE": str(folder / "cache"),
        }
        (folder / "steps.py").write_text(_STEPS)
        (folder / "beside_the_steps.py").write_text(_BESIDE)
        file = folder / "executors.yaml"
        file.write_text(_PIPELINE + sinks_text(database))
        pipeline = PipelineService(file, environment)
        stack.callback(pipeline.kill)

        # A sink that has held nothing yet could hold nothing twice.
        pipeline.wait_for_batches(1, SINKS if database else {*SINKS} - {"table"})
        for _ in range(_KILLS * _ROUNDS):
            pipeline.wait_for_batches(chance.randint(1, _MAX_BATCHES))
            time.sleep(chance.uniform(0, _MAX_MOMENT_S))
            cluster.kill_executor(chance)
        count = numbers.close()
        pipeline.wait_for_the_end()
        pipeline.stop()
        return held_numbers(
            spark,
            folder,
            bootstrap=broker.bootstrap,
            copy=copy,
            database=database,
            expected=written_rows(broker.bootstrap, count, source),
        )


@pytest.mark.timeout(900 + 120 * (_ROUNDS - 1))
@pytest.mark.parametrize("sink", SINKS)
def test_nothing_is_missing_and_nothing_twice_when_executors_are_killed(
    held: HeldNumbers, sink: str
) -> None:
    """12:SP-41, 12:SP-42, 12:SP-43, 12:SP-44: with the state of an aggregate, which dies with them.

    12:SP-5, 12:SP-66: the rows are made by a function of a module beside the file.
    """
    if sink == "table" and (reason := missing_postgres()):
        pytest.skip(reason)
    held.check(sink)
