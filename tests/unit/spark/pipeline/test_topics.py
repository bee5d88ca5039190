"""Which source topics belong to, and its part of a position."""

import pytest

from odradek.spark.pipeline.graph.model import StartPosition, TopicInput
from odradek.spark.pipeline.graph.topics import name_sources, position_for

NAMED = TopicInput(topics=("a", "b"))
LIKE = TopicInput(pattern="a.*")
EXACT = TopicInput(assign={"a": (0, 2)})


@pytest.mark.parametrize(
    ("topics", "offsets"),
    [
        (NAMED, {"a": {0: 1, 2: 3}, "b": {0: 9}}),
        (LIKE, {"a": {0: 1, 2: 3}, "ab": {0: 7}}),
        (EXACT, {"a": {0: 1, 2: 3}}),
        (TopicInput(assign={"a": (2,)}), {"a": {2: 3}}),
    ],
)
def test_a_source_gets_its_part_of_a_position(
    topics: TopicInput, offsets: dict[str, dict[int, int]]
) -> None:
    """12:SP-47, 12:SP-61: one map may be for several sources."""
    whole = StartPosition(offsets={"a": {0: 1, 2: 3}, "b": {0: 9}, "ab": {0: 7}})
    assert position_for(topics, whole) == StartPosition(offsets=offsets)


def test_a_place_in_time_is_for_all() -> None:
    assert position_for(NAMED, StartPosition(timestamp_ms=5)) == StartPosition(timestamp_ms=5)
    assert position_for(NAMED, StartPosition(edge="latest")) == StartPosition(edge="latest")


@pytest.mark.parametrize(
    ("reported", "names"),
    [
        ([("a", "b"), ("a",), ("aa", "ab")], ["named", "exact", "like"]),
        ([("aa",), ("a",)], ["like", "exact"]),
        ([("x",)], [None]),
        ([("a", "b"), ("a", "b")], ["named", "named"]),
    ],
)
def test_reports_are_named_by_their_source(
    reported: list[tuple[str, ...]], names: list[str | None]
) -> None:
    """12:SP-63: what Spark tells by topics is shown by the names of the file."""
    inputs = {"like": LIKE, "named": NAMED, "exact": EXACT}
    assert name_sources(inputs, reported) == names


def test_a_pattern_that_fits_nothing_yet_is_named() -> None:
    assert name_sources({"like": LIKE}, [()]) == ["like"]


def test_two_sources_of_one_topic_are_named_in_the_order_of_the_file() -> None:
    """12:SP-63."""
    inputs = {"left": TopicInput(topics=("a",)), "right": TopicInput(topics=("a",))}
    assert name_sources(inputs, [("a",), ("a",)]) == ["left", "right"]
