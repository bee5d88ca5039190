"""A query that reads several topics begins where a reset says."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.operations.reset import reset_queries
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.graph.model import JsonCodec, StartPosition, TopicTarget
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipelines import pipeline, select, sink, topic_source
from tests.support.topic_records import records_of

NUMBERS = JsonCodec(ddl="n int")


@pytest.mark.timeout(900)
def test_offsets_of_all_sources_are_taken_from_one_position(
    spark: SparkSession, broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-61, 12:SP-63: `reset --to` with offsets; lag is shown by the names of the sources."""
    left, right, target = topic(partitions=1), topic(partitions=1), topic(partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(5):
            producer.send(left, json.dumps({"n": number}).encode())
            producer.send(right, json.dumps({"n": number + 10}).encode())
    tested = pipeline(
        topic_source("left", NUMBERS, topics=[left]),
        topic_source("right", NUMBERS, topics=[right]),
        transforms=[
            select("both", "select n from left union all select n from right", "left", "right")
        ],
        sinks=[
            sink("copy", "both", TopicTarget(target, None, JsonCodec(), None, None, False, {})),
        ],
        bootstrap=broker.bootstrap,
        checkpoint=str(tmp_path / "checkpoints"),
        dead_letters=None,
    )
    to = StartPosition(offsets={left: {0: 3}, right: {0: 4}})
    assert reset_queries(tested, plan_queries(tested), to) == ()

    out = io.StringIO()
    assert run_pipeline(tested, is_once=True, session=spark, out=out)

    records = records_of(broker.bootstrap, target, range(1))
    assert sorted(json.loads(record.value or b"")["n"] for record in records) == [3, 4, 14]
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {lag["source"] for line in lines for lag in line["lag"]} == {"left", "right"}
