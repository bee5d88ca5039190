"""Reading with Spark: our source beside Spark's own Kafka connector, from the same broker of ours.

Both run in one application on two threads, with the broker on the same machine, and take turns. The
first rounds are warm-up, of Java's compiler above all: a figure is the median of rounds 3 to 6.
Results go to Spark's `noop` sink, which reads every column of every row.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import load_clients
from benchmarks.servers import ODRADEK, Run
from benchmarks.table import Row, server_benchmark
from tests.support.spark_connector import WHY_MISSING, connector_jars

if TYPE_CHECKING:  # The other benchmarks run without Spark.
    from pyspark.sql import SparkSession

__all__ = ["OURS", "ROUNDS", "THEIRS", "rates_in_turn", "spark_session"]

OURS, THEIRS = "odradek", "kafka"
_PARTITIONS = 4
ROUNDS = 6
_WARM_UP_ROUNDS = 2


@contextmanager
def spark_session() -> Iterator["SparkSession"]:
    """A session on two threads that knows both sources."""
    from odradek.spark.session import build_session

    jars = connector_jars()
    if not jars:
        raise RuntimeError(WHY_MISSING)
    folder = tempfile.mkdtemp(prefix="odradek-bench-spark-")
    session = build_session(
        master="local[2]",
        app_name="odradek-benchmarks",
        checkpoint=folder,
        conf={
            "spark.jars": jars,
            "spark.driver.memory": "2g",
            "spark.local.dir": folder,
            "spark.log.level": "ERROR",
        },
    )
    try:
        yield session
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def rates_in_turn(
    work: Callable[[str], float], *, rounds: int = ROUNDS, names: Sequence[str] = (OURS, THEIRS)
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Medians of the warm rounds, and all samples, by the name of the source that takes its turn.

    Args:
        work: Does the work with a source and returns how many records per second it did.
    """
    samples: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in samples:
            samples[name].append(work(name))
    warm = min(_WARM_UP_ROUNDS, rounds - 1)
    return {name: median(rates[warm:]) for name, rates in samples.items()}, samples


def _fill(bootstrap: str, topic: str, size: int, count: int) -> None:
    load_clients.create_topic(bootstrap, topic, _PARTITIONS)
    load_clients.fill(bootstrap, topic, partitions=_PARTITIONS, size=size, count=count)


def _options(bootstrap: str, topic: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        # Ours by default; said to both.
        "kafka.isolation.level": "read_committed",
    }


def _read(run: Run, label: str, size: int, count: int, bar: float) -> Iterator[Row]:
    count = run.scaled(count)
    with run.servers[ODRADEK]() as server, spark_session() as spark:
        topic = f"spark-read-{size}"
        _fill(server.bootstrap, topic, size, count)

        def work(name: str) -> float:
            began = time.perf_counter()
            frame = spark.read.format(name).options(**_options(server.bootstrap, topic)).load()
            frame.write.format("noop").mode("overwrite").save()
            return count / (time.perf_counter() - began)

        yield from _compare(run, f"spark: batch read {label}", work, bar)


@server_benchmark("spark-read-100B")
def read_small(run: Run) -> Iterator[Row]:
    """Batch read of records of 100 B."""
    return _read(run, "100 B", 100, 3_000_000, 2.0)


@server_benchmark("spark-read-1KB")
def read_large(run: Run) -> Iterator[Row]:
    """Batch read of records of 1 KB."""
    return _read(run, "1 KB", 1_024, 1_000_000, 1.5)


@server_benchmark("spark-stream")
def stream(run: Run) -> Iterator[Row]:
    """AvailableNow from start to end, checkpoint and all."""
    count = run.scaled(6_000_000)
    with run.servers[ODRADEK]() as server, spark_session() as spark:
        topic = "spark-stream"
        _fill(server.bootstrap, topic, 100, count)

        def work(name: str) -> float:
            checkpoint = tempfile.mkdtemp(prefix="odradek-bench-checkpoint-")
            options = _options(server.bootstrap, topic)
            began = time.perf_counter()
            query = (
                spark.readStream.format(name)
                .options(**options)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            took = time.perf_counter() - began
            shutil.rmtree(checkpoint, ignore_errors=True)
            return count / took

        yield from _compare(run, "spark: AvailableNow 100 B", work, 1.5)


def _compare(run: Run, name: str, work: Callable[[str], float], bar: float) -> Iterator[Row]:
    medians, samples = rates_in_turn(work, rounds=1 if run.is_quick else ROUNDS)
    yield Row(
        name=f"{name}, by the JVM connector",
        measured=medians[OURS],
        unit="records/s",
        beside=medians[THEIRS],
        bar=None if run.is_quick else bar,
        is_bar_lowest=True,
        raw={"samples": samples},
    )
