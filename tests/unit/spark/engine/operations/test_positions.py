"""Positions as commands take them (12:SP-47)."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.engine.operations.positions import (
    check_position,
    parse_position,
    position_text,
)
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import StartPosition
from tests.unit.spark.pipeline.files import valid


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", StartPosition(edge="earliest")),
        (" latest ", StartPosition(edge="latest")),
        ("2026-01-31T12:00:00Z", StartPosition(timestamp_ms=1_769_860_800_000)),
        ("2026-01-31T13:00:00.250+01:00", StartPosition(timestamp_ms=1_769_860_800_250)),
        ("2026-01-31T12:00:00", StartPosition(timestamp_ms=1_769_860_800_000)),
        ('{"a": {"0": 12, "1": 0}}', StartPosition(offsets={"a": {0: 12, 1: 0}})),
    ],
)
def test_a_position_is_read_and_written(text: str, position: StartPosition) -> None:
    assert parse_position(text) == position
    assert parse_position(position_text(position)) == position


@pytest.mark.parametrize(
    "text", ["", "yesterday", "12", "{", '{"a": 3}', '{"a": {"x": 1}}', '{"a": {"0": -1}}', "[]"]
)
def test_what_is_no_position_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PipelineError, match=r"expected .*orders.*found"):
        parse_position(text)


PAIR = """\
name: pair
bootstrap: localhost:9092
sources:
  a: {topic: a}
  b: {topic: b}
  c: {assign: {c: [0]}}
transforms:
  both: {sql: select value from a union all select value from b}
sinks:
  both: {from: both, console: {}}
  other: {from: c, console: {}}
"""


@pytest.mark.parametrize(
    ("queries", "offsets", "problem"),
    [
        (["both"], {"a": {0: 1}, "b": {0: 2}}, None),
        (["both", "other"], {"a": {0: 1}, "b": {0: 2}, "c": {0: 0}}, None),
        (["both"], {"a": {0: 1}, "b": {0: 2}, "c": {0: 3}}, "topic 'c' is read by no source"),
        (["both"], {"a": {0: 1}}, "no offset of topic 'b', which source 'b' reads"),
        (["other"], {"c": {0: 1, 1: 1}}, "partition 1 of topic 'c' is read by no source"),
        (["other"], {"c": {}}, "no offset of partition 0 of topic 'c', which source 'c' reads"),
    ],
)
def test_offsets_have_to_be_those_of_what_is_read(
    queries: list[str], offsets: dict[str, dict[int, int]], problem: str | None, tmp_path: Path
) -> None:
    """12:SP-61: told before anything is touched."""
    tested = valid(tmp_path, PAIR)
    if problem is None:
        check_position(tested, queries, StartPosition(offsets=offsets))
        return
    with pytest.raises(PipelineError, match=problem):
        check_position(tested, queries, StartPosition(offsets=offsets))
