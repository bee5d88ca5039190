"""Pipelines that run on Spark against a broker: from topics to topics, files and dead letters."""

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.graph.model import (
    Action,
    Dedup,
    FilesTarget,
    JsonCodec,
    OnError,
    Pipeline,
    Restart,
    StringCodec,
    TopicTarget,
    Transform,
    Trigger,
    TriggerKind,
    Watermark,
)
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import (
    ONCE,
    ORDERS,
    PLACE,
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


@pytest.mark.timeout(900)  # Seconds on a quiet machine; many Java processes make it minutes.
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
    assert run_pipeline(tested, is_once=True, sinks=["totals"], session=spark, out=io.StringIO())
    records = records_of(broker.bootstrap, totals, range(2))
    found = {record.key: json.loads(record.value or b"") for record in records}
    assert found == {
        user: {"minute": "2026-01-01T00:00:00.000000Z", "total": 7.5} for user in (b"a", b"b")
    }


class _Interrupting(io.StringIO):
    """Sends this process SIGINT when the first batch with rows is told."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sent = False

    def write(self, text: str) -> int:
        if not self.is_sent and '"sink_rows": 2' in text:
            self.is_sent = True
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


@pytest.mark.timeout(900)
def test_a_stream_that_fails_goes_on_where_it_was_and_ends_when_asked(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-64, 12:SP-62, 12:SP-61: joined streams without duplicates, into a topic."""
    orders, payments, out = topic(partitions=1), topic(partitions=1), topic(partitions=1)

    def joined(on_error: OnError, trigger: Trigger, restart: Restart | None = None) -> Pipeline:
        value = TopicTarget(out, "id", JsonCodec(columns=("id", "paid")), None, None, False, {})
        into = sink("paid", "matched", value)
        object.__setattr__(into, "trigger", trigger)
        mark = Watermark("ts", 60_000)
        return pipeline(
            topic_source("orders", ORDERS, topics=[orders], on_error=on_error, watermark=mark),
            topic_source(
                "payments",
                JsonCodec(ddl="id bigint, paid double, at timestamp"),
                topics=[payments],
                watermark=Watermark("at", 60_000),
            ),
            transforms=[
                Transform("once", Dedup(("id",), 3_600_000), ("orders",), None, (), PLACE),
                select(
                    "matched",
                    "select o.id, p.paid from once o join payments p on o.id = p.id"
                    " and p.at between o.ts and o.ts + interval 1 hour",
                    "once",
                    "payments",
                ),
            ],
            sinks=[into],
            bootstrap=broker.bootstrap,
            checkpoint=str(tmp_path / "checkpoints"),
            restart=restart,
        )

    def order(number: int) -> tuple[str, str]:
        return "k", json.dumps({"id": number, "ts": MINUTE.format(number)})

    def payment(number: int) -> tuple[str, str]:
        return "k", json.dumps({"id": number, "paid": 0.5, "at": MINUTE.format(number + 1)})

    every = Trigger(TriggerKind.EVERY, 100)
    produce(broker, orders, [order(1), order(1), order(2)])
    produce(broker, payments, [payment(1), payment(2)])
    asked = _Interrupting()
    assert run_pipeline(joined(OnError.FAIL, every), session=spark, out=asked)
    assert asked.is_sent
    # A record that must not be there: it would fail again, so the run ends, and names its place.
    produce(broker, orders, [("bad", "nonsense"), order(3)])
    produce(broker, payments, [payment(3)])
    failed = io.StringIO()
    tried = joined(OnError.FAIL, ONCE, Restart(2, 10, 10))
    assert not run_pipeline(tried, session=spark, out=failed)
    told = [json.loads(line) for line in failed.getvalue().splitlines()]
    errors = [line for line in told if "error" in line]
    assert [line["state"] for line in errors] == ["failed"]
    assert errors[0]["position"].split(", ")[0] == f"{orders}-0 from 3 to 5"
    assert errors[0]["place"] == str(tried.sources["orders"].place)
    raised = [line["message"] for line in errors if line["error"] == "USER_RAISED_EXCEPTION"]
    assert raised
    assert f"(record {orders}-0 at offset 3)" in raised[0]
    # The file says otherwise now, and the checkpoint is still good.
    assert run_pipeline(joined(OnError.DROP, ONCE), session=spark, out=io.StringIO())
    written = {one.value for one in records_of(broker.bootstrap, out, range(1))}
    assert written == {b'{"id":%d,"paid":0.5}' % number for number in (1, 2, 3)}
