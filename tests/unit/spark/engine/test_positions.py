"""Positions as commands take them (12:SP-47)."""

import pytest

from odradek.spark.pipeline.engine.positions import parse_position, position_text
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import Position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(edge="earliest")),
        (" latest ", Position(edge="latest")),
        ("2026-01-31T12:00:00Z", Position(timestamp_ms=1_769_860_800_000)),
        ("2026-01-31T13:00:00.250+01:00", Position(timestamp_ms=1_769_860_800_250)),
        ("2026-01-31T12:00:00", Position(timestamp_ms=1_769_860_800_000)),
        ('{"a": {"0": 12, "1": 0}}', Position(offsets={"a": {0: 12, 1: 0}})),
    ],
)
def test_a_position_is_read_and_written(text: str, position: Position) -> None:
    assert parse_position(text) == position
    assert parse_position(position_text(position)) == position


@pytest.mark.parametrize(
    "text", ["", "yesterday", "12", "{", '{"a": 3}', '{"a": {"x": 1}}', '{"a": {"0": -1}}', "[]"]
)
def test_what_is_no_position_is_refused_with_examples(text: str) -> None:
    with pytest.raises(PipelineError, match=r"expected .*orders.*came"):
        parse_position(text)
