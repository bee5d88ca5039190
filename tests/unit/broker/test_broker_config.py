"""The settings a broker starts with: sources, refusals, warnings, listeners, dynamic changes."""

from pathlib import Path

import pytest

from odradek.broker.config import (
    BROKER_DEFINITION,
    KAFKA_KEYS,
    BrokerSettings,
    load_broker_settings,
)
from odradek.config import SettingSource
from odradek.errors import ConfigError
from odradek.storage.log.config import LogManagerConfig

# The last three are properties of Java in Kafka.
OURS = {
    "odradek.metrics.host",
    "odradek.metrics.port",
    "produce.validate.compressed",
    "java.security.auth.login.config",
    "zookeeper.sasl.client",
    "zookeeper.sasl.clientconfig",
}


def load(**overrides: str) -> BrokerSettings:
    given = {name.replace("__", "-").replace("_", "."): text for name, text in overrides.items()}
    return load_broker_settings(None, given, {})


class TestSources:
    def test_nothing_set_gives_kafkas_defaults(self) -> None:
        settings = load()

        assert settings.warnings == ()
        assert settings.node.id == 0
        assert settings.node.rack is None
        assert settings.log.log_manager_config(settings.cleaner) == LogManagerConfig()
        assert settings.topics.num_partitions == 1
        assert settings.topics.auto_create
        assert settings.replication.lag_time_max_ms == 30_000
        assert settings.requests.fetch_max_bytes == 57_671_680
        assert settings.requests.delete_records_purge_interval == 1
        assert (settings.quotas.window_count, settings.quotas.window_size_s) == (11, 1)
        assert settings.network.listeners == ("PLAINTEXT://127.0.0.1:9092",)
        assert settings.observability.port == -1

    def test_command_line_beats_environment_beats_file(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_text("num.partitions=2\nbroker.rack=a\nlog.dirs = /x, /y\n")

        settings = load_broker_settings(
            str(file),
            {"num.partitions": "4"},
            {"ODRADEK_NUM_PARTITIONS": "3", "ODRADEK_BROKER_RACK": "b", "PATH": "/bin"},
        )

        assert settings.topics.num_partitions == 4
        assert settings.node.rack == "b"
        assert settings.log.log_dirs == ("/x", "/y")

    def test_log_dir_counts_without_log_dirs(self) -> None:
        assert load(log_dir="/data").log.log_dirs == ("/data",)
        assert load(log_dir="/data", log_dirs="/a,/b").log.log_dirs == ("/a", "/b")

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"configuration file=.*nothing.*No such file"):
            load_broker_settings(str(tmp_path / "nothing"), {}, {})

    def test_a_file_that_is_no_text_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_bytes(b"broker.id=1\n\xff\xfe")

        with pytest.raises(ConfigError, match="byte 12 is not UTF-8"):
            load_broker_settings(str(file), {}, {})


class TestNames:
    def test_unknown_names_are_warnings_with_a_suggestion(self) -> None:
        settings = load_broker_settings(
            None, {"num.partition": "3", "no.such.thing": "1"}, {"ODRADEK_BROKER_RAK": "x"}
        )

        assert set(settings.warnings) == {
            "num.partition: unknown key, did you mean num.partitions?",
            "no.such.thing: unknown key",
            "ODRADEK_BROKER_RAK: unknown key, did you mean ODRADEK_BROKER_RACK?",
        }

    def test_kafkas_names_that_mean_nothing_here_are_warnings(self) -> None:
        settings = load_broker_settings(
            None,
            {
                "group.coordinator.threads": "0",
                "listener.name.sasl_ssl.plain.sasl.login.read.timeout.ms": "9",
            },
            {"ODRADEK_METRIC_REPORTERS": "x"},
        )

        assert set(settings.warnings) == {
            "group.coordinator.threads: has no effect here",
            "listener.name.sasl_ssl.plain.sasl.login.read.timeout.ms: has no effect here",
            "ODRADEK_METRIC_REPORTERS: has no effect here",
        }

    def test_variables_of_the_projects_tools_are_no_settings(self) -> None:
        others = ("ODRADEK_CACHE", "ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_PROFILE")
        assert load_broker_settings(None, {}, dict.fromkeys(others, "x")).warnings == ()

    def test_a_topics_name_is_none_of_the_brokers(self) -> None:
        assert load(retention_ms="5").warnings == (
            "retention.ms: unknown key, did you mean log.retention.ms?",
        )

    def test_every_declared_key_is_kafkas_or_known_to_be_ours(self) -> None:
        assert set(BROKER_DEFINITION.keys) - KAFKA_KEYS == OURS

    def test_a_whole_real_file_starts_a_broker(self, tmp_path: Path) -> None:
        file = tmp_path / "server.properties"
        file.write_text(
            "broker.id=0\nnum.network.threads=3\nnum.io.threads=8\n"
            "socket.send.buffer.bytes=102400\nlog.dirs=/tmp/kafka-logs\n"
            "num.recovery.threads.per.data.dir=1\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.min.isr=1\nlog.retention.hours=168\n"
            "zookeeper.connection.timeout.ms=18000\ngroup.initial.rebalance.delay.ms=0\n"
        )

        assert load_broker_settings(str(file), {}, {}).warnings == ()


