"""Settings of consumers: defaults, forms of values, what does not go together."""

import pytest

from odradek.client.config import read_settings
from odradek.client.consumer.config import (
    CONSUMER_DEFINITION,
    ConsumerConfig,
    ResetPolicy,
    parse_duration_ms,
)
from odradek.client.consumer.consumer import Consumer
from odradek.errors import ConfigError

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


def configured(**keywords: object) -> ConsumerConfig:
    return read_settings(CONSUMER_DEFINITION, BOOTSTRAP, keywords).build(ConsumerConfig)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        pytest.param("group_id", None, id="CL-18"),
        pytest.param("auto_offset_reset", "latest", id="CL-18-reset"),
        ("enable_auto_commit", True),
        ("auto_commit_interval_ms", 5000),
        ("isolation_level", "read_uncommitted"),
        ("check_crcs", True),
        pytest.param("fetch_min_bytes", 1, id="CL-19"),
        ("fetch_max_wait_ms", 500),
        ("fetch_max_bytes", 52_428_800),
        ("max_partition_fetch_bytes", 1_048_576),
        ("max_poll_records", 500),
        ("client_rack", ""),
        pytest.param("session_timeout_ms", 45_000, id="CL-20"),
        ("heartbeat_interval_ms", 3_000),
        ("max_poll_interval_ms", 300_000),
        ("partition_assignment_strategy", ("range", "cooperative-sticky")),
        ("group_instance_id", None),
        ("group_protocol", "classic"),
    ],
)
def test_defaults_are_kafkas(key: str, default: object) -> None:
    """09:CL-18, 09:CL-19, 09:CL-20."""
    assert getattr(configured(), key) == default


def test_lists_may_be_text() -> None:
    config = configured(partition_assignment_strategy="sticky, roundrobin")
    assert config.partition_assignment_strategy == ("sticky", "roundrobin")


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, "below session.timeout.ms"),
        ({"auto_offset_reset": "smallest"}, "expected earliest"),
        ({"auto_offset_reset": "by_duration:1h"}, "no duration"),
        ({"isolation_level": "serializable"}, "read_committed"),
        ({"group_protocol": "consumer"}, "classic"),
        ({"group_id": ""}, "group.id"),
        ({"auto_ofset_reset": "latest"}, "did you mean auto.offset.reset"),
        ({"no_such_setting": 1}, "unknown"),
    ],
)
def test_bad_settings_are_told(keywords: dict[str, object], why: str) -> None:
    """09:CL-20."""
    with pytest.raises(ConfigError, match=why):
        configured(**keywords)


def test_a_consumer_refuses_bad_settings_before_it_begins() -> None:
    with pytest.raises(ConfigError, match="did you mean sticky"):
        Consumer(BOOTSTRAP, partition_assignment_strategy="stickyy")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1H", 3_600_000), ("P1D", 86_400_000), ("P1DT2H3M4.5S", 93_784_500), ("PT0.001S", 1)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds
    assert ResetPolicy.parse(f"by_duration:{text}") == ResetPolicy("by_duration", milliseconds)


@pytest.mark.parametrize("text", ["P", "PT", "1H", "PT1H ", "PT-1H", ""])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_ms(text)
