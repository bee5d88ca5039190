"""Pipelines whose topics are written exactly once."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.records.codec import ConsumerRecord
from odradek.spark.pipeline.engine.operations.backfill import backfill
from odradek.spark.pipeline.engine.operations.status import pipeline_status
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.graph.model import Pipeline, StartPosition
from tests.support.odradek_broker import OdradekBroker
from tests.support.topic_records import records_of

FILE = """\
name: once
bootstrap: "{bootstrap}"
checkpoint: checkpoints
sources:
  raw:
    topic: "{orders}"
    value: {{format: json, schema: "id bigint, user string"}}
    on_error: dlq
transforms:
  counted: {{sql: "select user, count(*) as n, uuid() as drawn from raw group by user"}}
sinks:
  counts: {{from: counted, topic: "{counts}", key: user, exactly_once: true}}
  copy: {{from: raw, topic: "{copy}", key: user, exactly_once: true}}
dlq: {{topic: "{dead}", exactly_once: true}}
"""


def produce(broker: OdradekBroker, topic: str, numbers: range) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in numbers:
            told = {"id": number, "user": "ab"[number % 2]}
            producer.send(topic, value=json.dumps(told).encode())
        producer.send(topic, value=b"nonsense")


@pytest.mark.timeout(900)
def test_a_pipeline_with_every_kind(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-3, 12:SP-61: updates and appends, dead letters, status and backfill."""
    names = {
        "orders": topic(partitions=1),
        "counts": topic(),
        "copy": topic(),
        "dead": topic(partitions=1),
    }
    path = tmp_path / "once.yaml"
    path.write_text(FILE.format(bootstrap=broker.bootstrap, **names))
    loaded = load(str(path), environment={})
    assert loaded.pipeline is not None, loaded.problems
    pipeline: Pipeline = loaded.pipeline
    for numbers in (range(10), range(10, 14)):
        produce(broker, names["orders"], numbers)
        assert run_pipeline(pipeline, is_once=True, session=spark, out=io.StringIO())
    statuses, why = pipeline_status(pipeline, plan_queries(pipeline))
    assert why is None
    assert {one.sink: (one.batch, one.committed_batch) for one in statuses} == {
        "counts": (1, 1),
        "copy": (1, 1),
        "dlq": (1, 1),
    }
    counts = [json.loads(record.value or b"") for record in _all(broker, names["counts"], 2)]
    assert sorted((one["n"]) for one in counts) == [5, 5, 7, 7]
    assert _ids(broker, names["copy"]) == list(range(14))
    assert [one.value for one in _all(broker, names["dead"], 1)] == [b"nonsense"] * 2

    sinks = [pipeline.sinks["copy"]]
    start, end = StartPosition(edge="earliest"), StartPosition(offsets={names["orders"]: {0: 6}})
    for written in (6, 0):  # The same range of offsets is written once, however it is named.
        assert backfill(spark, pipeline, sinks, start=start, end=end) == {"copy": written}
        start = StartPosition(offsets={names["orders"]: {0: 0}})
    assert _ids(broker, names["copy"]) == sorted([*range(14), *range(6)])


def _ids(broker: OdradekBroker, topic: str) -> list[int]:
    return sorted(json.loads(record.value or b"")["id"] for record in _all(broker, topic, 2))


def _all(broker: OdradekBroker, topic: str, partitions: int) -> list[ConsumerRecord]:
    return records_of(broker.bootstrap, topic, range(partitions))
