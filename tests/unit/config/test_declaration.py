"""Declarations: what they give, and which mistakes in them are found at once."""

from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from odradek.config import (
    AtLeast,
    Definition,
    EachOneOf,
    Kind,
    NonEmpty,
    Settings,
    SettingSource,
    Update,
    check_declared,
    inherited_key,
    key,
    keys_of,
    plain_field,
    synonym,
)
from odradek.errors import ConfigError
from tests.unit.config.declared_configs import LogConfig, SocketConfig, TopicConfig


def test_a_class_without_configuration_holds_the_defaults() -> None:
    config = LogConfig()
    assert config.segment_bytes == 1 << 30
    assert config.retention_ms == 168 * 3_600_000
    assert config.directories == ("/tmp/kafka-logs",)
    assert LogConfig(segment_bytes=5).segment_bytes == 5


def test_a_required_key_has_no_default() -> None:
    with pytest.raises(TypeError, match="broker_id"):
        SocketConfig()
    assert SocketConfig(broker_id=1).threads == 3


def test_the_definition_knows_every_name() -> None:
    keys = Definition(LogConfig, SocketConfig).keys
    assert keys["log.segment.bytes"].update is Update.CLUSTER_WIDE
    assert keys["log.segment.bytes"].kind is Kind.INT
    assert keys["broker.id"].update is Update.READ_ONLY
    assert keys["listeners"].update is Update.PER_BROKER
    assert keys["log.retention.hours"].default == 168
    assert keys["log.retention.hours"].kind is Kind.INT
    assert keys["log.dir"].kind is Kind.LIST
    assert keys["log.dir"].doc == "One directory."
    assert keys["log.retention.minutes"].doc == "Used if log.retention.ms is not set."
    assert keys["idle.ratio"].kind is Kind.DOUBLE
    assert keys["auto.create.topics.enable"].kind is Kind.BOOLEAN
    assert keys["ssl.keystore.password"].is_sensitive


def test_a_synonym_may_be_a_key_declared_elsewhere() -> None:
    keys = Definition(TopicConfig, LogConfig).keys
    assert keys["log.segment.bytes"].default == 1 << 30
    assert keys["log.retention.hours"].default == 168


def test_environment_names() -> None:
    definition = Definition(LogConfig)
    assert definition.by_environment["ODRADEK_LOG_SEGMENT_BYTES"].name == "log.segment.bytes"


def test_listener_prefixes_are_known_where_declared() -> None:
    definition = Definition(LogConfig, SocketConfig)
    found = definition.find("listener.name.internal.ssl.keystore.password")
    assert found is not None
    assert found.name == "ssl.keystore.password"
    assert definition.find("listener.name.internal.log.segment.bytes") is None
    assert definition.find("listener.name.internal") is None


def test_a_field_must_be_declared_with_key() -> None:
    @dataclass(frozen=True)
    class Plain:
        size: int = 5

    with pytest.raises(TypeError, match=r"Plain\.size is not declared with key"):
        Definition(Plain)


def test_the_annotation_must_fit_the_kind() -> None:
    @dataclass(frozen=True)
    class Wrong:
        size: str = key("size", default=5, doc="")

    with pytest.raises(TypeError, match=r"Wrong\.size.*cannot hold size, which is INT"):
        Definition(Wrong)


def test_a_default_must_tell_its_kind() -> None:
    with pytest.raises(TypeError, match="implies no kind"):
        key("size", default=None, doc="")


def test_a_default_must_pass_its_own_checks() -> None:
    with pytest.raises(ConfigError, match="size=5: must be at least 10"):
        key("size", default=5, at_least=10, doc="")
    with pytest.raises(ConfigError, match="between"):
        key("size", default=1 << 31, doc="")


def test_one_key_one_declaration() -> None:
    @dataclass(frozen=True)
    class Same:
        bytes_per_segment: int = key(
            "log.segment.bytes",
            default=1 << 30,
            at_least=14,
            dynamic=True,
            doc="Size of a segment.",
        )

    @dataclass(frozen=True)
    class Other:
        segment_bytes: int = key("log.segment.bytes", default=5, doc="")

    Definition(LogConfig, Same)
    with pytest.raises(TypeError, match=r"log\.segment\.bytes is declared twice"):
        Definition(LogConfig, Other)


