"""A pipeline whose Spark is behind Spark Connect: batches are handled on the server."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek import Admin, Producer
from odradek.model import TopicPartition
from tests.support.numbers import delta_rows
from tests.support.odradek_broker import OdradekBroker
from tests.support.pipeline_runs import PipelineService
from tests.support.spark_connect import missing_connect, running_connect
from tests.support.topic_records import records_of

_PIPELINE = """\
name: remote
bootstrap: ${KAFKA}
checkpoint: file://${FOLDER}/checkpoints
restart: {max: 30, backoff: 200ms, max_backoff: 1s}
spark: {master: "${SERVER}"}
sources:
  numbers: {topic: "${NUMBERS}", on_error: drop, value: {format: json, schema: "id bigint"}}
transforms:
  rows: {sql: "select id, id * 2 as twice from numbers"}
sinks:
  lake: {from: rows, delta: {path: "${FOLDER}/lake"}}
  copy: {from: rows, topic: "${COPY}"}
"""


def test_a_pipeline_runs_on_spark_connect(
    broker: OdradekBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """12:SP-14, 12:SP-39, 12:SP-63: into Delta and a topic, with groups and counts."""
    if reason := missing_connect():
        pytest.skip(reason)
    numbers, copy = topic(partitions=1), topic(partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            producer.send(numbers, json.dumps({"id": number}).encode())
        producer.send(numbers, b"nonsense")
    file = tmp_path / "remote.yaml"
    file.write_text(_PIPELINE)
    with running_connect(tmp_path / "server") as master:
        pipeline = PipelineService(
            file,
            {
                "KAFKA": broker.bootstrap,
                "FOLDER": str(tmp_path),
                "SERVER": master,
                "NUMBERS": numbers,
                "COPY": copy,
            },
        )
        pipeline.run_once()
    rows = [(row["id"], row["twice"]) for row in delta_rows(tmp_path / "lake")]
    assert sorted(rows) == [(number, 2 * number) for number in range(10)]
    copied = {record.value for record in records_of(broker.bootstrap, copy, [0])}
    assert {json.loads(value or b"")["id"] for value in copied} == set(range(10))
    place = TopicPartition(numbers, 0)
    groups = [f"odradek-pipeline-remote-{sink}" for sink in ("lake", "copy")]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for group, offsets in admin.list_group_offsets(groups).items():
            assert not isinstance(offsets, Exception), offsets
            assert offsets[place].offset == 11, group
    told = [json.loads(line) for line in (tmp_path / "run-1.out").read_text().splitlines()]
    (lake,) = [line for line in told if line["sink"] == "lake" and line.get("sink_rows")]
    assert lake["sink_rows"] == 10
    assert lake["failed"] == [{"stage": "numbers", "rule": "decode", "rows": 1}]
