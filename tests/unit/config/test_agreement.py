"""Settings that the brokers of a cluster must share."""

from dataclasses import dataclass

import pytest

from odradek.broker.config import BROKER_DEFINITION
from odradek.config import (
    Definition,
    Kind,
    Password,
    SettingDifference,
    Settings,
    SettingSource,
    agreed_values,
    differences,
    key,
    synonym,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedConfig:
    """A setting of a broker's own, and two that all brokers share."""

    threads: int = key("io.threads", default=8, doc="Threads.")
    partitions: int = key("offsets.partitions", default=50, agreed=True, doc="Partitions.")
    retention_ms: int = key(
        "retention.ms",
        kind=Kind.LONG,
        default=None,
        synonyms=(synonym("retention.hours", kind=Kind.INT, scale=3_600_000, default=168),),
        agreed=True,
        doc="Age.",
    )


def told_by(**given: object) -> dict[str, str | None]:
    file = {name.replace("_", "."): value for name, value in given.items()}
    return agreed_values(Settings(Definition(SharedConfig), {SettingSource.FILE: file}))


def test_a_broker_tells_what_counts_for_agreed_keys_alone() -> None:
    told = told_by(io_threads=3, retention_hours=2)

    assert told == {"offsets.partitions": "50", "retention.ms": "7200000"}


def test_brokers_that_agree_may_differ_in_what_is_their_own() -> None:
    ours, theirs = told_by(io_threads=3, retention_hours=1), told_by(retention_ms=3_600_000)

    assert differences(ours, theirs) == ()


def test_differing_keys_are_named_with_both_values() -> None:
    found = differences(told_by(), told_by(offsets_partitions=10, retention_ms=-1))

    assert found == (
        SettingDifference("offsets.partitions", "50", "10"),
        SettingDifference("retention.ms", "604800000", "-1"),
    )
    assert str(found[0]) == "offsets.partitions: '50' here, '10' there"


def test_a_key_that_only_one_broker_knows_differs() -> None:
    ours = told_by()

    assert differences(ours, {**ours, "new.key": None}) == (
        SettingDifference("new.key", None, None),
    )
    found = differences(ours, {"retention.ms": "604800000"})
    assert found == (SettingDifference("offsets.partitions", "50", None),)
    assert str(found[0]) == "offsets.partitions: '50' here, not set there"


def test_a_secret_cannot_be_agreed() -> None:
    with pytest.raises(TypeError, match="a secret is not sent"):
        key("password", kind=Kind.PASSWORD, default=Password("x"), agreed=True, doc="Secret.")


def test_the_brokers_agreed_keys() -> None:
    """What decides where a group is kept, and what the clients of a topic are promised."""
    agreed = agreed_values(Settings(BROKER_DEFINITION)).keys()

    assert {
        "offsets.topic.num.partitions",
        "transaction.state.log.num.partitions",
        "min.insync.replicas",
        "log.cleanup.policy",
        "message.max.bytes",
        "inter.broker.listener.name",
    } <= agreed
    assert not {"log.dirs", "broker.id", "num.io.threads", "log.segment.bytes"} & agreed
