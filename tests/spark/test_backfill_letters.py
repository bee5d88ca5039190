"""A backfill over several sources, and what it tells of records that cannot be used."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.operations.backfill import backfill, count_letters
from odradek.spark.pipeline.graph.model import Action, FilesTarget, OnError, StartPosition
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import ORDERS, pipeline, rule, select, sink, topic_source


@pytest.mark.timeout(900)
def test_offsets_of_two_sources_and_letters_that_are_counted(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-11, 12:SP-61: each source gets its part of the offsets; no letter goes uncounted."""
    here, there = topic(partitions=1), topic(partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            order = {
                "id": number,
                "user": "a",
                "amount": number - 5.0,
                "ts": "2026-01-01T00:00:00Z",
            }
            producer.send(here, json.dumps(order).encode())
            producer.send(there, b"nonsense" if number % 2 else json.dumps(order).encode())
    tested = pipeline(
        topic_source(
            "here", ORDERS, topics=[here], expect=[rule("positive", "amount > 0", Action.DLQ)]
        ),
        topic_source("there", ORDERS, topics=[there], on_error=OnError.DLQ),
        topic_source("other", ORDERS, topics=["unread"], on_error=OnError.DLQ),
        transforms=[
            select(
                "both",
                "select id from here union all select id from there",
                "here",
                "there",
                expect=[rule("small", "id < 100", Action.DLQ)],
            )
        ],
        sinks=[
            sink("archive", "both", FilesTarget("parquet", str(tmp_path / "out"), (), None, {})),
            sink("rest", "other", FilesTarget("parquet", str(tmp_path / "rest"), (), None, {})),
        ],
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
    )
    chosen = [tested.sinks["archive"]]
    start = StartPosition(offsets={here: {0: 4}, there: {0: 1}})
    end = StartPosition(offsets={here: {0: 9}, there: {0: 4}})

    assert backfill(spark, tested, chosen, start=start, end=end) == {"archive": 4}
    assert count_letters(spark, tested, chosen, start=start, end=end) == {
        ("both", "expect:small"): 0,
        ("here", "expect:positive"): 2,
        ("there", "decode"): 2,
    }

    files = spark.read.parquet(str(tmp_path / "out.backfill"))
    assert sorted(row.id for row in files.collect()) == [2, 6, 7, 8]
