"""Kinds of sources, sinks and triggers that other tests do not run, in one pipeline."""

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from odradek import Producer
from odradek.spark.pipeline.engine.running.run import run_pipeline
from odradek.spark.pipeline.file.load import load
from tests.support.odradek_broker import OdradekBroker

_PIPELINE = """\
name: kinds
bootstrap: ${KAFKA}
checkpoint: ./checkpoints
trigger: continuous
restart: {max: 30, backoff: 200ms, max_backoff: 1s}
sources:
  matched: {topic_pattern: "${LEFT}|${RIGHT}", value: {format: json, schema: "id bigint"}}
  assigned: {assign: {"LEFT": [1]}, value: {format: json, schema: "id bigint"}}
  users: {table: {format: delta, path: ./users}}
  colours: {table: {format: csv, path: ./colours.csv, schema: "user string, colour string"}}
transforms:
  named:
    sql: >
      select m.id, u.user, c.colour from matched m
      left join users u on m.id = u.id left join colours c on u.user = c.user
sinks:
  as_json: {from: named, files: {format: json, path: ./json, max_records_per_file: 2}}
  as_csv: {from: assigned, files: {format: csv, path: ./csv, options: {header: "true"}}}
  seen: {from: named, console: {rows: 3}}
"""
_SINKS = {"as_json", "as_csv", "seen"}


class _Ending(io.StringIO):
    """Asks this process to end the run, as an operator would, when every sink has had rows."""

    def __init__(self) -> None:
        super().__init__()
        self._left = set(_SINKS)

    def write(self, text: str) -> int:
        for line in text.splitlines():
            told = json.loads(line) if line else {}
            if told.get("sink_rows") and told["sink"] in self._left:
                self._left.remove(told["sink"])
                if not self._left:
                    os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


def test_patterns_partitions_tables_files_and_the_console(
    spark: SparkSession,
    broker: OdradekBroker,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """12:SP-6, 12:SP-8, 12:SP-44, 12:SP-49, 12:SP-53: batch after batch, until somebody ends it."""
    left, right = topic(partitions=2), topic(partitions=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(5):
            producer.send(left, json.dumps({"id": number}).encode(), partition=0)
        for number in (10, 11):
            producer.send(left, json.dumps({"id": number}).encode(), partition=1)
        producer.send(right, b'{"id": 20}')
    users = pa.table({"id": [1, 20], "user": ["a", "b"]})
    deltalake.write_deltalake(str(tmp_path / "users"), users)
    (tmp_path / "colours.csv").write_text("user,colour\na,red\n")
    file = tmp_path / "kinds.yaml"
    file.write_text(_PIPELINE.replace('"LEFT"', f'"{left}"'))  # Keys are taken as they are.
    environment = {"KAFKA": broker.bootstrap, "LEFT": left, "RIGHT": right}
    loaded = load(str(file), environment=environment)
    assert loaded.pipeline is not None, loaded.problems

    assert run_pipeline(loaded.pipeline, session=spark, out=_Ending())

    rows = spark.read.schema("id bigint, user string, colour string").json(f"{tmp_path}/json")
    named = {row.id: (row.user, row.colour) for row in rows.collect()}
    assert named == dict.fromkeys([0, 2, 3, 4, 10, 11], (None, None)) | {
        1: ("a", "red"),
        20: ("b", None),
    }
    sizes = [len(one.read_text().splitlines()) for one in (tmp_path / "json").glob("part-*.json")]
    assert max(sizes) == 2
    in_csv = spark.read.option("header", "true").csv(f"{tmp_path}/csv")
    assert {row.id for row in in_csv.collect()} == {"10", "11"}
    printed = capsys.readouterr().out
    assert "seen, batch 0: 8 rows" in printed
    assert "... and 5 more" in printed
