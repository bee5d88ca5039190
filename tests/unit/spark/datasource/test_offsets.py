"""Positions as Spark keeps them."""

import json

import pytest

from odradek.model import TopicPartition
from odradek.spark.datasource.offsets import Position, SplitRule, parse_plain

ID = "iJZ4yJ1aQ6qWJ0v2cT1x3A"


def position(**partitions: int) -> Position:
    offsets = {TopicPartition("orders", int(name[1:])): at for name, at in partitions.items()}
    return Position.of(offsets, {"orders": ID})


def test_one_position_has_one_text() -> None:
    """12:SP-32: topics by name, partitions by number, whatever order they came in."""
    offsets = {
        TopicPartition("b", 10): 5,
        TopicPartition("b", 9): 4,
        TopicPartition("a", 0): 3,
    }
    turned = dict(reversed(offsets.items()))
    split = SplitRule(min_partitions=4, max_records=100)

    one = json.dumps(Position.of(offsets, {"a": "x", "b": "y"}, split).to_json())
    other = json.dumps(Position.of(turned, {"b": "y", "a": "x"}, split).to_json())

    assert one == other
    assert one == (
        '{"v": 1, "topics": {"a": {"id": "x", "p": {"0": 3}}, '
        '"b": {"id": "y", "p": {"9": 4, "10": 5}}}, "split": {"min": 4, "max": 100}}'
    )


def test_what_is_written_is_read() -> None:
    """12:SP-32."""
    before = position(p0=123, p1=0, p11=2**62)
    assert Position.parse(json.loads(json.dumps(before.to_json()))) == before


def test_a_turned_text_is_written_in_order_again() -> None:
    """12:SP-32."""
    told = {
        "split": {"max": 0, "min": 0},
        "topics": {"t": {"p": {"1": 1, "0": 2}, "id": ""}},
        "v": 1,
    }
    written = json.dumps(Position.parse(told).to_json())
    assert written.startswith(
        '{"v": 1, "topics": {"t": {"id": "", "p": {"0": 2, "1": 1}}}, "split"'
    )


@pytest.mark.parametrize("topic", ["orders", "v", "topics"])
def test_kafkas_plain_form_is_read(topic: str) -> None:
    """12:SP-32: a checkpoint of Spark's own source; a topic may be called anything."""
    told = {topic: {"0": 123, "1": 77}}
    if topic == "topics":
        told["v"] = {"0": 1}
    read = Position.parse(told)
    assert read.offset(TopicPartition(topic, 1)) == 77
    assert read.topics[topic].topic_id == ""
    assert read.split == SplitRule()


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_an_unknown_version_is_refused(version: object) -> None:
    """12:SP-32."""
    told = {"v": version, "topics": {}, "split": {"min": 0, "max": 0}}
    with pytest.raises(ValueError, match=r"version .*1 and Kafka's plain form"):
        Position.parse(told)


@pytest.mark.parametrize(
    "told",
    [
        [],
        "earliest",
        {"v": 1},
        {"v": 1, "topics": {}},
        {"v": 1, "topics": {"t": {"p": {}}}, "split": {"min": 0, "max": 0}},
        {"v": 1, "topics": {"t": {"id": "", "p": {"0": -1}}}, "split": {"min": 0, "max": 0}},
        {"v": 1, "topics": {"t": {"id": "", "p": {"0": 1}}}, "split": {"min": -1, "max": 0}},
        {"v": 1, "topics": {"t": {"id": "", "p": {"0": 1}}}, "split": {"min": True, "max": 0}},
        {"t": {"zero": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": 1.5}},
        {"t": {"-1": 1}},
        {"t": {"2147483648": 1}},
        {"t": [1]},
        {"": {"0": 1}},
    ],
)
def test_anything_else_is_refused(told: object) -> None:
    """12:SP-32."""
    with pytest.raises(ValueError, match=r"expected|not a partition|not a topic"):
        Position.parse(told)


def test_ends_of_the_log_are_numbers_in_options_only() -> None:
    assert parse_plain({"t": {"0": -2}}, lowest=-2) == {TopicPartition("t", 0): -2}
    with pytest.raises(ValueError, match="at least 0"):
        parse_plain({"t": {"0": -2}}, lowest=0)
