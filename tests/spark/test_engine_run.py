"""Pipelines that run on Spark against a broker: from topics to topics, files and dead letters."""

import io
import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.run import run_pipeline
from odradek.spark.pipeline.graph.model import (
    Action,
    FilesTarget,
    JsonCodec,
    OnError,
    StringCodec,
    TopicTarget,
    Watermark,
)
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import (
    ORDERS,
    pipeline,
    rule,
    select,
    sink,
    topic_source,
)
from tests.support.topic_records import records_of

MINUTE = "2026-01-01T00:00:{:02}Z"


def produce(broker: OdradekBroker, topic: str, values: list[tuple[str, str]]) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in values:
            producer.send(topic, key=key.encode(), value=value.encode(), headers=[("h", b"1")])


def test_topics_to_a_topic_files_and_dead_letters(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-8, 12:SP-9, 12:SP-58, 12:SP-63: `run --once`, twice."""
    orders, totals, dead = topic(), topic(), topic(partitions=1)
    lake = tmp_path / "lake"
    tested = pipeline(
        topic_source(
            "raw",
            ORDERS,
            topics=[orders],
            key=StringCodec(),
            on_error=OnError.DLQ,
            watermark=Watermark("ts", 30_000),
            expect=[
                rule("positive", "amount > 0", Action.DLQ),
                rule("has_user", "user is not null", Action.DROP),
            ],
        ),
        transforms=[
            select(
                "per_user",
                "select window(ts, '1 minute').start as minute, user, sum(amount) as total"
                " from raw group by window(ts, '1 minute'), user",
                "raw",
            ),
        ],
        sinks=[
            sink(
                "totals",
                "per_user",
                TopicTarget(totals, "user", JsonCodec(), None, None, False, {}),
            ),
            sink("archive", "raw", FilesTarget("parquet", str(lake), ("user",), None, {})),
        ],
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
        dead_letters=dead,
    )
    produce(
        broker,
        orders,
        [
            (
                f"k{n}",
                json.dumps({"id": n, "user": "ab"[n % 2], "amount": 1.5, "ts": MINUTE.format(n)}),
            )
            for n in range(10)
        ]
        + [
            ("bad", "nonsense"),
            ("negative", json.dumps({"id": 90, "user": "a", "amount": -1, "ts": MINUTE.format(1)})),
            ("nobody", json.dumps({"id": 91, "amount": 1, "ts": MINUTE.format(1)})),
        ],
    )
    out = io.StringIO()
    assert run_pipeline(tested, is_once=True, session=spark, out=out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {line["sink"] for line in lines} == {"totals", "archive", "dlq"}
    archived = spark.read.parquet(str(lake))
    assert sorted(row.id for row in archived.collect()) == list(range(10))
    letters = {record.key: record for record in records_of(broker.bootstrap, dead, range(1))}
    assert set(letters) == {b"bad", b"negative"}
    assert letters[b"bad"].value == b"nonsense"
    assert dict(letters[b"bad"].headers)["odradek.dlq.reason"] == b"decode"
    told = dict(letters[b"negative"].headers)
    place = {told.pop(f"odradek.dlq.{name}") for name in ("partition", "offset", "timestamp")}
    assert None not in place
    assert told == {
        "h": b"1",
        "odradek.dlq.pipeline": b"orders",
        "odradek.dlq.stage": b"raw",
        "odradek.dlq.reason": b"expect:positive",
        "odradek.dlq.error": b"not true: amount > 0",
        "odradek.dlq.topic": orders.encode(),
    }
    # What closes the minute comes later.
    late = {"id": 99, "user": "c", "amount": 1, "ts": "2026-01-01T00:05:00Z"}
    produce(broker, orders, [("late", json.dumps(late))])
    assert run_pipeline(tested, is_once=True, session=spark, out=io.StringIO())
    records = records_of(broker.bootstrap, totals, range(2))
    found = {record.key: json.loads(record.value or b"") for record in records}
    assert found == {
        user: {"minute": "2026-01-01T00:00:00.000000Z", "total": 7.5} for user in (b"a", b"b")
    }
