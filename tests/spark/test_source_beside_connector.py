"""Our source gives the rows that Spark's own Kafka connector gives, on Odradek and on Kafka."""

import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from odradek import Admin
from odradek.client.admin import NewTopic
from tests.support.apache_kafka import find_kafka, running_broker, why_missing
from tests.support.odradek_broker import OdradekBroker
from tests.support.spark_connector import WHY_MISSING, connector_jars
from tests.support.spark_python import patiently

KAFKA_VERSION = "4.3.1"
TIMEOUT_S = 240
FIRST_MS = 1_700_000_000_000
PARTITIONS = 4  # The last one stays empty.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OURS, THEIRS = "odradek", "kafka"

pytestmark = pytest.mark.skipif(not connector_jars(), reason=WHY_MISSING)


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "odradek":
        broker: OdradekBroker = request.getfixturevalue("broker")
        yield broker.bootstrap
        return
    install = find_kafka(KAFKA_VERSION)
    if install is None:
        pytest.skip(why_missing(KAFKA_VERSION))
    with (
        tempfile.TemporaryDirectory(prefix="kafka-") as folder,
        running_broker(install, Path(folder)) as kafka,
    ):
        yield kafka.bootstrap


def create(bootstrap: str, *topics: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        made = admin.create_topics(
            [
                NewTopic(name=name, partition_count=PARTITIONS, configs={"retention.ms": "-1"})
                for name in topics
            ]
        )
    assert not any(isinstance(result, Exception) for result in made.values()), made


def produce(producer: Any, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        producer.produce(
            topic,
            value=None if number % 7 == 0 else b"v%d" % number,
            key=None if number % 3 == 0 else b"k%d" % number,
            partition=number % (PARTITIONS - 1),
            timestamp=FIRST_MS + number,
            headers=[("a", b"%d" % number), ("empty", b""), ("null", None)]
            if number % 5 == 0
            else [],
        )
    assert producer.flush(120) == 0


def fill(bootstrap: str, topic: str) -> int:
    """Records of every codec, one after the other; returns how many."""
    for step, codec in enumerate(CODECS):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
        )
        produce(producer, topic, step * 60, 60)
    return len(CODECS) * 60


def fill_skewed(bootstrap: str, topic: str) -> int:
    """Nearly all records in one partition, and one in another; returns how many."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    counts = (1500, 20, 1)
    for partition, count in enumerate(counts):
        for number in range(count):
            time = FIRST_MS + number
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=time)
    assert producer.flush(120) == 0
    return sum(counts)


def transactional(bootstrap: str, name: str) -> Any:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            # The most that a broker allows: no test is so slow.
            "transaction.timeout.ms": 900_000,
            "linger.ms": 50,
        }
    )
    producer.init_transactions(120)
    return producer


def fill_transactions(bootstrap: str, topic: str) -> None:
    """One that is committed, one that is aborted, one that is committed: markers in between."""
    producer = transactional(bootstrap, topic)
    for step in range(3):
        producer.begin_transaction()
        produce(producer, topic, step * 30, 30)
        if step == 1:
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)


def frame(spark: SparkSession, source: str, bootstrap: str, options: dict[str, str]) -> DataFrame:
    settings = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        **options,
    }
    return patiently(spark.read.format(source).options(**settings).load)


def rows(
    spark: SparkSession, source: str, bootstrap: str, cases: dict[str, dict[str, str]]
) -> dict[str, list[Any]]:
    """What a source gives in each case, in order of the log; one job for all of them."""
    tagged = [
        frame(spark, source, bootstrap, options).select(lit(case).alias("case"), "*")
        for case, options in cases.items()
    ]
    found: dict[str, list[Any]] = {case: [] for case in cases}
    for row in patiently(functools.reduce(DataFrame.unionAll, tagged).collect):
        found[row["case"]].append(plain(row))
    return {case: sorted(of_case, key=lambda row: row[2:5]) for case, of_case in found.items()}


def plain(row: Any) -> tuple[Any, ...]:
    """A row with bytes for what comes as bytearray."""
    headers = row["headers"]
    return (
        None if row["key"] is None else bytes(row["key"]),
        None if row["value"] is None else bytes(row["value"]),
        row["topic"],
        row["partition"],
        row["offset"],
        row["timestamp"],
        row["timestampType"],
        None
        if headers is None
        else [
            (one["key"], None if one["value"] is None else bytes(one["value"])) for one in headers
        ],
    )


def test_the_same_rows(spark: SparkSession, bootstrap: str) -> None:
    """12:SP-1, 12:SP-28, 12:SP-29: topics, offsets, times, patterns, headers, splits, skew."""
    one, other, skewed = "beside-one", "beside-other", "beside-skewed"
    create(bootstrap, one, other, skewed)
    count = fill(bootstrap, one) + fill(bootstrap, other)
    skewed_count = fill_skewed(bootstrap, skewed)

    def numbers(*values: int) -> str:
        return json.dumps({one: {str(n): value for n, value in enumerate(values)}})

    cases = {
        "both": {"subscribe": f"{one},{other}"},
        "pattern": {"subscribePattern": "beside-o.*r"},
        "assigned": {"assign": json.dumps({one: [1], other: [0, 2]}), "minPartitions": "7"},
        "offsets": {
            "subscribe": one,
            "startingOffsets": numbers(-2, 10, 99, -2),
            "endingOffsets": numbers(50, -1, 100, -1),
        },
        "time": {
            "subscribe": one,
            "startingTimestamp": str(FIRST_MS + 55),
            "endingTimestamp": str(FIRST_MS + 250),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        "times": {
            "assign": json.dumps({one: [0, 1, 2]}),
            "startingOffsetsByTimestamp": json.dumps(
                {one: {"0": FIRST_MS, "1": FIRST_MS + 20, "2": FIRST_MS + 200}}
            ),
            "maxRecordsPerPartition": "33",
        },
        "skewed": {"subscribe": skewed, "minPartitions": "8"},
    }
    ours = rows(spark, OURS, bootstrap, cases)
    theirs = rows(spark, THEIRS, bootstrap, cases)
    assert {case: len(found) for case, found in ours.items()} == {
        "both": count,
        "pattern": count // 2,
        "assigned": count // 2,
        "offsets": 50 + 90 + 1,
        "time": 195,
        "times": 100 + 93 + 34,
        "skewed": skewed_count,
    }
    for case in cases:
        assert ours[case] == theirs[case], case
    headers = {row[1]: row[7] for row in ours["both"]}
    assert headers[b"v5"] == [("a", b"5"), ("empty", b""), ("null", None)]
    assert headers[b"v1"] is None

    schemas = [frame(spark, source, bootstrap, cases["both"]).schema for source in (OURS, THEIRS)]
    assert schemas[0] == schemas[1]


def test_the_same_rows_of_a_stream(spark: SparkSession, bootstrap: str) -> None:
    """12:SP-1, 12:SP-34: AvailableNow in steps, from the beginning to the end."""
    topic = "beside-stream"
    create(bootstrap, topic)
    count = fill(bootstrap, topic)
    found = {}
    for source in (OURS, THEIRS):
        work = functools.partial(stream_rows, spark, source, bootstrap, topic)
        read, found[source] = patiently(work)
        assert read[:2] == [198, 102], source
    assert len(found[OURS]) == count
    assert found[OURS] == found[THEIRS]


def stream_rows(
    spark: SparkSession, source: str, bootstrap: str, topic: str
) -> tuple[list[int], list[Any]]:
    """How many rows each batch had, and all of them."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        query = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", "200")
            .load()
            .writeStream.format("memory")
            .queryName(f"beside_{source}")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S), "it does not end"
        finally:
            query.stop()
    read = [progress["numInputRows"] for progress in query.recentProgress]
    rows = [plain(row) for row in spark.table(f"beside_{source}").collect()]
    return read, sorted(rows, key=lambda row: row[2:5])


