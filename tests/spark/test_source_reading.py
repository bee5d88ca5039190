"""The source's tasks on a real broker, without Spark: what comes of a split, in Arrow."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from odradek.model import TopicPartition
from odradek.spark.datasource.batches import MAX_BATCH_BYTES, arrow_schema
from odradek.spark.datasource.connections import ConnectionCache
from odradek.spark.datasource.data_loss import DataLossError
from odradek.spark.datasource.lookup import ClusterLookup
from odradek.spark.datasource.options import SourceOptions, parse_options
from odradek.spark.datasource.planning import StreamPlanner, plan_batch
from odradek.spark.datasource.reading import read_split
from odradek.spark.datasource.schema import ALL_COLUMNS
from odradek.spark.datasource.source import schema_of
from odradek.spark.datasource.splits import Split, cut
from odradek.testing import EmbeddedBroker, ManualClock

DEADLINE_S = 120
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"log.cleaner.backoff.ms": "50", "message.max.bytes": str(16 << 20)}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture(scope="module")
def connections() -> Iterator[ConnectionCache]:
    cache = ConnectionCache()
    yield cache
    cache.close_unused()


def create(admin: Admin, name: str, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    made = admin.create_topics([NewTopic(name=name, partition_count=partitions, configs=named)])
    assert not isinstance(made[name], Exception), made


def options(bootstrap: str, is_streaming: bool = False, /, **given: str) -> SourceOptions:
    return parse_options({"kafka.bootstrap.servers": bootstrap, **given}, is_streaming=is_streaming)


def plan(chosen: SourceOptions, connections: ConnectionCache) -> list[Split]:
    with connections.lease(chosen.kafka) as connection:
        return cut(plan_batch(ClusterLookup(connection), chosen), chosen.split)


def rows_of(chosen: SourceOptions, splits: list[Split], connections: ConnectionCache) -> Any:
    schema = arrow_schema(chosen.columns)
    batches = []
    for split in splits:
        for batch in read_split(chosen, split, connections):
            assert batch.schema.equals(schema)
            batches.append(batch)
    table = pa.Table.from_batches(batches, schema)
    table.validate(full=True)
    return table


def test_the_schema_is_the_one_that_spark_expects() -> None:
    """12:SP-28, 12:SP-36."""
    for columns in (ALL_COLUMNS, ALL_COLUMNS[:-1], ("value",), ("offset", "headers")):
        assert arrow_schema(columns).equals(to_arrow_schema(schema_of(columns), timezone="UTC"))


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec(
    bootstrap: str, admin: Admin, connections: ConnectionCache, codec: str
) -> None:
    """12:SP-36: null keys and values, headers, several batches, cut anywhere by splits."""
    topic = f"codec-{codec}"
    create(admin, topic, partitions=2, retention_ms="-1")
    sent = [
        (
            number % 2,
            None if number % 3 == 0 else b"k%d" % number,
            None if number % 5 == 0 else b"v%d" % number * 20,
            [] if number % 7 else [("a", b"1"), ("b", None)],
            1_700_000_000_000 + number,
        )
        for number in range(600)
    ]
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, batch_size=2000) as producer:
        for partition, key, value, headers, timestamp in sent:
            producer.send(topic, value, key, headers, partition, timestamp)
    chosen = options(bootstrap, subscribe=topic, includeHeaders="true", maxRecordsPerPartition="37")
    splits = plan(chosen, connections)
    assert len(splits) == 18
    rows = rows_of(chosen, splits, connections).to_pylist()

    expected = []
    for partition in range(2):
        mine = [one for one in sent if one[0] == partition]
        expected += [
            {
                "key": key,
                "value": value,
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "timestamp": timestamp * 1000,
                "timestampType": 0,
                "headers": [{"key": name, "value": text} for name, text in headers] or None,
            }
            for offset, (_, key, value, headers, timestamp) in enumerate(mine)
        ]
    for row in rows:
        row["timestamp"] = pa.scalar(row["timestamp"], pa.timestamp("us", "UTC")).value
    assert rows == expected


def test_only_the_columns_that_were_asked_for(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-30."""
    create(admin, "columns")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("columns", b"v", b"k")
    chosen = options(bootstrap, subscribe="columns", columns="offset,value")
    assert rows_of(chosen, plan(chosen, connections), connections).to_pylist() == [
        {"value": b"v", "offset": 0}
    ]


