"""Declarations: what they give, and which mistakes in them are found at once."""

from dataclasses import dataclass

import pytest

from odradek.config import AtLeast, Definition, EachOneOf, Kind, NonEmpty, Update, key, synonym
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
    with pytest.raises(TypeError, match="does not tell the kind"):
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
