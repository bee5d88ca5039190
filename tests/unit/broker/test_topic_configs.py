"""Settings of topics: what counts, what is refused, what DescribeConfigs shows."""

import logging

import pytest

from odradek.broker.config import (
    TOPIC_DEFINITION,
    EffectiveTopicConfig,
    TopicConfig,
    TopicConfigs,
    load_broker_settings,
)
from odradek.config import Kind, SettingSource
from odradek.errors import ApiError, ErrorCode
from odradek.storage.log.config import LogConfig

# The topic keys Apache Kafka 3.9 and 4.3 have in common, with the defaults of 3.9.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def topic_configs(**broker: str) -> TopicConfigs:
    given = {name.replace("_", "."): text for name, text in broker.items()}
    return TopicConfigs(load_broker_settings(None, given, {}))


class TestWhatCounts:
    def test_without_any_setting_logs_have_their_defaults(self) -> None:
        configs = topic_configs()

        assert configs.log_config("t") == LogConfig()
        assert configs.default == EffectiveTopicConfig(TopicConfig(), LogConfig())
        assert configs.min_insync_replicas("t") == 1

    def test_the_brokers_keys_are_the_defaults(self) -> None:
        configs = topic_configs(log_roll_hours="1", message_max_bytes="5", min_insync_replicas="2")

        assert configs.log_config("t").segment_ms == 3_600_000
        assert configs.log_config("t").max_message_bytes == 5
        assert configs.min_insync_replicas("t") == 2

    def test_the_topics_own_beat_them(self) -> None:
        configs = topic_configs(log_retention_ms="1000", compression_type="zstd")
        configs.apply(
            "t",
            {
                "retention.ms": "-1",
                "compression.type": "gzip",
                "cleanup.policy": "compact, delete",
                "message.timestamp.type": "LogAppendTime",
                "unclean.leader.election.enable": "true",
            },
        )

        log = configs.log_config("t")
        assert (log.retention_ms, log.compression_type) == (-1, "gzip")
        assert log.cleanup_compact
        assert log.cleanup_delete
        assert log.log_append_time
        assert configs.get("t").unclean_leader_election
        assert configs.get("t").compression_type == "gzip"
        assert configs.log_config("other").compression_type == "zstd"

    def test_a_topic_that_sets_nothing_any_more_has_the_defaults(self) -> None:
        configs = topic_configs()
        configs.apply("t", {"segment.bytes": "1000"})

        configs.apply("t", {})

        assert configs.get("t") is configs.default

    def test_flush_ms_falls_back_to_the_schedulers_interval(self) -> None:
        assert topic_configs(log_flush_scheduler_interval_ms="77").log_config("t").flush_ms == 77

    def test_the_older_timestamp_key_counts_for_both_directions(self) -> None:
        """10, section 4: an alias where the two newer ones are at their defaults."""
        configs = topic_configs(log_message_timestamp_difference_max_ms="9")
        configs.apply("own", {"message.timestamp.difference.max.ms": "5"})
        configs.apply(
            "mixed",
            {
                "message.timestamp.difference.max.ms": "5",
                "message.timestamp.after.max.ms": "1",
            },
        )

        found = {
            topic: (log.timestamp_before_max_ms, log.timestamp_after_max_ms)
            for topic in ("t", "own", "mixed")
            for log in [configs.log_config(topic)]
        }
        assert found == {"t": (9, 9), "own": (5, 5), "mixed": (5, 1)}

    def test_equal_overrides_share_one_result(self) -> None:
        configs = topic_configs()

        first = configs.apply("a", {"segment.bytes": "1000", "retention.ms": "1"})
        second = configs.apply("b", {"retention.ms": "1", "segment.bytes": "1000"})

        assert first is second

    def test_new_defaults_of_the_broker_reach_every_topic(self) -> None:
        broker = load_broker_settings(None, {}, {})
        configs = TopicConfigs(broker)
        configs.apply("t", {"segment.bytes": "1000"})

        configs.use_broker(
            broker.with_dynamic(SettingSource.DYNAMIC_BROKER, {"log.retention.ms": "7"})
        )

        assert configs.log_config("t") == LogConfig(segment_bytes=1000, retention_ms=7)
        assert configs.log_config("other") == LogConfig(retention_ms=7)

    def test_what_a_topic_sets_outlives_changes_of_the_defaults(self) -> None:
        """15:KAFKA-9254: the default changes twice, a compacted topic must not turn to deletion."""
        broker = load_broker_settings(None, {}, {})
        configs = TopicConfigs(broker)
        configs.apply("table", {"cleanup.policy": "compact", "segment.bytes": "1000"})
        for retention in ("7", "8"):
            changed = {"log.retention.ms": retention, "log.segment.bytes": "5000"}
            broker = broker.with_dynamic(SettingSource.DYNAMIC_DEFAULT, changed)
            configs.use_broker(broker)

            table = configs.get("table")
            assert table.topic.cleanup_policy == ("compact",)
            assert (table.log.segment_bytes, table.log.retention_ms) == (1000, int(retention))
            assert configs.get("other").log.segment_bytes == 5000

    def test_compressed_batches_are_walked_unless_switched_off(self) -> None:
        configs = topic_configs(produce_validate_compressed="false")

        assert not configs.log_config("t").validate_compressed


