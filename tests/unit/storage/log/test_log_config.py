"""Settings of a log: defaults, checks, and what is made of them."""

from dataclasses import replace

import pytest

from odradek.errors import ConfigError
from odradek.storage.log.config import INT64_MAX, LogConfig


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("segment_bytes", 13, "segment.bytes"),
        ("segment_bytes", 1 << 31, "segment.bytes"),
        ("segment_index_bytes", 3, "segment.index.bytes"),
        ("index_interval_bytes", -1, "index.interval.bytes"),
        ("cleanup_policy", (), "cleanup.policy"),
        ("timestamp_type", "Now", "message.timestamp.type"),
    ],
)
def test_a_value_that_no_log_could_honour_is_refused(field: str, value: object, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        replace(LogConfig(), **{field: value})  # type: ignore[arg-type]  # Some are of a wrong kind.

    assert refused.value.key == key


@pytest.mark.parametrize(
    ("policy", "deletes", "compacts"),
    [
        (("delete",), True, False),
        (("compact",), False, True),
        (("compact", "delete"), True, True),
    ],
)
def test_the_cleanup_policy_as_two_answers(
    policy: tuple[str, ...], deletes: bool, compacts: bool
) -> None:
    config = LogConfig(cleanup_policy=policy)

    assert (config.cleanup_delete, config.cleanup_compact) == (deletes, compacts)


def test_a_compacted_log_rolls_in_time_for_its_records_to_be_compacted() -> None:
    compacted = LogConfig(segment_ms=1000, max_compaction_lag_ms=10, cleanup_policy=("compact",))

    assert compacted.roll_ms == 10
    assert replace(compacted, cleanup_policy=("delete",)).roll_ms == 1000
    assert replace(compacted, max_compaction_lag_ms=INT64_MAX).roll_ms == 1000


def test_what_is_made_of_settings_follows_a_change_and_counts_for_nothing_else() -> None:
    config = LogConfig()
    changed = replace(config, timestamp_type="LogAppendTime")

    assert (config.log_append_time, changed.log_append_time) == (False, True)
    assert config != changed
    assert config == replace(changed, timestamp_type="CreateTime")
    assert "log_append_time" not in repr(config)
