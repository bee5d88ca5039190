"""Sources are merged by strength; errors name key, value and reason; updates know their limits."""

import itertools
from collections.abc import Mapping

import pytest

from odradek.config import Definition, Password, Settings, SettingSource, parse_properties
from odradek.errors import ConfigError
from tests.unit.config.declared_configs import LogConfig, SocketConfig, TopicConfig

BROKER = Definition(LogConfig, SocketConfig)


def from_file(**properties: object) -> Settings:
    return Settings(
        BROKER, {SettingSource.FILE: {k.replace("_", "."): v for k, v in properties.items()}}
    )


def test_a_component_gets_its_own_class() -> None:
    settings = Settings.from_sources(
        BROKER,
        file=parse_properties("log.segment.bytes = 1024\nlog.dirs=/a, /b\nbroker.id=7"),
    )
    assert settings.build(LogConfig) == LogConfig(segment_bytes=1024, directories=("/a", "/b"))
    assert settings.build(SocketConfig).broker_id == 7
    assert settings.unknown == ()
    settings.check()


def test_every_source_beats_the_weaker_ones() -> None:
    order = [
        SettingSource.FILE,
        SettingSource.ENVIRONMENT,
        SettingSource.COMMAND_LINE,
        SettingSource.DYNAMIC_DEFAULT,
        SettingSource.DYNAMIC_BROKER,
        SettingSource.DYNAMIC_TOPIC,
    ]
    for weak, strong in itertools.combinations(order, 2):
        settings = Settings(
            BROKER, {strong: {"num.network.threads": 9}, weak: {"num.network.threads": 5}}
        )
        setting = settings.get("num.network.threads")
        assert (setting.value, setting.source) == (9, strong)
        assert [level.value for level in setting.levels] == [9, 5, 3]


def test_start_up_sources() -> None:
    settings = Settings.from_sources(
        BROKER,
        file={"num.network.threads": "4", "broker.id": "1", "idle.ratio": "0.25"},
        environment={"ODRADEK_NUM_NETWORK_THREADS": "5", "ODRADEK_BROKER_ID": "2", "HOME": "/"},
        command_line={"num.network.threads": "6"},
    )
    config = settings.build(SocketConfig)
    assert (config.threads, config.broker_id, config.idle_ratio) == (6, 2, 0.25)
    assert settings.get("broker.id").source is SettingSource.ENVIRONMENT


def test_none_is_unset() -> None:
    assert (
        Settings(BROKER, {SettingSource.FILE: {"num.network.threads": None}})
        .get("num.network.threads")
        .source
        is SettingSource.DEFAULT
    )


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, 300_000),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"},
            7,
        ),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_within_one_source_the_finer_name_counts(
    properties: Mapping[str, object], retention_ms: int
) -> None:
    settings = Settings(BROKER, {SettingSource.FILE: properties})
    assert settings.build(LogConfig).retention_ms == retention_ms


def test_a_stronger_source_counts_under_whatever_name() -> None:
    settings = Settings(
        BROKER,
        {
            SettingSource.FILE: {"log.retention.ms": 1000, "log.retention.hours": 2},
            SettingSource.COMMAND_LINE: {"log.retention.hours": 1},
        },
    )
    setting = settings.get("log.retention.ms")
    assert setting.value == 3_600_000
    assert [(level.name, level.source, level.value) for level in setting.levels] == [
        ("log.retention.hours", SettingSource.COMMAND_LINE, 1),
        ("log.retention.ms", SettingSource.FILE, 1000),
        ("log.retention.hours", SettingSource.FILE, 2),
        ("log.retention.hours", SettingSource.DEFAULT, 168),
    ]


def test_one_directory_or_several() -> None:
    assert from_file(log_dir="/one").build(LogConfig).directories == ("/one",)
    assert from_file(log_dir="/one", log_dirs="/a,/b").build(LogConfig).directories == ("/a", "/b")


