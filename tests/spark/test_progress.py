"""A query's position is seen by every Kafka tool, through the group that its source names."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from odradek import Admin
from odradek.model import TopicPartition
from odradek.spark.progress.listener import progress_of
from tests.support.apache_kafka import KafkaInstall, find_kafka
from tests.support.commands import Commands
from tests.support.odradek_broker import OdradekBroker

TIMEOUT_S = 300


def write(spark: SparkSession, broker: OdradekBroker, topic: str, first: int, end: int) -> None:
    frame = spark.range(first, end).select(
        col("id").cast("string").alias("value"), (col("id") % 2).cast("int").alias("partition")
    )
    (
        frame.write.format("odradek")
        .mode("append")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", topic)
        .save()
    )


def drain(spark: SparkSession, broker: OdradekBroker, checkpoint: Path, **options: str) -> str:
    """Read what is there into nothing, and wait for the reports of it; the query's id."""
    query = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()
    assert progress_of(spark).settle(TIMEOUT_S)
    return str(query.id)


def committed(broker: OdradekBroker, group: str) -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_group_offsets([group])[group]
    assert not isinstance(offsets, Exception), offsets
    return {tp: one.offset for tp, one in offsets.items()}


def lag_shown_by_odradek(broker: OdradekBroker, group: str) -> set[tuple[int, int, int, int]]:
    told = Commands(broker.bootstrap)("groups", "describe", group, "--json")
    assert told.code == 0, told
    return {
        (row["partition"], row["current_offset"], row["log_end_offset"], row["lag"])
        for row in told.json
    }


def lag_shown_by_kafka(
    kafka: KafkaInstall, broker: OdradekBroker, group: str
) -> set[tuple[int, int, int, int]]:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = kafka.run_tool(
        tool, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group
    )
    assert told.returncode == 0, told
    rows = [line.split() for line in told.stdout.splitlines() if line.startswith(group)]
    return {(int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in rows}


def test_every_batch_is_committed_and_tools_show_the_lag(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-39: the last one, too; as Odradek's and Kafka's own tools show it."""
    name = topic(partitions=2)
    write(spark, broker, name, 0, 30)
    listener = progress_of(spark)
    before = listener.committer.committed_total, listener.committer.failed_total
    drain(
        spark,
        broker,
        tmp_path / "a",
        subscribe=name,
        progressGroup="to-nothing",
        maxOffsetsPerTrigger="20",
    )
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    assert committed(broker, "to-nothing") == {zero: 15, one: 15}
    assert listener.committer.committed_total > before[0]
    assert listener.committer.failed_total == before[1]
    write(spark, broker, name, 30, 34)
    expected = {(0, 15, 17, 2), (1, 15, 17, 2)}
    assert lag_shown_by_odradek(broker, "to-nothing") == expected
    if (kafka := find_kafka("4.3.1")) is not None:
        assert lag_shown_by_kafka(kafka, broker, "to-nothing") == expected


def test_a_query_goes_on_when_its_progress_cannot_be_committed(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-39: counted and logged; a query without the option leaves no group at all."""
    name = topic(partitions=2)
    write(spark, broker, name, 0, 10)
    listener = progress_of(spark)
    before = listener.committer.failed_total
    too_long = "g" * 40_000  # More than a string of the protocol can have.
    drain(spark, broker, tmp_path / "a", subscribe=name, progressGroup=too_long)
    assert listener.committer.failed_total > before
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        groups = {group.group_id for group in admin.list_groups()}
    drain(spark, broker, tmp_path / "b", subscribe=name)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert {group.group_id for group in admin.list_groups()} == groups
