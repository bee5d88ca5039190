"""Writing with Spark: our sink beside that of Spark's own Kafka connector, to the same broker.

Rows lie in Spark's memory before the clock starts. Both sinks run as they come: acks=all and an
idempotent producer are the default of both. Topics have four partitions, rows have no key.

The exactly-once sink writes the same rows in a transaction, in turn with the two others. Small
batches are those of a stream from our source: the median time of a trigger, with each of our sinks.
"""

import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks import load_clients
from benchmarks.servers import ODRADEK, Run
from benchmarks.spark import OURS, ROUNDS, THEIRS, rates_in_turn, spark_session
from benchmarks.table import Row, server_benchmark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = 4
_TASKS = 2
_ONCE: Final = "exactly-once"
_SMALL_BATCH_ROWS: Final = 1_000
_SMALL_BATCHES: Final = 25
_WARM_UP_BATCHES: Final = 5
_TIMEOUT_S: Final = 120


@server_benchmark("spark-write")
def write(run: Run) -> Iterator[Row]:
    """Batch write of records of 100 B."""
    count = run.scaled(1_000_000)
    with run.servers[ODRADEK]() as server, spark_session() as spark:
        topics = {name: f"spark-write-{name}" for name in (OURS, THEIRS)}
        for topic in topics.values():
            load_clients.create_topic(server.bootstrap, topic, _PARTITIONS)
        # A hundred bytes that do not repeat.
        text = "substr(concat(sha2(string(id), 256), sha2(string(-id), 256)), 1, 100)"
        rows = spark.range(0, count, 1, _TASKS).selectExpr(f"cast({text} as binary) as value")
        rows = rows.cache()
        assert rows.count() == count

        def work(name: str) -> float:
            began = time.perf_counter()
            (
                rows.write.format(name)
                .mode("append")
                .option("kafka.bootstrap.servers", server.bootstrap)
                .option("topic", topics[name])
                .save()
            )
            return count / (time.perf_counter() - began)

        medians, samples = rates_in_turn(work, rounds=1 if run.is_quick else ROUNDS)
        rows.unpersist()
    yield Row(
        name="spark: batch write 100 B, by the JVM connector",
        measured=medians[OURS],
        unit="records/s",
        beside=medians[THEIRS],
        bar=None if run.is_quick else 1.2,
        is_bar_lowest=True,
        raw={"samples": samples},
    )


@server_benchmark("spark-exactly-once")
def exactly_once(run: Run) -> Iterator[Row]:
    """Batches of records of 100 B in one transaction each."""
    from odradek.spark.transactional.marker import QueryIdentity
    from odradek.spark.transactional.stream import read_sink
    from odradek.spark.transactional.writer import TransactionalWriter

    count = run.scaled(1_000_000)
    with run.servers[ODRADEK]() as server, spark_session() as spark:
        topics = {name: f"spark-write-{name}" for name in (_ONCE, OURS, THEIRS)}
        for topic in topics.values():
            load_clients.create_topic(server.bootstrap, topic, _PARTITIONS)
        text = "substr(concat(sha2(string(id), 256), sha2(string(-id), 256)), 1, 100)"
        rows = spark.range(0, count, 1, _TASKS).selectExpr(f"cast({text} as binary) as value")
        rows = rows.cache()
        assert rows.count() == count
        options = {"kafka.bootstrap.servers": server.bootstrap}
        identity = QueryIdentity(name="bench", query_id="bench", target=topics[_ONCE])
        sink = read_sink(rows, {**options, "topic": topics[_ONCE]})
        writer = TransactionalWriter(identity, *sink, None)
        batches = iter(range(1_000_000))

        def work(name: str) -> float:
            began = time.perf_counter()
            if name == _ONCE:
                assert writer.write(rows, next(batches), "digest") == count
            else:
                given = {**options, "topic": topics[name]}
                rows.write.format(name).mode("append").options(**given).save()
            return count / (time.perf_counter() - began)

        rounds = 1 if run.is_quick else ROUNDS
        medians, samples = rates_in_turn(work, names=(_ONCE, OURS, THEIRS), rounds=rounds)
        writer.close()
        rows.unpersist()
        small = _small_batches(run, server.bootstrap, spark)
    for name, label, bar in (
        (OURS, "our sink at least once", 0.6),
        (THEIRS, "the JVM connector", 1),
    ):
        yield Row(
            name=f"spark: exactly-once write 100 B, by {label}",
            measured=medians[_ONCE],
            unit="records/s",
            beside=medians[name],
            bar=None if run.is_quick else bar,
            is_bar_lowest=True,
            raw={"samples": samples},
        )
    yield Row(
        name="spark: exactly-once batch of 1,000 rows, by our sink at least once",
        measured=median(small[_ONCE]),
        unit="ms",
        beside=median(small[OURS]),
        bar=None if run.is_quick else 1.8,
        raw={"samples": small},
    )


def _small_batches(run: Run, bootstrap: str, spark: "SparkSession") -> dict[str, list[float]]:
    """Times of triggers in milliseconds, by sink."""
    from odradek.spark import exactly_once as exactly_once_stream

    batches = 2 if run.is_quick else _SMALL_BATCHES
    load_clients.create_topic(bootstrap, "spark-small", _PARTITIONS)
    load_clients.fill(
        bootstrap,
        "spark-small",
        partitions=_PARTITIONS,
        size=100,
        count=batches * _SMALL_BATCH_ROWS,
    )
    options = {"kafka.bootstrap.servers": bootstrap}
    times: dict[str, list[float]] = {}
    for name in (OURS, _ONCE):
        topic = f"spark-small-{name}"
        load_clients.create_topic(bootstrap, topic, _PARTITIONS)
        frame = (
            spark.readStream.format("odradek")
            .options(**options, subscribe="spark-small", startingOffsets="earliest")
            .options(maxOffsetsPerTrigger=str(_SMALL_BATCH_ROWS))
            .load()
            .select("value")
        )
        with tempfile.TemporaryDirectory() as folder:
            if name == _ONCE:
                writer = exactly_once_stream(
                    frame, topic=topic, checkpoint=folder, name="bench", options=options
                )
            else:
                writer = (
                    frame.writeStream.format("odradek")
                    .options(**options, topic=topic)
                    .option("checkpointLocation", folder)
                )
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(_TIMEOUT_S)
            told = [one for one in query.recentProgress if one.numInputRows]
            query.stop()
        warm = 0 if run.is_quick else _WARM_UP_BATCHES
        times[name] = [float(one.durationMs["triggerExecution"]) for one in told][warm:]
    return times