REFUSED = [
    pytest.param({"num.partitions": "0"}, "num.partitions='0': must be at least 1", id="range"),
    pytest.param({"num.partitions": "two"}, "num.partitions='two': expected a whole", id="number"),
    pytest.param(
        {"log.retention.hours": "0"}, "log.retention.hours='?0'?: must be -1 or", id="hours"
    ),
    pytest.param({"process.roles": "broker"}, "quorum is not supported yet", id="quorum"),
    pytest.param({"broker.id": "1", "node.id": "2"}, "node.id=2: broker.id is 1", id="two-ids"),
    pytest.param({"log.dirs": "/a,/a"}, "log.dirs='/a,/a': must be a list of diff", id="same-dirs"),
    pytest.param(
        {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
        "log.cleaner.max.compaction.lag.ms=4: must not be below",
        id="compaction-lags",
    ),
    pytest.param(
        {"replica.fetch.wait.max.ms": "40000"},
        "replica.fetch.wait.max.ms=40000: must not be above replica.lag.time.max.ms",
        id="fetch-wait",
    ),
    pytest.param({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "is given twice", id="twice"),
    pytest.param(
        {
            "listeners": "A://:9092,B://:9092",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        },
        "has the same port",
        id="same-port",
    ),
    pytest.param({"listeners": "X://h:1"}, "does not say what X speaks", id="unmapped"),
    pytest.param({"listeners": "PLAINTEXT://::1:9"}, "IPv6 host in brackets", id="bare-ipv6"),
    pytest.param(
        {"listeners": "SASL_PLAINTEXT://h:1", "inter.broker.listener.name": "SASL_PLAINTEXT"},
        "SASL, which is not supported yet",
        id="sasl",
    ),
    pytest.param(
        {"listeners": "PLAINTEXT://h:1,SSL://h:2"},
        "ssl.keystore.location=None: required: listener SSL speaks TLS",
        id="tls-without-key",
    ),
    pytest.param(
        {"listeners": "PLAINTEXT://:1", "advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
        "no peer can connect to that address",
        id="any-host",
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_bad_values_refuse_the_start(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_broker_settings(None, given, {})


class TestListeners:
    def test_ipv6_any_port_and_all_interfaces(self) -> None:
        settings = load_broker_settings(
            None,
            {
                "listeners": "PLAINTEXT://[::1]:0, EXTERNAL://:9093",
                "advertised.listeners": "PLAINTEXT://[::1]:0,EXTERNAL://broker.example:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
            },
            {},
        )

        first, second = settings.network.endpoints
        assert (first.host, first.port) == ("::1", 0)
        assert (second.host, second.port) == ("", 9093)
        assert settings.network.advertised_endpoints[1].host == "broker.example"

    def test_limits_of_one_listener(self) -> None:
        settings = load_broker_settings(
            None, {"max.connections": "100", "listener.name.plaintext.max.connections": "7"}, {}
        )

        assert settings.network.max_connections == 100
        assert settings.listener_limits("PLAINTEXT").max_connections == 7
        assert settings.listener_limits("OTHER").max_connections == 2**31 - 1

    def test_tls_of_one_listener(self) -> None:
        settings = load_broker_settings(
            None,
            {
                "listeners": "PLAINTEXT://h:1,SSL://h:2",
                "listener.name.ssl.ssl.keystore.location": "/k.pem",
            },
            {},
        )

        assert settings.tls("SSL").keystore_location == "/k.pem"
        assert settings.tls("PLAINTEXT").keystore_location is None


class TestInternalTopics:
    def test_factors_nobody_set_fit_the_cluster(self) -> None:
        lines: list[str] = []

        fitting = load().fitting_internal_topics(1, on_lowered=lines.append)

        assert fitting.offsets_replication_factor == 1
        assert fitting.transactions_replication_factor == 1
        assert fitting.transactions_min_isr == 1
        assert fitting.offsets_partitions == 50
        assert len(lines) == 1
        assert lines[0].startswith("offsets.topic.replication.factor, ")

    def test_a_factor_that_was_set_is_never_lowered(self) -> None:
        settings = load(offsets_topic_replication_factor="3")

        fitting = settings.fitting_internal_topics(1)

        assert fitting.offsets_replication_factor == 3
        assert fitting.transactions_replication_factor == 1

    def test_enough_brokers_change_nothing(self) -> None:
        lines: list[str] = []

        fitting = load().fitting_internal_topics(5, on_lowered=lines.append)

        assert fitting == load().internal_topics
        assert lines == []


class TestDynamic:
    def test_a_change_makes_new_settings(self) -> None:
        before = load()

        after = before.with_dynamic(SettingSource.DYNAMIC_DEFAULT, {"log.retention.ms": "1000"})

        assert after.topic_defaults.retention_ms == 1000
        assert before.topic_defaults.retention_ms == 604_800_000

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("broker.rack", "x", "cannot be changed while the broker runs"),
            ("no.such", "x", "unknown key"),
            ("num.io.threads", "100", "at most twice the current 8"),
            ("log.segment.bytes", "1", "must be at least 14"),
        ],
    )
    def test_what_cannot_be_changed_is_refused(self, name: str, value: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load().with_dynamic(SettingSource.DYNAMIC_BROKER, {name: value})


class TestRows:
    def test_a_row_tells_everything(self) -> None:
        settings = load(log_retention_hours="2").with_dynamic(
            SettingSource.DYNAMIC_DEFAULT, {"log.retention.ms": "5"}
        )

        row = next(row for row in settings.rows() if row.name == "log.retention.ms")

        assert (row.value, row.source, row.is_default, row.is_read_only) == ("5", 3, False, False)
        assert row.type == 5
        assert [tuple(synonym) for synonym in row.synonyms] == [
            ("log.retention.ms", "5", 3),
            ("log.retention.hours", "2", 4),
        ]

    @pytest.mark.parametrize(
        "name", ["log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"]
    )
    def test_the_default_of_a_weaker_name_is_no_synonym(self, name: str) -> None:
        """As Apache Kafka 4.3.1 tells it."""
        row = next(row for row in load().rows() if row.name == name)
        assert row.synonyms == ()

    @pytest.mark.parametrize(
        "name",
        [
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "transaction.state.log.min.isr",
        ],
    )
    def test_a_factor_that_was_lowered_is_shown_as_it_counts(self, name: str) -> None:
        row = next(row for row in load().rows() if row.name == name)
        assert (row.value, row.source, row.is_default) == ("1", 5, True)
        assert [tuple(synonym) for synonym in row.synonyms] == [(name, "1", 5)]
        given = load_broker_settings(None, {name: "3"}, {})
        row = next(row for row in given.rows() if row.name == name)
        assert (row.value, row.source) == ("3", 4)

    def test_every_key_has_a_row(self) -> None:
        assert [row.name for row in load().rows()] == sorted(BROKER_DEFINITION.keys)

    def test_secrets_stay_hidden_and_fixed_keys_are_read_only(self) -> None:
        given = {
            "listeners": "PLAINTEXT://h:1,SSL://h:2",
            "ssl.keystore.location": "/k.pem",
            "ssl.key.password": "xyzzy",
        }
        rows = {row.name: row for row in load_broker_settings(None, given, {}).rows()}

        secret = rows["ssl.key.password"]
        assert secret.is_sensitive
        assert secret.value is None
        assert [synonym.value for synonym in secret.synonyms] == [None]
        assert rows["broker.id"].is_read_only
        assert "xyzzy" not in repr(rows)

    def test_the_clusters_defaults_are_those_that_are_set(self) -> None:
        settings = (
            load()
            .with_dynamic(SettingSource.DYNAMIC_DEFAULT, {"log.retention.ms": "5"})
            .with_dynamic(SettingSource.DYNAMIC_BROKER, {"log.retention.ms": "7"})
        )

        rows = settings.cluster_default_rows()

        assert [(row.name, row.value, row.source) for row in rows] == [("log.retention.ms", "5", 3)]
