"""The fate of each key of an operator: used, ignored, refused."""

from pathlib import Path

import pytest

from odradek.broker.settings.fates import Fate, KeyFate, judge_settings
from odradek.errors import ConfigError


def fates(environment: dict[str, str] | None = None, **given: str) -> dict[str, KeyFate]:
    overrides = {name.replace("__", "."): text for name, text in given.items()}
    return {each.name: each for each in judge_settings(None, overrides, environment or {})}


def test_a_stronger_source_overrides(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1000\nnum.partitions=2\nbroker.id=1\nnode.id=1\n")
    judged = judge_settings(
        str(file), {"log.retention.hours": "1"}, {"ODRADEK_NUM_PARTITIONS": "3", "HOME": "/"}
    )
    assert [(each.name, each.source.name, each.fate, each.why) for each in judged] == [
        (
            "log.retention.ms",
            "FILE",
            Fate.IGNORED,
            "log.retention.hours of the command line is stronger",
        ),
        ("num.partitions", "FILE", Fate.IGNORED, "num.partitions of the environment is stronger"),
        ("broker.id", "FILE", Fate.USED, ""),
        ("node.id", "FILE", Fate.IGNORED, "broker.id is set, too, and stronger"),
        ("num.partitions", "ENVIRONMENT", Fate.USED, ""),
        ("log.retention.hours", "COMMAND_LINE", Fate.USED, ""),
    ]


def test_every_value_that_cannot_be_used_is_named() -> None:
    found = fates(num__partitions="x", log__segment__bytes="-1", super__users="a", offsets="1")
    assert {name for name, each in found.items() if each.fate is Fate.REFUSED} == {
        "num.partitions",
        "log.segment.bytes",
        "super.users",
    }
    assert found["offsets"].fate is Fate.IGNORED


def test_of_a_contradiction_the_key_to_change_is_named() -> None:
    found = fates(listeners="SSL://:1")
    missing = found["inter.broker.listener.name"]
    assert (missing.fate, missing.source.name, missing.value) == (Fate.REFUSED, "DEFAULT", None)


def test_certificates_are_loaded(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "broker.pem")
    found = fates(
        listeners="SSL://:1",
        security__inter__broker__protocol="SSL",
        ssl__keystore__type="PEM",
        ssl__keystore__location=nowhere,
    )
    assert found["ssl.keystore.location"].fate is Fate.REFUSED
    assert nowhere in str(found["ssl.keystore.location"])


@pytest.mark.parametrize(
    ("key", "text", "remark"),
    [
        ("min.insync.replicas", "2", "this broker is alone"),
        ("log.dirs", "/tmp/kafka-logs", "empty /tmp"),
        ("socket.send.buffer.bytes", "102400", "remove it"),
        ("zookeeper.connect", "z:2181", "joins the cluster of this ZooKeeper"),
        ("num.partitions", "2", ""),
    ],
)
def test_what_is_used_and_unwise_has_a_remark(key: str, text: str, remark: str) -> None:
    [each] = judge_settings(None, {key: text}, {})
    assert each.fate is Fate.USED
    assert remark in each.why
    assert bool(remark) is bool(each.why)


def test_a_cluster_may_ask_for_several_replicas() -> None:
    found = fates(min__insync__replicas="2", zookeeper__connect="z:2181")
    assert found["min.insync.replicas"].why == ""


def test_secrets_are_not_shown() -> None:
    found = fates(ssl__key__password="hush", super__users="hush", sasl__jaas__config="hush")
    assert "hush" not in str(found)


def test_a_listeners_own_setting_needs_the_listener() -> None:
    found = fates(listener__name__outside__max__connections="3")
    assert found["listener.name.outside.max.connections"].why == "there is no listener OUTSIDE"
    found = fates(listener__name__plaintext__max__connections="3")
    assert found["listener.name.plaintext.max.connections"].fate is Fate.USED


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="/nowhere/server"):
        judge_settings("/nowhere/server.properties", {}, {})
