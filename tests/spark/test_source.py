"""The source on a real Spark, reading from a real broker."""

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.query import StreamingQuery

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from odradek.model import TopicPartition
from odradek.spark.datasource.data_loss import parse_lost
from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_python import patiently

TIMEOUT_S = 240
FIRST_MS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
# Or the broker deletes what is so old.
KEPT = {"retention.ms": "-1"}


def write(broker: OdradekBroker, topic: str, counts: dict[int, int], first: int = 0) -> None:
    """So many records to each partition, the timestamp and value telling which it is."""
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=1000) as producer:
        for partition, count in counts.items():
            for number in range(first, first + count):
                producer.send(
                    topic,
                    b"%d/%d" % (partition, number),
                    partition=partition,
                    timestamp=FIRST_MS + number,
                )


def values(partition: int, start: int, end: int) -> set[str]:
    return {f"{partition}/{number}" for number in range(start, end)}


def batch(spark: SparkSession, broker: OdradekBroker, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    return patiently(spark.read.format("odradek").options(**settings).load)


def stream(spark: SparkSession, broker: OdradekBroker, **options: str) -> DataFrame:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    settings.setdefault("startingOffsets", "earliest")
    return patiently(spark.readStream.format("odradek").options(**settings).load)


class Run:
    """An AvailableNow run from a checkpoint, and what it brought."""

    def __init__(self, frame: DataFrame, checkpoint: Path, fail_at: int = -1) -> None:
        self.batches: dict[int, list[str]] = {}

        def take(rows: DataFrame, batch_id: int) -> None:
            if batch_id == fail_at:
                raise RuntimeError("as it was told to")
            found = rows.select(col("value").cast("string")).collect()
            self.batches[batch_id] = [row[0] for row in found]

        self._writer = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
        )
        self.error: StreamingQueryException | None = None
        try:
            self.query = patiently(self._run)
        except StreamingQueryException as error:
            self.error = error

    def _run(self) -> StreamingQuery:
        query = self._writer.start()
        try:
            assert query.awaitTermination(TIMEOUT_S), "it does not end"
        finally:
            query.stop()
        return query

    @property
    def values(self) -> list[str]:
        assert self.error is None, self.error
        return [value for rows in self.batches.values() for value in rows]

    @property
    def lost(self) -> tuple[int, int]:
        """Gaps and offsets, as the last progress told."""
        return parse_lost(self.offsets("latestOffset")[-1])

    def offsets(self, kind: str) -> list[dict[str, Any]]:
        """What each progress told of its source."""
        return [json.loads(progress["sources"][0][kind]) for progress in self.query.recentProgress]


def test_batches(spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]) -> None:
    """12:SP-1, 12:SP-30: columns, filters that narrow what is read, splits, plain SQL."""
    name = topic(partitions=3, configs=KEPT)
    write(broker, name, {0: 50, 2: 30})
    view = (
        "create or replace temporary view there using odradek options "
        f"(`kafka.bootstrap.servers` '{broker.bootstrap}', subscribe '{name}')"
    )
    patiently(lambda: spark.sql(view))
    everything = batch(spark, broker, subscribe=name)
    narrow = batch(spark, broker, subscribe=name, columns="value,offset", pushFilters="true")
    assert narrow.columns == ["value", "offset"]
    cut = batch(spark, broker, subscribe=name, minPartitions="6")
    assert patiently(lambda: cut.rdd.getNumPartitions()) == 6

    def pushed() -> DataFrame:
        # Spark keeps the filters of a frame's first query for the next ones.
        return batch(spark, broker, subscribe=name, pushFilters="true", minPartitions="6")

    frames = {
        "everything": everything,
        "cut": cut.where("offset < 7"),
        "narrow": narrow.where("offset >= 45"),
        "partitions": pushed().where("partition in (0, 1) and offset < 5"),
        # The record at offset 40 has this timestamp.
        "time": pushed().where("timestamp >= timestamp '2023-11-14 22:13:20.040 UTC'"),
        "not pushed": pushed().where("timestamp < timestamp '2023-11-14 22:13:20.003 UTC'"),
        "limited": everything.where("partition = 2").limit(3),
        "view": spark.table("there").where("offset % 10 = 7"),
        "nothing": batch(spark, broker, subscribePattern=f"{name}-nothing"),
        "empty": batch(spark, broker, subscribe=topic(partitions=3)),
    }
    found: dict[str, set[str]] = {case: set() for case in frames}
    for row in patiently(union(frames).collect):
        found[row["case"]].add(row["value"])
    assert len(found.pop("limited")) == 3
    assert found == {
        "everything": values(0, 0, 50) | values(2, 0, 30),
        "cut": values(0, 0, 7) | values(2, 0, 7),
        "narrow": values(0, 45, 50),
        "partitions": values(0, 0, 5),
        "time": values(0, 40, 50),
        "not pushed": values(0, 0, 3) | values(2, 0, 3),
        "view": {f"0/{n}7" for n in ("", 1, 2, 3, 4)} | {f"2/{n}7" for n in ("", 1, 2)},
        "nothing": set(),
        "empty": set(),
    }


