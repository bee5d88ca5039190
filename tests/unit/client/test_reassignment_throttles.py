"""The settings that limit a reassignment."""

from odradek.client.admin import ConfigEntry, ConfigOperation, ConfigResource, ConfigResourceType
from odradek.client.admin.reassignment_throttles import (
    ReplicaMove,
    directory_throttles,
    moves_of,
    removals,
    throttles,
)
from odradek.client.admin.reassignments import Reassignment
from odradek.model import TopicPartition
from odradek.protocol.enums import ConfigSource

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")


def broker(number: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(number))


def test_moves_have_those_that_run_in_the_same_topics() -> None:
    running = {
        T1: Reassignment(replicas=(3, 1), adding=(3,), removing=(1,)),
        U0: Reassignment(replicas=(5, 6), adding=(6,), removing=(5,)),
    }
    found = moves_of({T0: (1, 4), TopicPartition("t", 9): (1,)}, {T0: (1, 2)}, running)
    assert found == {T0: ReplicaMove((1, 2), (4,)), T1: ReplicaMove((1,), (3,))}
    assert moves_of({T1: (4, 1)}, {T1: (3, 1)}, running) == {T1: ReplicaMove((1,), (4,))}


def test_a_throttle_names_replicas_on_topics_and_rates_on_brokers() -> None:
    changes = throttles({T1: ReplicaMove((1, 2), ()), T0: ReplicaMove((1, 2), (4, 3))}, 700)
    rates = [
        ConfigOperation.set("leader.replication.throttled.rate", "700"),
        ConfigOperation.set("follower.replication.throttled.rate", "700"),
    ]
    assert changes == {
        TOPIC: [
            ConfigOperation.set("leader.replication.throttled.replicas", "0:1,0:2,1:1,1:2"),
            ConfigOperation.set("follower.replication.throttled.replicas", "0:4,0:3"),
        ],
        **{broker(number): rates for number in (1, 2, 3, 4)},
    }
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert directory_throttles([2, 2], 9) == {broker(2): [ConfigOperation.set(name, "9")]}


def test_only_what_is_set_is_removed() -> None:
    def entry(name: str, source: ConfigSource) -> ConfigEntry:
        return ConfigEntry(name, "1", source, False, False)

    rate, replicas = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
    settings = {
        TOPIC: [
            entry(replicas, ConfigSource.DYNAMIC_TOPIC),
            entry("retention.ms", ConfigSource.DYNAMIC_TOPIC),
        ],
        broker(1): [
            entry(rate, ConfigSource.DYNAMIC_BROKER),
            entry("follower.replication.throttled.rate", ConfigSource.STATIC_BROKER),
        ],
        broker(2): [entry(rate, ConfigSource.DEFAULT)],
    }
    assert removals(settings) == {
        TOPIC: [ConfigOperation.delete(replicas)],
        broker(1): [ConfigOperation.delete(rate)],
    }