def test_topics_fall_back_to_the_brokers_keys() -> None:
    broker = Settings(
        Definition(TopicConfig, LogConfig), {SettingSource.FILE: {"log.retention.hours": 1}}
    )
    topic = broker.with_dynamic(
        SettingSource.DYNAMIC_TOPIC, {"segment.bytes": "2048"}, config_class=TopicConfig
    )
    assert topic.build(TopicConfig) == TopicConfig(retention_ms=3_600_000, segment_bytes=2048)
    levels = topic.get("segment.bytes").levels
    assert [(level.name, level.source, level.value) for level in levels] == [
        ("segment.bytes", SettingSource.DYNAMIC_TOPIC, 2048),
        ("log.segment.bytes", SettingSource.DEFAULT, 1 << 30),
    ]
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes.*unknown key"):
        broker.with_dynamic(
            SettingSource.DYNAMIC_TOPIC, {"log.segment.bytes": "2048"}, config_class=TopicConfig
        )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log.segment.bytes", "big", "log.segment.bytes='big': expected a whole number of 32 bits"),
        ("log.segment.bytes", "13", "log.segment.bytes='13': must be at least 14"),
        ("num.network.threads", "0", "num.network.threads='0': must be between 1 and 100"),
        ("log.cleanup.policy", "x", "log.cleanup.policy='x': must be one of delete, compact"),
        ("log.dirs", "", "log.dirs='': must not be empty or have empty items"),
        ("log.dirs", "/a,,/b", "log.dirs='/a,,/b': must not be empty or have empty items"),
        ("log.retention.ms", "0", "log.retention.ms='0': must be -1 or at least 1"),
        ("log.retention.hours", "0", "log.retention.hours=0: must be -1 or at least 1"),
        ("log.roll.hours", "-1", "log.roll.hours=-1: must be at least 1"),
        ("auto.create.topics.enable", "on", "auto.create.topics.enable='on': expected true or"),
    ],
)
def test_a_bad_value_is_named_with_its_reason(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(BROKER, {SettingSource.FILE: {name: value}})
    assert str(caught.value).startswith(message)
    assert caught.value.key == name


def test_a_bad_value_is_refused_even_if_it_does_not_count() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        Settings(
            BROKER,
            {
                SettingSource.FILE: {"log.segment.bytes": "bad"},
                SettingSource.COMMAND_LINE: {"log.segment.bytes": "1000"},
            },
        )


def test_a_secret_is_not_shown_in_errors() -> None:
    for raw in ("abc", 12345):
        with pytest.raises(ConfigError) as caught:
            Settings(BROKER, {SettingSource.FILE: {"ssl.keystore.password": raw}})
        assert str(raw) not in str(caught.value)
        assert "[hidden]" in str(caught.value)


def test_a_missing_required_key() -> None:
    with pytest.raises(ConfigError, match=r"broker\.id.*required"):
        Settings(BROKER).build(SocketConfig)


def test_combinations_are_checked_by_the_class() -> None:
    with pytest.raises(ConfigError, match=r"must be at least socket\.request\.max\.bytes, 1000"):
        from_file(broker_id=1, queued_max_request_bytes=999).check()


def test_unknown_keys_are_reported_by_name_with_the_nearest() -> None:
    settings = Settings.from_sources(
        BROKER,
        file={"log.segmnt.bytes": "5", "zzz": "1"},
        environment={"ODRADEK_LOG_SEGMENT_BYTE": "5", "ODRADEK_HOME": "/", "ODRADEK_PURE": "1"},
        reserved_variables=["ODRADEK_PURE"],
    )
    assert [(each.name, each.source, each.suggestion) for each in settings.unknown] == [
        ("log.segmnt.bytes", SettingSource.FILE, "log.segment.bytes"),
        ("zzz", SettingSource.FILE, None),
        ("ODRADEK_LOG_SEGMENT_BYTE", SettingSource.ENVIRONMENT, "ODRADEK_LOG_SEGMENT_BYTES"),
        ("ODRADEK_HOME", SettingSource.ENVIRONMENT, None),
    ]
    assert [each.value for each in settings.unknown] == list(map(Password, "515/"))
    assert str(settings.unknown[0]) == (
        "log.segmnt.bytes: unknown key, did you mean log.segment.bytes?"
    )
    assert str(settings.unknown[1]) == "zzz: unknown key"
    assert settings.build(LogConfig) == LogConfig()


def test_listener_overrides_beat_the_plain_key_from_any_source() -> None:
    settings = Settings(
        BROKER,
        {
            SettingSource.FILE: {
                "broker.id": 1,
                "listener.name.internal.ssl.keystore.password": "inside",
            },
            SettingSource.DYNAMIC_BROKER: {"ssl.keystore.password": "plain"},
        },
    )
    internal = settings.build(SocketConfig, listener="INTERNAL")
    assert internal.keystore_password == Password("inside")
    assert settings.build(SocketConfig, listener="EXTERNAL").keystore_password == Password("plain")
    assert settings.build(SocketConfig).keystore_password == Password("plain")


@pytest.mark.parametrize(
    ("source", "name", "value", "why"),
    [
        (SettingSource.DYNAMIC_BROKER, "broker.id", "2", "cannot be changed while the broker runs"),
        (
            SettingSource.DYNAMIC_DEFAULT,
            "log.roll.ms",
            "2",
            "cannot be changed while the broker runs",
        ),
        (SettingSource.DYNAMIC_DEFAULT, "listeners", "x", "for one broker only"),
        (
            SettingSource.DYNAMIC_DEFAULT,
            "listener.name.a.ssl.keystore.password",
            "secret",
            "for one broker only",
        ),
        (
            SettingSource.DYNAMIC_BROKER,
            "num.network.thread",
            "2",
            "did you mean num.network.threads",
        ),
        (SettingSource.DYNAMIC_BROKER, "zzz", "2", "unknown key"),
        (SettingSource.DYNAMIC_BROKER, "num.network.threads", "101", "must be between"),
    ],
)
def test_refused_updates(source: SettingSource, name: str, value: str, why: str) -> None:
    settings = from_file(broker_id=1)
    with pytest.raises(ConfigError, match=why) as caught:
        settings.with_dynamic(source, {name: value})
    assert caught.value.key == name
    assert "secret" not in str(caught.value)


def test_updates_make_new_settings_and_tell_what_changed() -> None:
    before = from_file(broker_id=1, log_retention_ms=5)
    after = before.with_dynamic(
        SettingSource.DYNAMIC_DEFAULT, {"log.retention.ms": "9"}
    ).with_dynamic(
        SettingSource.DYNAMIC_BROKER,
        {
            "num.network.threads": "8",
            "listener.name.internal.ssl.keystore.password": "secret",
            "log.segment.bytes": str(1 << 30),
        },
    )
    assert before.build(SocketConfig).threads == 3
    assert after.build(SocketConfig).threads == 8
    assert after.changed_keys(before) == (
        "listener.name.internal.ssl.keystore.password",
        "log.retention.ms",
        "num.network.threads",
    )
    undone = after.with_dynamic(SettingSource.DYNAMIC_BROKER, {})
    assert undone.changed_keys(before) == ("log.retention.ms",)
    assert before.changed_keys(before) == ()


def test_replacing_a_layer_forgets_its_unknown_keys() -> None:
    settings = Settings(
        BROKER, {SettingSource.FILE: {"zzz": "1"}, SettingSource.COMMAND_LINE: {"yyy": "1"}}
    )
    replaced = settings.with_layer(SettingSource.FILE, {"xxx": "1"})
    assert [unknown.name for unknown in replaced.unknown] == ["yyy", "xxx"]


def test_an_undeclared_name_is_our_bug() -> None:
    with pytest.raises(KeyError):
        Settings(BROKER).get("zzz")