def test_environment_variables_are_unique() -> None:
    @dataclass(frozen=True)
    class Twins:
        first: int = key("a.b", default=5, doc="")
        second: int = key("a-b", default=5, doc="")

    with pytest.raises(TypeError, match="same environment variable"):
        Definition(Twins)


@pytest.mark.parametrize(("hours", "ms"), [(0, 0), (2, 7_200_000), (-1, -1), (-5, -1)])
def test_synonyms_are_converted(hours: int, ms: int) -> None:
    assert synonym("hours", scale=3_600_000).convert(hours) == ms


def test_descriptions_for_the_reference() -> None:
    assert str(AtLeast(14)) == "at least 14"
    assert str(NonEmpty()) == "not empty"
    assert str(EachOneOf(("a", "b"))) == "any of a, b"


def test_list_checks() -> None:
    each = EachOneOf(("delete", "compact"))
    assert each.why_not(("delete", "compact")) is None
    assert each.why_not(("delete", "shrink")) == "each must be one of delete, compact"
    assert NonEmpty().why_not(("a", "")) is not None
    assert NonEmpty().why_not(()) is not None
    assert NonEmpty().why_not("") == "must not be empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritingConfig:
    """What a topic may set."""

    segment_ms: int = inherited_key(
        "segment.ms",
        broker="log.roll.ms",
        kind=Kind.LONG,
        default=None,
        at_least=1,
        synonyms=(synonym("log.roll.hours", kind=Kind.INT, scale=3_600_000, default=168),),
        doc="Age.",
    )
    retention_bytes: int = inherited_key(
        "retention.bytes",
        broker="log.retention.bytes",
        topic_checks=(AtLeast(-1),),
        default=10,
        at_least=0,
        doc="Size.",
    )
    codec: str = inherited_key("codec", broker="codec", default="none", doc="Codec.")
    own: str = key("own", default="", doc="Only for topics.")
    is_checked: bool = plain_field(True)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.retention_bytes * 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedConfig(InheritingConfig):
    """The broker's defaults of it."""

    declares_defaults: ClassVar[bool] = True


class TestOneDeclarationForATopicAndItsBroker:
    def test_a_topic_has_the_brokers_key_as_a_synonym_with_its_default(self) -> None:
        keys = keys_of(InheritingConfig)

        assert [keys[name].name for name in keys] == [
            "segment.ms",
            "retention.bytes",
            "codec",
            "own",
        ]
        assert keys["segment_ms"].default is None
        assert [weaker.name for weaker in keys["segment_ms"].synonyms] == [
            "log.roll.ms",
            "log.roll.hours",
        ]
        assert keys["retention_bytes"].synonyms[0].default == 10
        assert keys["codec"].default == "none"
        assert InheritingConfig().segment_ms == 604_800_000

    def test_the_derived_class_declares_the_brokers_keys(self) -> None:
        keys = keys_of(InheritedConfig)

        assert [keys[name].name for name in keys] == ["log.roll.ms", "log.retention.bytes", "codec"]
        assert keys["segment_ms"].checks == keys_of(InheritingConfig)["segment_ms"].checks

    def test_a_topic_may_have_checks_of_its_own(self) -> None:
        assert keys_of(InheritingConfig)["retention_bytes"].parse("-1") == -1
        with pytest.raises(ConfigError, match=r"log\.retention\.bytes=.*at least 0"):
            keys_of(InheritedConfig)["retention_bytes"].parse("-1")

    def test_both_sides_are_built_from_the_same_settings(self) -> None:
        definition = Definition(InheritedConfig, InheritingConfig)
        settings = Settings(definition, {SettingSource.FILE: {"log.roll.hours": 1}})
        topic = settings.with_layer(SettingSource.DYNAMIC_TOPIC, {"retention.bytes": "7"})

        assert settings.build(InheritedConfig).segment_ms == 3_600_000
        assert topic.build(InheritingConfig) == InheritingConfig(
            segment_ms=3_600_000, retention_bytes=7
        )
        assert topic.build(InheritingConfig).size == 14

    def test_values_given_by_hand_are_held_to_the_checks(self) -> None:
        check_declared(InheritingConfig(retention_bytes=-1))
        with pytest.raises(ConfigError, match=r"segment\.ms=0: must be at least 1"):
            check_declared(InheritingConfig(segment_ms=0))
        with pytest.raises(ConfigError, match=r"log\.retention\.bytes=-1: must be at least 0"):
            check_declared(InheritedConfig(retention_bytes=-1))
