"""The place and the offsets that a failure is about."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder
from odradek.spark.pipeline.engine.running.failed_parts import (
    batch_text,
    located,
    offsets_of_batch,
)
from odradek.spark.pipeline.engine.running.failures import Failure
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from tests.unit.spark.pipeline.files import valid

FILE = """\
name: shop
bootstrap: localhost:9092
sources:
  raw: {topic: t, value: {format: json, schema: "id bigint, text string"}, on_error: dlq}
transforms:
  numbers:
    sql: |
      select id,
        cast(text as int) as number
      from raw
sinks:
  table: {from: numbers, delta: {path: ./table}}
dlq: {topic: letters}
"""


def position(offsets: Mapping[str, int]) -> str:
    topics = {"t": {"id": "8M-ed1JNQgOpfdXn4pRq2g", "p": offsets}}
    return json.dumps({"v": 1, "topics": topics, "split": {"min": 0, "max": 0}})


def begin(checkpoint: Path, batch: int, offsets: Mapping[str, int]) -> None:
    """What Spark notes before a batch."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n" + position(offsets))


def end(checkpoint: Path, batch: int) -> None:
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


@pytest.mark.parametrize(
    ("query", "failure", "line"),
    [
        ("table", Failure("CAST", "old", fragment="cast(text as int)"), 9),
        ("table", Failure("CAST", "old", fragment="cast(other as int)"), 12),
        ("table", Failure("IOException", "no space"), 12),
        ("table", Failure("RAISED", "source raw: a record cannot be decoded: x"), 4),
        ("table", Failure("RAISED", "source other: of another pipeline"), 12),
        ("dlq", Failure("IOException", "no space"), 13),
    ],
)
def test_the_line_of_the_file(query: str, failure: Failure, line: int, tmp_path: Path) -> None:
    pipeline = valid(tmp_path, FILE)
    (plan,) = plan_queries(pipeline, sinks=[query])
    place = located(failure, pipeline, plan).place
    assert place.rpartition(":")[0] == f"{pipeline.file}:{line}"


def test_the_offsets_are_those_of_the_batch_that_is_not_done(tmp_path: Path) -> None:
    """12:SP-64: topic, partition, first offset and end."""
    folder = CheckpointFolder(str(tmp_path))

    def shown() -> str:
        return batch_text(offsets_of_batch(folder))

    assert shown() == ""
    begin(tmp_path, 0, {"0": 3, "1": 0})
    assert shown() == "t-0 up to 3, t-1 up to 0"
    end(tmp_path, 0)
    assert shown() == ""
    begin(tmp_path, 1, {"0": 7, "1": 0, "2": 4})
    assert shown() == "t-0 from 3 to 7, t-2 up to 4"
    begin(tmp_path, 1, {str(number): 1 for number in range(12)})
    assert shown().endswith(", … 2 more")


def test_the_first_batch_begins_where_the_file_says(tmp_path: Path) -> None:
    """12:SP-64: Spark notes only where the first batch ends."""
    text = FILE.replace("topic: t,", "topic: t, start: {t: {0: 2, 1: 0}},")
    pipeline = valid(tmp_path, text)
    (plan,) = plan_queries(pipeline, sinks=["table"])
    begin(Path(plan.checkpoint), 0, {"0": 3, "1": 0})

    failure = located(Failure("IOException", "no space"), pipeline, plan)

    assert failure.position == "t-0 from 2 to 3"
