"""Records of the past go through a pipeline once more, as a batch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.operations.backfill import backfill
from odradek.spark.pipeline.graph.model import FilesTarget, JsonCodec, StartPosition, TopicTarget
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import ORDERS, pipeline, select, sink, topic_source
from tests.support.topic_records import records_of


@pytest.mark.timeout(900)
def test_offsets_between_two_positions_reach_the_sinks(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-11, 12:SP-61: same transforms, no checkpoint; files go to a folder of their own."""
    orders, totals = topic(partitions=1), topic(partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            order = {"id": number, "user": "a", "amount": 1.0, "ts": "2026-01-01T00:00:00Z"}
            producer.send(orders, json.dumps(order).encode())
    tested = pipeline(
        topic_source("raw", ORDERS, topics=[orders]),
        transforms=[
            select("sums", "select user, sum(amount) as total from raw group by user", "raw")
        ],
        sinks=[
            sink("totals", "sums", TopicTarget(totals, "user", JsonCodec(), None, None, False, {})),
            sink("archive", "raw", FilesTarget("parquet", str(tmp_path / "out"), (), None, {})),
        ],
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
    )
    counts = backfill(
        spark,
        tested,
        list(tested.sinks.values()),
        start=StartPosition(offsets={orders: {0: 2}}),
        end=StartPosition(offsets={orders: {0: 7}}),
    )
    assert counts == {"totals": 1, "archive": 5}
    (record,) = records_of(broker.bootstrap, totals, range(1))
    assert (record.key, json.loads(record.value or b"")) == (b"a", {"total": 5.0})
    files = spark.read.parquet(str(tmp_path / "out.backfill"))
    assert sorted(row.id for row in files.collect()) == [2, 3, 4, 5, 6]
    assert not (tmp_path / "checkpoints").exists()
