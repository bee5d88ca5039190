"""Aggregates without a watermark go to a keyed topic as updates."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.graph.model import JsonCodec, OutputMode, TopicTarget
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import ORDERS, pipeline, select, sink, topic_source
from tests.support.topic_records import records_of


@pytest.mark.timeout(900)
def test_each_batch_writes_what_has_changed(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-53: Spark offers no updates to sinks in Python; a keyed topic gets them anyway."""
    orders, totals = topic(), topic(partitions=1)
    tested = pipeline(
        topic_source("raw", ORDERS, topics=[orders]),
        transforms=[
            select("sums", "select user, sum(amount) as total from raw group by user", "raw")
        ],
        sinks=[
            sink(
                "totals",
                "sums",
                TopicTarget(totals, "user", JsonCodec(), None, None, False, {}),
                OutputMode.UPDATE,
            )
        ],
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
    )
    for users in ("ab", "b"):
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for user in users:
                order = {"id": 1, "user": user, "amount": 2.0, "ts": "2026-01-01T00:00:00Z"}
                producer.send(orders, json.dumps(order).encode())
        assert run_pipeline(tested, is_once=True, session=spark, out=io.StringIO())
    records = records_of(broker.bootstrap, totals, range(1))
    told = [(record.key, json.loads(record.value or b"")["total"]) for record in records]
    assert sorted(told[:2]) == [(b"a", 2.0), (b"b", 2.0)]
    assert told[2:] == [(b"b", 4.0)]
