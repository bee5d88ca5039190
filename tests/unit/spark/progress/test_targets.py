"""Which group shows a query's position, and how far behind it is."""

import json

import pytest

from odradek.model import TopicPartition
from odradek.spark.progress.targets import ProgressTarget, lag_of, parse_position, target_of


def position(**topics: dict[int, int]) -> str:
    return json.dumps(
        {
            "v": 1,
            "topics": {name: {"id": "x", "p": offsets} for name, offsets in topics.items()},
            "split": {"min": 0, "max": 0},
        }
    )


def test_a_source_names_its_group() -> None:
    """12:SP-39: only what every client knows goes to the one that commits."""
    options = {
        "progressGroup": " lake ",
        "subscribe": "orders",
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SSL",
        "kafka.isolation.level": "read_committed",
        "kafka.fetch.max.bytes": "1",
    }
    assert target_of(options) == ProgressTarget(
        group="lake", kafka=(("bootstrap.servers", "a:1"), ("security.protocol", "SSL"))
    )
    lower = {name.lower(): value for name, value in options.items()}
    assert target_of(lower) == target_of(options)


@pytest.mark.parametrize("options", [{}, {"progressGroup": " "}, {"groupIdPrefix": "x"}])
def test_without_the_option_there_is_none(options: dict[str, str]) -> None:
    """12:SP-39."""
    assert target_of({"kafka.bootstrap.servers": "a:1", **options}) is None


def test_lag_is_what_lies_between_the_batch_and_the_end() -> None:
    """12:SP-39."""
    lag = lag_of(position(a={0: 5, 1: 7}), position(a={0: 15, 1: 7, 2: 3}))
    assert lag == {TopicPartition("a", 0): 10, TopicPartition("a", 1): 0, TopicPartition("a", 2): 3}


@pytest.mark.parametrize("latest", [None, "null", "None", "", "{"])
def test_lag_is_not_known_without_the_end(latest: str | None) -> None:
    """12:SP-39: the first batch after a restart has none."""
    assert lag_of(position(a={0: 5}), latest) is None


def test_lag_is_never_negative() -> None:
    assert lag_of(position(a={0: 9}), position(a={0: 5})) == {TopicPartition("a", 0): 0}


@pytest.mark.parametrize("told", [None, "0", '"text"', '{"logOffset": 3}', "nonsense"])
def test_positions_of_other_sources_are_none(told: str | None) -> None:
    assert parse_position(told) is None
