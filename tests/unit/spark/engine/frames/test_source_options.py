"""The options of the data source for a pipeline's topics."""

from typing import Any

import pytest

from odradek.spark.datasource.options import parse_options
from odradek.spark.pipeline.engine.frames.source_options import (
    ending_options,
    reading_options,
    starting_options,
    without_start,
)
from odradek.spark.pipeline.graph.model import OnDataLoss, StartPosition, TopicInput


def options(
    *, with_headers: bool = False, is_streaming: bool = True, **given: Any
) -> dict[str, str]:
    topics = TopicInput(**({"topics": ("a", "b")} | given))
    made = reading_options(topics, "host:1", with_headers=with_headers, is_streaming=is_streaming)
    parse_options(made, is_streaming=is_streaming)  # The source takes them all.
    return made


def test_defaults() -> None:
    """12:SP-49."""
    assert options() == {
        "kafka.bootstrap.servers": "host:1",
        "kafka.isolation.level": "read_committed",
        "subscribe": "a,b",
        "failOnDataLoss": "true",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000000",
    }


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"topics": (), "pattern": "a.*"}, {"subscribePattern": "a.*"}),
        ({"topics": (), "assign": {"a": (2, 1)}}, {"assign": '{"a": [1, 2]}'}),
        ({"start": StartPosition(edge="latest")}, {"startingOffsets": "latest"}),
        (
            {"start": StartPosition(timestamp_ms=5)},
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
        ),
        (
            {"start": StartPosition(offsets={"b": {10: 1, 2: 3}, "a": {0: 7}})},
            {"startingOffsets": '{"a": {"0": 7}, "b": {"2": 3, "10": 1}}'},
        ),
        ({"max_bytes": 1024, "max_records": None}, {"maxBytesPerTrigger": "1024"}),
        (
            {"min_records": 5, "max_delay_ms": 7000},
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "7000ms"},
        ),
        ({"on_data_loss": OnDataLoss.CONTINUE}, {"failOnDataLoss": "false"}),
        ({"isolation": "read_uncommitted"}, {"kafka.isolation.level": "read_uncommitted"}),
        ({"kafka": {"client.id": "x"}}, {"kafka.client.id": "x"}),
        ({"options": {"maxOffsetsPerTrigger": "9"}}, {"maxOffsetsPerTrigger": "9"}),
        ({"with_headers": True}, {"includeHeaders": "true"}),
    ],
)
def test_what_the_file_says(given: dict[str, Any], made: dict[str, str]) -> None:
    """12:SP-49, 12:SP-37: every key of a source, as the data source calls it."""
    assert made.items() <= options(**given).items()


def test_a_batch_is_not_told_where_and_how_fast_to_stream() -> None:
    """12:SP-61."""
    made = options(is_streaming=False)
    assert "startingOffsets" not in made
    assert "maxOffsetsPerTrigger" not in made


@pytest.mark.parametrize(
    ("end", "made"),
    [
        (StartPosition(edge="latest"), {"endingOffsets": "latest"}),
        (StartPosition(timestamp_ms=9), {"endingTimestamp": "9"}),
        (StartPosition(offsets={"a": {0: 7}}), {"endingOffsets": '{"a": {"0": 7}}'}),
    ],
)
def test_where_a_batch_ends(end: StartPosition, made: dict[str, str]) -> None:
    """12:SP-61: `backfill --to`."""
    assert ending_options(end) == made
    parse_options(options(is_streaming=False) | made, is_streaming=False)


def test_another_start_takes_the_place_of_the_files() -> None:
    """12:SP-61: `reset --to`."""
    moved = without_start(options(start=StartPosition(timestamp_ms=5))) | starting_options(
        StartPosition(edge="latest")
    )
    assert [name for name in moved if name.startswith("starting")] == ["startingOffsets"]
    parse_options(moved, is_streaming=True)
