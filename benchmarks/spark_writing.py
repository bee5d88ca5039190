"""Writing with Spark: our sink beside that of Spark's own Kafka connector, to the same broker.

Rows lie in Spark's memory before the clock starts. Both sinks run as they come: acks=all and an
idempotent producer are the default of both. Topics have four partitions, rows have no key.
"""

import time
from collections.abc import Iterator

from benchmarks import load_clients
from benchmarks.servers import ODRADEK, Run
from benchmarks.spark import OURS, THEIRS, rates_in_turn, spark_session
from benchmarks.table import Row, server_benchmark

_PARTITIONS = 4
_TASKS = 2


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

        medians, samples = rates_in_turn(work, **({"rounds": 1} if run.is_quick else {}))
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