def union(frames: dict[str, DataFrame]) -> DataFrame:
    """Several queries as one job."""
    tagged = [
        frame.select(lit(case).alias("case"), col("value").cast("string"))
        for case, frame in frames.items()
    ]
    return functools.reduce(DataFrame.unionAll, tagged)


def test_what_is_wrong_is_told_when_a_query_is_planned(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-29: all of it."""

    def error_of(load: Callable[[], DataFrame]) -> str:
        with pytest.raises(PySparkException) as caught:
            patiently(lambda: load().count())
        return str(caught.value)

    message = error_of(
        lambda: batch(spark, broker, subscribe="a", assign="{}", maxOfsetsPerTrigger="1")
    )
    for expected in ("found subscribe and assign", "did you mean maxOffsetsPerTrigger?"):
        assert expected in message
    with_schema = spark.read.format("odradek").schema("value binary")
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "a"}
    assert "leave the schema out" in error_of(with_schema.options(**options).load)
    assert "never-made does not exist" in error_of(
        lambda: batch(spark, broker, subscribe="never-made")
    )


def test_a_stream_in_steps(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-33, 12:SP-34, 12:SP-35: limits, a failed batch, what came since, a new partition."""
    name = topic(partitions=2, configs=KEPT)
    write(broker, name, {0: 60, 1: 30})
    frame = stream(spark, broker, subscribe=name, maxOffsetsPerTrigger="60", minPartitions="3")

    first = Run(frame, tmp_path, fail_at=1)
    assert "as it was told to" in str(first.error)
    assert set(first.batches) == {0}
    assert set(first.batches[0]) == values(0, 0, 40) | values(1, 0, 20)

    # The batch that failed is the first of the next run, with the offsets that it had.
    write(broker, name, {0: 5}, first=60)
    second = Run(frame, tmp_path)
    assert set(second.batches[1]) == values(0, 40, 60) | values(1, 20, 30)
    read = first.batches[0] + second.values
    assert len(read) == len(set(read)) == 95
    assert set(read) == values(0, 0, 65) | values(1, 0, 30)
    ends = second.offsets("endOffset")
    assert ends[-1]["topics"][name]["p"] == {"0": 65, "1": 30}
    assert ends[-1]["split"] == {"min": 3, "max": 0}
    latest = [offset for offset in second.offsets("latestOffset") if offset]
    assert latest[-1]["topics"][name]["p"] == {"0": 65, "1": 30}

    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_partitions({name: 3})
    write(broker, name, {2: 7})
    third = Run(stream(spark, broker, subscribe=name), tmp_path)
    assert set(third.values) == values(2, 0, 7)


def test_a_stream_of_skewed_partitions(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-33, 12:SP-35: the small ones are not kept waiting by the large one."""
    name = topic(partitions=4, configs=KEPT)
    counts = {0: 3000, 1: 30, 2: 1}
    write(broker, name, counts)
    limits = {"maxOffsetsPerTrigger": "1000", "maxRecordsPerPartition": "300"}
    run = Run(stream(spark, broker, subscribe=name, **limits), tmp_path)
    assert sorted(run.values) == sorted(
        f"{partition}/{number}" for partition, count in counts.items() for number in range(count)
    )
    first = run.batches[0]
    assert {value.split("/")[0] for value in first} == {"0", "1", "2"}
    assert len(first) <= 1001  # One more for a partition whose share is less than a record.
    cut = batch(spark, broker, subscribe=name, maxRecordsPerPartition="300")
    assert patiently(lambda: cut.rdd.getNumPartitions()) == 10 + 1 + 1


def test_a_stream_that_goes_on(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-33, 12:SP-34: from the latest offset on, with what comes while it runs."""
    name = topic(partitions=2, configs=KEPT)
    write(broker, name, {0: 10})
    writer = (
        stream(spark, broker, subscribe=name, startingOffsets="latest", maxBytesPerTrigger="1mb")
        .selectExpr("cast(value as string) as value")
        .writeStream.format("memory")
        .queryName("goes_on")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="0 seconds")
    )

    def start() -> StreamingQuery:
        query = writer.start()
        try:
            query.processAllAvailable()
        except Exception:
            query.stop()
            raise
        return query

    query = patiently(start)
    try:
        write(broker, name, {1: 5})
        query.processAllAvailable()
        assert {row[0] for row in spark.table("goes_on").collect()} == values(1, 0, 5)
    finally:
        query.stop()


def test_a_first_batch_that_failed_is_read_again_from_where_it_began(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-34: though Spark asks for the beginning anew, and it is elsewhere by then."""
    name = topic(partitions=1, configs=KEPT)
    write(broker, name, {0: 10})
    for later in (8, 5):
        checkpoint = tmp_path / str(later)
        begun = stream(spark, broker, subscribe=name, startingTimestamp=str(FIRST_MS + 5))
        first = Run(begun, checkpoint, fail_at=0)
        assert "as it was told to" in str(first.error)
        again = stream(spark, broker, subscribe=name, startingTimestamp=str(FIRST_MS + later))
        assert set(Run(again, checkpoint).values) == values(0, 5, 10)


def test_a_stream_whose_data_is_lost(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-37: retention overtakes; the topic is made again. It fails, or goes on.

    12:SP-16: what was lost is counted in the progress.
    """
    name = topic(partitions=1, configs=KEPT)
    write(broker, name, {0: 10})
    options = {"subscribe": name}
    assert len(Run(stream(spark, broker, **options), tmp_path / "a").values) == 10
    write(broker, name, {0: 10}, first=10)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 15})

        strict = Run(stream(spark, broker, **options), tmp_path / "a")
        assert f"{name}-0: expected offset 10, the log starts at 15" in str(strict.error)
        lenient = stream(spark, broker, **options, failOnDataLoss="false")
        assert set(Run(lenient, tmp_path / "a").values) == values(0, 15, 20)
        write(broker, name, {0: 10}, first=20)
        admin.delete_records({TopicPartition(name, 0): 24})
        overtaken = Run(lenient, tmp_path / "a")
        assert set(overtaken.values) == values(0, 24, 30)
        assert overtaken.lost == (1, 4)

        admin.delete_topics([name])
        end = time.monotonic() + TIMEOUT_S
        while name in admin.list_topics():
            assert time.monotonic() < end
            time.sleep(0.02)
        admin.create_topics([NewTopic(name=name, partition_count=1, configs=KEPT)])
    write(broker, name, {0: 3}, first=100)
    strict = Run(stream(spark, broker, **options), tmp_path / "a")
    assert f"topic '{name}': it was deleted and created again" in str(strict.error)
    recreated = Run(lenient, tmp_path / "a")
    assert set(recreated.values) == values(0, 100, 103)
    assert recreated.lost == (1, 0)
