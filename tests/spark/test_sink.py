"""The topic sink on a real Spark, writing to a real broker."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, lit

from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_python import patiently
from tests.support.topic_records import records_of

HEADERS = "array<struct<key:string,value:binary>>"


def write(frame: DataFrame, broker: OdradekBroker, **options: str) -> None:
    settings = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    frame.write.format("odradek").mode("append").options(**settings).save()


def test_every_column_arrives(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-2, 12:SP-38."""
    here, there = topic(partitions=3), topic(partitions=1)
    rows = [
        (b"k1", b"v1", [("h", b"1"), ("h", None)], None, 2),
        (b"k2", None, [], None, 0),
        (None, b"v3", None, None, 1),
        (None, b"v4", None, there, None),
        (b"", b"", None, there, 0),
    ]
    frame = spark.createDataFrame(
        rows, f"key binary, value binary, headers {HEADERS}, topic string, partition int"
    )
    write(frame, broker, topic=here)
    told = {
        (record.topic, record.partition, record.key, record.value, tuple(record.headers))
        for name, partitions in ((here, range(3)), (there, range(1)))
        for record in records_of(broker.bootstrap, name, partitions)
    }
    assert told == {
        (here, 2, b"k1", b"v1", (("h", b"1"), ("h", None))),
        (here, 0, b"k2", None, ()),
        (here, 1, None, b"v3", ()),
        (there, 0, None, b"v4", ()),
        (there, 0, b"", b"", ()),
    }


def test_many_rows_arrive_once_and_keys_keep_their_partition(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-38: text as its bytes, more rows than one hand-over, several tasks."""
    name = topic(partitions=4)
    frame = spark.range(0, 50_000, 1, 3).select(
        concat(lit("key-"), col("id") % 97).alias("key"), col("id").cast("string").alias("value")
    )
    write(frame, broker, topic=name)
    records = records_of(broker.bootstrap, name, range(4))
    assert sorted(int(record.value or b"") for record in records) == list(range(50_000))
    homes = {(record.key, record.partition) for record in records}
    assert len(homes) == 97
    assert {partition for _, partition in homes} == set(range(4))


def test_rows_of_ten_megabytes_there_and_back(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-36, 12:SP-38: larger than a fetch and than a batch of the producer."""
    name = topic(partitions=2, configs={"max.message.bytes": str(16 << 20)})
    size = 10 << 20
    frame = spark.sql(
        f"select string(id) as key, repeat(string(id), {size}) as value from range(3)"
    )
    write(frame, broker, topic=name, **{"kafka.max.request.size": str(15 << 20)})
    back = (
        spark.read.format("odradek")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", name)
        .load()
        .selectExpr("string(key) as key", "md5(value) as value", "length(value) as size")
    )
    found = {row.key: (row.value, row.size) for row in patiently(back.collect)}
    assert found == {
        str(n): (hashlib.md5(b"%d" % n * size, usedforsecurity=False).hexdigest(), size)
        for n in range(3)
    }


def test_a_frame_without_rows_writes_nothing(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    name = topic(partitions=1)
    write(spark.createDataFrame([], "value string"), broker, topic=name)
    assert records_of(broker.bootstrap, name, [0]) == []


def test_refuses_before_a_row_is_written(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-38, 12:SP-3: columns and options, all in one message; overwriting."""
    name = topic(partitions=1)
    wrong = spark.createDataFrame([(1, "x")], "value int, values string")
    with pytest.raises(PySparkException) as raised:
        write(wrong, broker, topic=name, exactly_once="true", **{"kafka.acks": "1"})
    told = str(raised.value)
    assert "column value: expected string or binary, found int" in told
    assert "column values: unknown (did you mean value?)" in told
    assert "exactly_once: the sink writes at least once" in told
    assert "kafka.acks: not supported" in told
    right = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        (
            right.write.format("odradek")
            .mode("overwrite")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", name)
            .save()
        )
    assert records_of(broker.bootstrap, name, [0]) == []


def test_a_record_that_the_broker_refuses_fails_the_write(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str]
) -> None:
    """12:SP-38."""
    name = topic(partitions=1, configs={"max.message.bytes": "2000"})
    frame = spark.createDataFrame([("x" * 3000,)], "value string")
    with pytest.raises(PySparkException, match=r"max\.message\.bytes allows 2000"):
        write(frame, broker, topic=name)
    with pytest.raises(PySparkException, match="is for partition 9"):
        write(spark.createDataFrame([("x", 9)], "value string, partition int"), broker, topic=name)


def test_a_stream_writes_each_batch(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-2: a copy of a topic, in several batches, continued by a second run."""
    source, sink = topic(partitions=2), topic(partitions=2)
    write(spark.range(100).select(col("id").cast("string").alias("value")), broker, topic=source)

    def copy() -> None:
        query = (
            spark.readStream.format("odradek")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "60")
            .load()
            .select("key", "value")
            .writeStream.format("odradek")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", sink)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()

    copy()
    write(
        spark.range(100, 150).select(col("id").cast("string").alias("value")), broker, topic=source
    )
    copy()
    values = sorted(
        int(record.value or b"") for record in records_of(broker.bootstrap, sink, range(2))
    )
    assert values == list(range(150))
