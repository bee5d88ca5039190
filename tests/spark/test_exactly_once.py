"""The exactly-once topic sink, on a real Spark and real brokers: once, whatever fails."""

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession

from odradek import Admin, Consumer, Producer
from odradek.client.admin import ConfigOperation, ConfigResource, ConfigResourceType
from odradek.client.producer.ticket import TransactionTicket
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord
from odradek.spark import exactly_once
from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.transactional import jobs
from odradek.spark.transactional.errors import ExactlyOnceError, FencedQueryError
from odradek.spark.transactional.jobs import PackedBatch
from odradek.spark.transactional.marker import COMMITS_TOPIC, QueryIdentity
from odradek.spark.transactional.notes import CheckpointNotes
from odradek.spark.transactional.packing import PACKED
from odradek.spark.transactional.sending import SENT
from odradek.spark.transactional.stream import read_sink
from odradek.spark.transactional.writer import TransactionalWriter
from tests.exactly_once.endurance import left_behind, settled
from tests.support.odradek_broker import OdradekBroker, running_odradek

TIMEOUT_S = 300


def committed(bootstrap: str, topic: str, partitions: int = 2) -> list[ConsumerRecord]:
    """The records that a reader of committed ones sees, in order within a partition."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + TIMEOUT_S
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        while any(consumer.position(tp) < ends[tp] for tp in wanted):
            assert time.monotonic() < deadline, f"{topic} does not come to its end"
            found += consumer.poll(timeout=1)
    return found


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int((record.value or b"").split(b":")[0]) for record in records)


def is_in_order(records: list[ConsumerRecord]) -> bool:
    """Whether the numbers ascend within each partition."""
    last: dict[int, int] = {}
    for record in records:
        number = int((record.value or b"").split(b":")[0])
        if number < last.get(record.partition, -1):
            return False
        last[record.partition] = number
    return True


def rows(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.sql(
        "select string(id % 7) as key, concat(string(id), ':', uuid()) as value"
        f" from range({start}, {end}, 1, 2)"
    )


@pytest.fixture
def writer_of(
    broker: OdradekBroker, spark: SparkSession, tmp_path: Path
) -> Iterator[Callable[..., TransactionalWriter]]:
    """Makes a writer as a driver has it; each one is a driver of its own."""
    made: list[TransactionalWriter] = []

    def make(topic: str, bootstrap: str = broker.bootstrap, **kafka: str) -> TransactionalWriter:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        options |= {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
        parsed, columns = read_sink(rows(spark, 0, 1), options)
        identity = QueryIdentity(name="test", query_id=f"query of {topic}", target=topic)
        notes = CheckpointNotes(str(tmp_path))
        made.append(TransactionalWriter(identity, parsed, columns, notes))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


def producer_threads() -> int:
    return sum("producer" in thread.name for thread in threading.enumerate())


def kept_blocks(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())


def test_a_stream_that_dies_between_its_commit_and_sparks(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-3, 12:SP-23, 12:SP-24, 12:SP-27: rows that differ each time, each there once."""
    source, target = topic(partitions=2), topic(partitions=2)
    checkpoint = tmp_path / "checkpoint"
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(400):
            producer.send(source, key=b"%d" % (number % 7), value=b"%d" % number)
    frame = (
        spark.readStream.format("odradek")
        .options(**kafka, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="200")
        .load()
        .selectExpr("key", "concat(string(value), ':', uuid()) as value")
    )

    def run(name: str) -> None:
        query = (
            exactly_once(frame, topic=target, checkpoint=str(checkpoint), name=name, options=kafka)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()

    before = kept_blocks(spark)
    run("copy")
    first = committed(broker.bootstrap, target)
    assert numbers(first) == list(range(400))
    assert is_in_order(first)
    newest = max(
        int(file.name) for file in (checkpoint / "commits").iterdir() if "." not in file.name
    )
    for file in (checkpoint / "commits").glob(f"*{newest}*"):
        file.unlink()
    run("renamed")  # It repeats the last batch, and is the same query to the cluster.
    assert committed(broker.bootstrap, target) == first
    assert kept_blocks(spark) == before, "the blocks of a batch are left"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        ids = [one.transactional_id for one in admin.list_transactions()]
    assert [one for one in ids if target in one] == [
        f"odradek-spark:copy:{CheckpointNotes(str(checkpoint)).query_id()}:{target}"
    ]


def test_batches_that_a_checkpoint_should_not_have(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    tmp_path: Path,
) -> None:
    """12:SP-24: copied, set back, of another query; a marker gone. Nothing is written."""
    name = topic(partitions=2)
    assert writer_of(name).write(rows(spark, 0, 10), 0, "a") == 10
    assert writer_of(name).write(rows(spark, 0, 10), 0, "a") is None
    with pytest.raises(ExactlyOnceError, match="batch 0 was committed with other offsets"):
        writer_of(name).write(rows(spark, 0, 10), 0, "b")
    assert writer_of(name).write(rows(spark, 10, 20), 1, "c") == 10
    with pytest.raises(ExactlyOnceError, match="batch 1 was committed already, and this check"):
        writer_of(name).write(rows(spark, 0, 10), 0, "a")
    with pytest.raises(ExactlyOnceError, match="found that of batch 1: the topic has lost"):
        writer_of(name).write(rows(spark, 20, 30), 3, "e")
    other = topic(partitions=2)
    with pytest.raises(ExactlyOnceError, match=f"belongs to the query query of {name}"):
        writer_of(other).write(rows(spark, 20, 30), 2, "d")
    assert numbers(committed(broker.bootstrap, name)) == list(range(20))
    assert committed(broker.bootstrap, other) == []


def test_a_cluster_without_the_marker(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    tmp_path: Path,
) -> None:
    """12:SP-24, 12:SP-27: another cluster; no compaction; too long a timeout; no transactions."""
    name = topic(partitions=2)
    assert writer_of(name).write(rows(spark, 0, 10), 0, "a") == 10
    settings = {"transaction.max.timeout.ms": "10000", "num.partitions": "2"}
    with running_odradek(tmp_path / "other", settings) as other:
        with pytest.raises(ExactlyOnceError, match="is above the brokers' limit: set kafka"):
            writer_of(name, other.bootstrap).write(rows(spark, 0, 10), 1, "b")
        with pytest.raises(ExactlyOnceError, match="found none: the topic was deleted, or has"):
            writer_of(name, other.bootstrap, transaction_timeout_ms="10000").write(
                rows(spark, 0, 10), 1, "b"
            )
        resource = ConfigResource(ConfigResourceType.TOPIC, COMMITS_TOPIC)
        with Admin(bootstrap_servers=other.bootstrap) as admin:
            changed = admin.incremental_alter_configs(
                {resource: [ConfigOperation.set("cleanup.policy", "compact,delete")]}
            )
            assert changed[resource] is None
        with pytest.raises(ExactlyOnceError, match="found compact,delete: it would lose markers"):
            writer_of(name, other.bootstrap).write(rows(spark, 0, 10), 1, "b")
        assert committed(other.bootstrap, name) == []


def test_a_broker_without_transactions(
    spark: SparkSession,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    tmp_path: Path,
) -> None:
    """12:SP-27."""
    without = {"FIND_COORDINATOR": "0-0"}
    with running_odradek(tmp_path / "old", advertise=without) as old:
        writer = writer_of("t", old.bootstrap, max_block_ms="5000")
        batch = rows(spark, 0, 1)
        with pytest.raises(ExactlyOnceError, match="have no transactions, which an exactly-once"):
            writer.write(batch, 0, "a")


def test_what_cannot_be_once_is_refused_before_it_starts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12:SP-27: speculation, a frame that is no stream, options and columns."""
    stream = spark.readStream.format("rate").load().selectExpr("string(value) as value")
    place = str(tmp_path)
    kafka = {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(ExactlyOnceError, match="expects a stream"):
        exactly_once(spark.range(1), topic="t", checkpoint=place, options=kafka)
    options = {**kafka, "kafka.transactional.id": "x"}
    with pytest.raises(OptionsError, match=r"kafka\.transactional\.id: not supported"):
        exactly_once(stream, topic="t", checkpoint=place, options=options)
    with pytest.raises(OptionsError, match="column timestam: unknown"):
        exactly_once(
            stream.selectExpr("value", "1 as timestam"), topic="t", checkpoint=place, options=kafka
        )
    with pytest.raises(OptionsError, match="topic: required"):
        exactly_once(stream, checkpoint=place, options=kafka)
    speculating = SparkConf(loadDefaults=False).set("spark.speculation", "true")
    monkeypatch.setattr(SparkContext, "getConf", lambda _: speculating)
    with pytest.raises(ExactlyOnceError, match=r"spark\.speculation=true runs a task twice"):
        exactly_once(stream, topic="t", checkpoint=place, options=kafka)


def test_a_writer_that_dies_is_not_repeated_under_its_epoch(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12:SP-25, 12:SP-26: its rows are sent, its worker is killed, Spark tries it again."""
    name = topic(partitions=2)
    tickets: list[TransactionTicket] = []
    errors: list[str] = []
    send = PackedBatch.send

    def dying(packed: PackedBatch, ticket: TransactionTicket) -> int:
        tickets.append(ticket)
        if len(tickets) > 1:
            return send(packed, ticket)
        sending = packed.sending(ticket)

        def work(batches: Iterator[Any]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            sending.refuse_repetition(context.attemptNumber())
            yield from sending.send(batches, context.partitionId())
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            packed.frame.mapInArrow(work, SENT).collect()
        except Exception as error:
            errors.append(str(error))
            raise
        raise AssertionError("the workers were killed")

    monkeypatch.setattr(PackedBatch, "send", dying)
    assert writer_of(name).write(rows(spark, 0, 1000), 0, "a") == 1000
    assert len(tickets) == 2
    assert tickets[0].producer_id == tickets[1].producer_id
    assert tickets[0].producer_epoch < tickets[1].producer_epoch
    assert "of a task that writes in a transaction" in errors[0]
    found = committed(broker.bootstrap, name)
    assert numbers(found) == list(range(1000))
    assert is_in_order(found)


def test_rows_that_are_lost_are_packed_again(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12:SP-26: the blocks are gone, as with an executor, before and after some were sent."""
    name = topic(partitions=2)
    packed_batches: list[PackedBatch] = []
    pack = jobs.pack

    def losing(*given: Any, **named: Any) -> PackedBatch:
        packed = pack(*given, **named)
        packed_batches.append(packed)
        if len(packed_batches) == 1:
            packed.free()
        if len(packed_batches) == 2:  # Rows of two attempts: what a lost shuffle block leads to.
            names = [column.split()[0] for column in PACKED.split(",")]
            chosen = [f"{name} + writer as {name}" if name == "attempt" else name for name in names]
            mixed = packed.frame.selectExpr(*chosen)
            return dataclasses.replace(packed, frame=mixed)
        return packed

    monkeypatch.setattr("odradek.spark.transactional.writer.pack", losing)
    assert writer_of(name).write(rows(spark, 0, 500), 0, "a") == 500
    assert len(packed_batches) == 3
    packed_batches[1].free()
    assert numbers(committed(broker.bootstrap, name)) == list(range(500))


def test_a_batch_that_can_never_be_sent_is_not_visible(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
) -> None:
    """12:SP-26: three transactions, all aborted; the next batch is not blocked."""
    name = topic(partitions=2, configs={"max.message.bytes": "2000"})
    mixed = spark.sql(
        "select string(id) as key, repeat('x', int(id) * 3000) as value from range(2)"
    )
    writer = writer_of(name)
    with pytest.raises(ExactlyOnceError, match="could not be sent in 3 transactions"):
        writer.write(mixed, 0, "a")
    assert committed(broker.bootstrap, name) == []
    assert writer.write(rows(spark, 0, 10), 0, "a") == 10
    assert numbers(committed(broker.bootstrap, name)) == list(range(10))


def test_the_second_of_two_drivers_fences_the_first(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12:SP-23, 12:SP-26: one pauses after it has read the marker, the other writes meanwhile."""
    name = topic(partitions=2)
    first, second = writer_of(name), writer_of(name)
    judge = first._judge

    def paused(batch: int, digest: str) -> bool:
        is_written = judge(batch, digest)
        assert second.write(rows(spark, 0, 100), batch, digest) == 100
        return is_written

    monkeypatch.setattr(first, "_judge", paused)
    with pytest.raises(FencedQueryError, match="another one was started on the same checkpoint"):
        first.write(rows(spark, 0, 100), 0, "a")
    assert numbers(committed(broker.bootstrap, name)) == list(range(100))
    monkeypatch.undo()
    assert first.write(rows(spark, 0, 100), 0, "a") is None
    with pytest.raises(FencedQueryError):
        second.write(rows(spark, 100, 200), 1, "b")
    assert first.write(rows(spark, 100, 200), 1, "b") == 100
    assert numbers(committed(broker.bootstrap, name)) == list(range(200))


def test_batches_leave_nothing_behind(
    spark: SparkSession,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
) -> None:
    """12:SP-45: no blocks, shuffle files, threads or descriptors, without Java's collection."""
    producer_count = producer_threads()
    writer = writer_of(topic(partitions=2))
    local_dir = Path(spark.conf.get("spark.local.dir") or "")
    some = rows(spark, 0, 10)
    for batch in range(2):
        assert writer.write(some, batch, str(batch)) == 10
    before = left_behind(spark, local_dir)
    for batch in range(2, 8):
        assert writer.write(some, batch, str(batch)) == 10
    after = settled(lambda: left_behind(spark, local_dir), before)
    assert all(after[name] <= before[name] for name in before), (before, after)
    writer.close()
    assert producer_threads() == producer_count


class _Death(BaseException):
    """What ends a driver here; nothing of it is cleaned up."""


def test_a_driver_that_dies_after_any_step(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
) -> None:
    """12:SP-23, 12:SP-24: the next one writes the batch, or finds it committed."""
    name = topic(partitions=2)
    steps = ("_start", "_judge", "_pack", "_send", "_mark", "_commit")
    for batch, step in enumerate(steps):
        some = rows(spark, 10 * batch, 10 * (batch + 1))
        with _dying_after(writer_of(name), step) as dying, pytest.raises(_Death):
            dying.write(some, batch, f"plan of {batch}")
        written = writer_of(name).write(some, batch, f"plan of {batch}")
        assert written == (None if step == "_commit" else 10), step
    assert numbers(committed(broker.bootstrap, name)) == list(range(10 * len(steps)))


@contextlib.contextmanager
def _dying_after(writer: TransactionalWriter, step: str) -> Iterator[TransactionalWriter]:
    inner = getattr(writer, step)

    def die(*given: Any) -> None:
        inner(*given)
        raise _Death

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, step, die)
        # It has no time to end its transaction.
        patch.setattr(writer, "_close_producer", lambda: None)
        yield writer


def test_rows_without_a_key_reach_every_partition(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    writer_of: Callable[..., TransactionalWriter],
) -> None:
    """12:SP-25: without an exchange; also if fewer tasks than writers have rows."""
    name = topic(partitions=2)
    parsed, columns = read_sink(
        spark.sql("select '' as value"),
        {"kafka.bootstrap.servers": broker.bootstrap, "topic": name},
    )
    identity = QueryIdentity(name="test", query_id=name, target=name)
    writer = TransactionalWriter(identity, parsed, columns, None)
    try:
        for batch in range(2):
            some = spark.sql(
                "select concat(string(id), ':', uuid()) as value"
                f" from range({100 * batch}, {100 * (batch + 1)}, 1, 1)"
            )
            assert writer.write(some, batch, str(batch)) == 100
        many = spark.sql("select concat(string(id), ':') as value from range(200, 500, 1, 5)")
        assert writer.write(many, 2, "2") == 300
    finally:
        writer.close()
    found = committed(broker.bootstrap, name)
    assert numbers(found) == list(range(500))
    firsts = {
        record.partition for record in found if int((record.value or b"").split(b":")[0]) < 200
    }
    assert firsts == {0, 1}


@pytest.mark.parametrize("is_adaptive", ["true", "false"])
def test_every_column_in_one_transaction(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    is_adaptive: str,
) -> None:
    """12:SP-25: rows that name topics and partitions; one writer for each, adaptive or not."""
    here, there = topic(partitions=3), topic(partitions=1)
    frame = spark.createDataFrame(
        [
            (b"k1", b"v1", [("h", b"1"), ("h", None)], None, 2),
            (b"k2", None, [], None, 0),
            (None, b"v3", None, None, 1),
            (None, b"v4", None, there, None),
            (b"", b"", None, there, 0),
        ],
        "key binary, value binary, headers array<struct<key:string,value:binary>>,"
        " topic string, partition int",
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": here}
    parsed, columns = read_sink(frame, options)
    identity = QueryIdentity(name="test", query_id=here, target=here)
    writer = TransactionalWriter(identity, parsed, columns, CheckpointNotes(str(tmp_path)))
    spark.conf.set("spark.sql.adaptive.enabled", is_adaptive)
    try:
        assert writer.write(frame, 0, "a") == 5
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
        writer.close()
    told = [
        (record.topic, record.partition, record.key, record.value, tuple(record.headers))
        for record in committed(broker.bootstrap, here, 3)
    ]
    assert sorted(told, key=lambda one: one[1]) == [
        (here, 0, b"k2", None, ()),
        (here, 1, None, b"v3", ()),
        (here, 2, b"k1", b"v1", (("h", b"1"), ("h", None))),
    ]
    assert [(one.key, one.value) for one in committed(broker.bootstrap, there, 1)] == [
        (None, b"v4"),
        (b"", b""),
    ]