class TestRefusals:
    @pytest.mark.parametrize(
        ("overrides", "message"),
        [
            ({"segment.bytes": "13"}, "segment.bytes='13': must be at least 14"),
            ({"retention.ms": "soon"}, "retention.ms='soon': expected a whole number"),
            ({"retention.mss": "1"}, "unknown key, did you mean retention.ms"),
            ({"log.retention.ms": "1"}, "is a broker's key; a topic has retention.ms"),
            ({"cleanup.policy": "shred"}, "each must be one of delete, compact"),
            ({"cleanup.policy": ""}, "must not be empty"),
            ({"compression.type": "none"}, "must be one of uncompressed"),
            ({"compression.gzip.level": "0"}, "must be -1 or 1 to 9"),
            ({"retention.ms": None}, "retention.ms: a topic's setting needs a value"),
            ({"remote.storage.enable": "true"}, "there is no tiered storage here"),
            ({"leader.replication.throttled.replicas": "1-2"}, "partition:broker"),
            (
                {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
                "max.compaction.lag.ms=4: must not be below min.compaction.lag.ms",
            ),
        ],
    )
    def test_a_request_is_refused_with_key_value_and_reason(
        self, overrides: dict[str, str | None], message: str
    ) -> None:
        with pytest.raises(ApiError, match=message) as refusal:
            topic_configs().check(overrides)

        assert refusal.value.code is ErrorCode.INVALID_CONFIG

    def test_throttled_replicas(self) -> None:
        for text in ("*", "", "0:1,12:3"):
            topic_configs().check({"leader.replication.throttled.replicas": text})

    def test_what_the_cluster_decided_is_taken_as_far_as_it_can_be(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        configs = topic_configs()

        with caplog.at_level(logging.ERROR):
            configs.apply("t", {"from.the.future": "1", "segment.bytes": "1000"})

        assert configs.log_config("t") == LogConfig(segment_bytes=1000)
        assert "Topic t has a setting that is ignored here: from.the.future" in caplog.text


class TestRows:
    def test_defaults_are_kafkas(self) -> None:
        rows = topic_configs().rows({})

        assert {row.name: row.value for row in rows} == KAFKA_DEFAULTS
        assert all(row.is_default and row.source == 5 for row in rows)
        assert not any(row.is_read_only or row.is_sensitive for row in rows)
        assert all(row.documentation for row in rows)

    def test_levels_end_with_the_brokers_key(self) -> None:
        """11, section 4: strongest first; a topic's last ones carry the broker's key."""
        configs = topic_configs(log_retention_minutes="1")

        row = next(r for r in configs.rows({"retention.ms": "5"}) if r.name == "retention.ms")

        assert (row.value, row.source, row.is_default) == ("5", 1, False)
        assert [tuple(synonym) for synonym in row.synonyms] == [
            ("retention.ms", "5", 1),
            ("log.retention.minutes", "1", 4),
        ]

    @pytest.mark.parametrize(
        ("name", "synonyms"),
        [
            ("flush.ms", []),
            ("retention.ms", []),
            ("segment.ms", []),
            ("segment.jitter.ms", []),
            ("leader.replication.throttled.replicas", []),
            ("remote.storage.enable", []),
            ("local.retention.ms", [("log.local.retention.ms", "-2", 5)]),
            ("local.retention.bytes", [("log.local.retention.bytes", "-2", 5)]),
            ("segment.bytes", [("log.segment.bytes", "1073741824", 5)]),
            ("min.insync.replicas", [("min.insync.replicas", "1", 5)]),
        ],
    )
    def test_synonyms_of_a_default_are_those_of_kafka(
        self, name: str, synonyms: list[tuple[str, str, int]]
    ) -> None:
        """As Apache Kafka 4.3.1 tells them of a topic without settings of its own."""
        row = next(row for row in topic_configs().rows({}) if row.name == name)
        assert [tuple(synonym) for synonym in row.synonyms] == synonyms

    def test_a_value_of_the_broker_is_shown_in_the_topics_unit(self) -> None:
        configs = topic_configs(log_retention_minutes="1")

        row = next(row for row in configs.rows({}) if row.name == "retention.ms")

        assert (row.value, row.source, row.is_default) == ("60000", 4, False)

    def test_kinds(self) -> None:
        assert TopicConfigs.kind("cleanup.policy") is Kind.LIST
        assert TopicConfigs.kind("segment.bytes") is Kind.INT
        assert TopicConfigs.kind("log.segment.bytes") is None
        assert TopicConfigs.kind("nothing") is None

    def test_every_topic_key_is_dynamic(self) -> None:
        keys = TOPIC_DEFINITION.fields[TopicConfig].values()

        assert {key.update.value for key in keys} == {"cluster-wide"}