def test_the_same_rows_of_transactions(spark: SparkSession, bootstrap: str) -> None:
    """12:SP-31, 12:SP-36: markers are no rows; what was aborted is one only if asked for."""
    topic = "beside-transactions"
    create(bootstrap, topic)
    fill_transactions(bootstrap, topic)
    cases = {
        "committed": {"subscribe": topic},
        "all": {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"},
        # The aborted part of a partition, and the marker behind it.
        "aborted": {
            "assign": json.dumps({topic: [0]}),
            "startingOffsets": json.dumps({topic: {"0": 11}}),
            "endingOffsets": json.dumps({topic: {"0": 22}}),
        },
    }
    ours = rows(spark, OURS, bootstrap, cases)
    assert {case: len(found) for case, found in ours.items()} == {
        "committed": 60,
        "all": 90,
        "aborted": 0,
    }
    default = frame(spark, OURS, bootstrap, {"subscribe": topic})
    assert patiently(default.count) == 60
    # The connector waits for records that never come in a range without any.
    del cases["aborted"]
    theirs = rows(spark, THEIRS, bootstrap, cases)
    for case in cases:
        assert ours[case] == theirs[case], case


def test_the_same_rows_beside_an_open_transaction(spark: SparkSession, bootstrap: str) -> None:
    """12:SP-31: rows end where the first one that is undecided begins, and go on when it ends."""
    topic = "beside-open"
    create(bootstrap, topic)
    plain_producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    produce(plain_producer, topic, 0, 30)
    producer = transactional(bootstrap, topic)
    producer.begin_transaction()
    produce(producer, topic, 30, 15)
    # What is decided, but behind it in the log.
    produce(plain_producer, topic, 45, 15)
    cases = {
        "committed": {"subscribe": topic},
        "all": {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"},
    }
    ours, theirs = (rows(spark, source, bootstrap, cases) for source in (OURS, THEIRS))
    assert {case: len(found) for case, found in ours.items()} == {"committed": 30, "all": 60}
    assert ours == theirs

    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        # Without a level it reads what is committed.
        first = patiently(lambda: stream_values(spark, bootstrap, topic, checkpoint))
        assert len(first) == 30
        producer.commit_transaction(120)
        second = patiently(lambda: stream_values(spark, bootstrap, topic, checkpoint))
    assert sorted(first + second) == sorted(row[1] or b"" for row in ours["all"])


def test_a_stream_goes_on_from_the_connectors_checkpoint(
    spark: SparkSession, bootstrap: str
) -> None:
    """12:SP-32: also with a batch that the connector had planned and not finished."""
    topic = "beside-checkpoint"
    create(bootstrap, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        produce(producer, topic, 0, 30)
        read = functools.partial(stream_values, spark, bootstrap, topic, checkpoint)
        theirs = patiently(lambda: read(source=THEIRS))
        assert len(theirs) == 30
        produce(producer, topic, 30, 15)
        with pytest.raises(StreamingQueryException, match="as it was told to"):
            patiently(lambda: read(source=THEIRS, fails=True))
        produce(producer, topic, 45, 15)
        ours = patiently(read)
    expected = [b"" if number % 7 == 0 else b"v%d" % number for number in range(30, 60)]
    assert sorted(ours) == sorted(expected)


def stream_values(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    checkpoint: str,
    *,
    source: str = OURS,
    fails: bool = False,
) -> list[bytes]:
    """What a run of a source brings up to where the topic can be read at its start."""
    found: list[bytes] = []

    def take(batch: DataFrame, _: int) -> None:
        if fails:
            raise RuntimeError("as it was told to")
        found.extend(bytes(row["value"] or b"") for row in batch.select("value").collect())

    query = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(TIMEOUT_S), "it does not end"
    finally:
        query.stop()
    return found