def test_records_of_ten_megabytes(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-36: larger than a fetch; and what unpacks to much is cut into batches."""
    create(admin, "large", partitions=2, max_message_bytes=str(16 << 20))
    large = b"x" * (10 << 20)
    many = [b"%06d" % number + b"y" * 1000 for number in range(12_000)]
    with Producer(
        bootstrap_servers=bootstrap,
        max_request_size=15 << 20,
        compression_type="zstd",
        batch_size=14 << 20,
        linger_ms=1000,
        buffer_memory=64 << 20,
    ) as producer:
        for value in many:
            producer.send("large", value, partition=1)
    with Producer(bootstrap_servers=bootstrap, max_request_size=15 << 20) as producer:
        producer.send("large", large, partition=0)
        producer.send("large", b"small", partition=0)
    chosen = options(bootstrap, subscribe="large", columns="value")
    first, second = plan(chosen, connections)
    assert rows_of(chosen, [first], connections)["value"].to_pylist() == [large, b"small"]
    batches = list(read_split(chosen, second, connections))
    assert all(batch.nbytes <= MAX_BATCH_BYTES * 1.1 for batch in batches)
    assert [value for batch in batches for value in batch["value"].to_pylist()] == many


def test_two_hundred_partitions_most_of_them_empty(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-35."""
    create(admin, "wide", partitions=200)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(0, 200, 3):
            producer.send("wide", b"%d" % partition, partition=partition)
    chosen = options(bootstrap, subscribe="wide", columns="value,partition")
    splits = plan(chosen, connections)
    assert [split.partition for split in splits] == list(range(0, 200, 3))
    rows = rows_of(chosen, splits, connections).to_pylist()
    assert rows == [{"value": b"%d" % n, "partition": n} for n in range(0, 200, 3)]


def test_an_empty_topic(bootstrap: str, admin: Admin, connections: ConnectionCache) -> None:
    """12:SP-35."""
    create(admin, "empty", partitions=3)
    assert plan(options(bootstrap, subscribe="empty"), connections) == []


def test_gaps_that_compaction_left(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-36: a range with nothing in it ends all the same."""
    create(
        admin,
        "compacted",
        cleanup_policy="compact",
        segment_bytes="20000",
        min_cleanable_dirty_ratio="0.01",
    )
    with Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer:
        for number in range(2000):
            producer.send("compacted", b"%d" % number * 10, b"k%d" % (number % 3))
    chosen = options(bootstrap, subscribe="compacted", columns="offset,value")
    end = time.monotonic() + DEADLINE_S
    (split,) = plan(chosen, connections)
    assert split.end == 2000
    while True:
        offsets = rows_of(chosen, [split], connections)["offset"].to_pylist()
        if offsets[0] > 500:
            break
        assert time.monotonic() < end, "the log is not compacted"
        time.sleep(0.1)
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == 1999
    gone = Split(topic="compacted", topic_id=split.topic_id, partition=0, start=3, end=400)
    assert rows_of(chosen, [gone], connections).num_rows == 0


def test_retention_overtakes_the_reader(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-37: what was planned is gone; a partition that is new is read from where it starts."""
    create(admin, "short")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(20):
            producer.send("short", b"%d" % number)
    strict = options(bootstrap, subscribe="short", columns="offset")
    lenient = options(bootstrap, subscribe="short", columns="offset", failOnDataLoss="false")
    (split,) = plan(strict, connections)
    deleted = admin.delete_records({TopicPartition("short", 0): 12})
    assert deleted == {TopicPartition("short", 0): 12}

    with pytest.raises(DataLossError, match="short-0: expected offset 0, the log starts at 12"):
        rows_of(strict, [split], connections)
    rest = list(range(12, 20))
    assert rows_of(lenient, [split], connections)["offset"].to_pylist() == rest
    new = Split(topic="short", topic_id="", partition=0, start=0, end=20, is_from_earliest=True)
    assert rows_of(strict, [new], connections)["offset"].to_pylist() == rest
    all_gone = Split(topic="short", topic_id="", partition=0, start=0, end=9)
    assert rows_of(lenient, [all_gone], connections).num_rows == 0


def test_a_topic_that_was_made_again(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-37: its records are not those that were planned."""
    create(admin, "again")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("again", b"old")
    strict = options(bootstrap, subscribe="again", columns="value")
    lenient = options(bootstrap, subscribe="again", columns="value", failOnDataLoss="false")
    (split,) = plan(strict, connections)
    assert rows_of(strict, [split], connections)["value"].to_pylist() == [b"old"]
    _delete(admin, "again")
    create(admin, "again")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("again", b"new")
    with pytest.raises(DataLossError, match=f"created again: expected id {split.topic_id}, found "):
        rows_of(strict, [split], connections)
    assert rows_of(lenient, [split], connections).num_rows == 0


def test_a_topic_that_is_gone(bootstrap: str, admin: Admin, connections: ConnectionCache) -> None:
    """12:SP-37."""
    create(admin, "gone")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("gone", b"x")
    given = {"subscribe": "gone", "kafkaConsumer.pollTimeoutMs": "500"}
    strict = options(bootstrap, **given)
    (split,) = plan(strict, connections)
    _delete(admin, "gone")
    with pytest.raises(DataLossError, match="topic 'gone': it does not exist any more"):
        rows_of(strict, [split], connections)
    lenient = options(bootstrap, **given, failOnDataLoss="false")
    assert rows_of(lenient, [split], connections).num_rows == 0


def test_a_range_beyond_the_end(bootstrap: str, admin: Admin, connections: ConnectionCache) -> None:
    """12:SP-37: as after a leader that lost the last records."""
    create(admin, "beyond")
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("beyond", b"x")
    given = {"subscribe": "beyond", "columns": "offset", "kafkaConsumer.pollTimeoutMs": "300"}
    strict = options(bootstrap, **given)
    lenient = options(bootstrap, **given, failOnDataLoss="false")
    for start, rest in ((0, [0]), (5, [])):
        split = Split(topic="beyond", topic_id="", partition=0, start=start, end=9)
        with pytest.raises(DataLossError, match=r"expected offset \d, the log ends at 1"):
            rows_of(strict, [split], connections)
        assert rows_of(lenient, [split], connections)["offset"].to_pylist() == rest


def test_a_limit_in_bytes_asks_for_sizes_on_disk(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-33: half of what is on disk is half of the records."""
    create(admin, "sizes", partitions=2)
    with Producer(bootstrap_servers=bootstrap, batch_size=1) as producer:
        for number in range(400):
            producer.send("sizes", b"x" * 1000, partition=number % 2)
    chosen = options(bootstrap, True, subscribe="sizes", startingOffsets="earliest")
    partitions = [TopicPartition("sizes", number) for number in range(2)]
    with connections.lease(chosen.kafka) as connection:
        lookup = ClusterLookup(connection)
        start = StreamPlanner(chosen, ManualClock()).initial(lookup)
        sizes = lookup.sizes(partitions)
        assert all(200_000 < sizes[tp] < 300_000 for tp in partitions), sizes
        limited = options(
            bootstrap, True, subscribe="sizes", maxBytesPerTrigger=str(sum(sizes.values()) // 2)
        )
        end = StreamPlanner(limited, ManualClock()).end(lookup, start, limited.limits)
    assert all(95 <= end.offsets()[tp] <= 100 for tp in partitions), end


def test_a_pattern_leaves_internal_topics_out(
    bootstrap: str, admin: Admin, connections: ConnectionCache
) -> None:
    """12:SP-29."""
    create(admin, "pattern-a")
    create(admin, "pattern-b", partitions=2)
    create(admin, "other-pattern-a")
    with Producer(bootstrap_servers=bootstrap) as producer:
        for topic in ("pattern-a", "pattern-b", "other-pattern-a"):
            producer.send(topic, b"x", partition=0)
    splits = plan(options(bootstrap, subscribePattern="pattern-[a-z]"), connections)
    assert [(split.topic, split.partition) for split in splits] == [
        ("pattern-a", 0),
        ("pattern-b", 0),
    ]


def test_nothing_is_left_of_a_connection_that_nobody_uses(bootstrap: str) -> None:
    """12:SP-45: neither its thread nor the one that closes it."""
    before = set(threading.enumerate())
    cache = ConnectionCache(idle_ms=50)
    assert plan(options(bootstrap, subscribePattern="nothing.*"), cache) == []
    end = time.monotonic() + DEADLINE_S
    while cache.count or set(threading.enumerate()) - before:
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.01)


def _delete(admin: Admin, name: str) -> None:
    """Until nobody knows it any more."""
    admin.delete_topics([name])
    end = time.monotonic() + DEADLINE_S
    while name in admin.list_topics():
        assert time.monotonic() < end
        time.sleep(0.02)
