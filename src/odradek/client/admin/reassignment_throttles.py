"""The settings that limit the copying of a reassignment, as Kafka's tool writes them.

Each topic names the replicas, each broker has the rates::

    leader.replication.throttled.replicas    those that send: the replicas as they are
    follower.replication.throttled.replicas  those that are new
    leader.replication.throttled.rate, follower.replication.throttled.rate,
    replica.alter.log.dirs.io.max.bytes.per.second
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.configs import ConfigEntry, ConfigOperation, ConfigResource
from odradek.client.admin.reassignments import Reassignment
from odradek.model import TopicPartition
from odradek.protocol.enums import ConfigResourceType, ConfigSource

__all__ = [
    "BROKER_THROTTLES",
    "TOPIC_THROTTLES",
    "ReplicaMove",
    "directory_throttles",
    "moves_of",
    "removals",
    "throttles",
]

_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
BROKER_THROTTLES: Final = (*_RATES, _DIRECTORY_RATE)
TOPIC_THROTTLES: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_OF_TOPIC: Final = frozenset({ConfigSource.DYNAMIC_TOPIC})
_OF_BROKER: Final = frozenset({ConfigSource.DYNAMIC_BROKER})


class ReplicaMove(NamedTuple):
    """The replicas that a partition is copied from, and those that it is copied to."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def moves_of(
    targets: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    running: Mapping[TopicPartition, Reassignment],
) -> dict[TopicPartition, ReplicaMove]:
    """The moves to targets, with those that run already in the same topics."""
    topics = {tp.topic for tp in targets}
    moves = {
        tp: ReplicaMove(tuple(one for one in move.replicas if one not in move.adding), move.adding)
        for tp, move in running.items()
        if tp.topic in topics
    }
    for tp, target in targets.items():
        if tp in moves:
            sources = moves[tp].sources
        elif tp in current:
            sources = tuple(current[tp])
        else:
            continue
        moves[tp] = ReplicaMove(sources, tuple(one for one in target if one not in sources))
    return moves


def throttles(
    moves: Mapping[TopicPartition, ReplicaMove], bytes_per_second: int
) -> dict[ConfigResource, list[ConfigOperation]]:
    """The changes that limit moves between brokers."""
    changes: dict[ConfigResource, list[ConfigOperation]] = {}
    for topic in sorted({tp.topic for tp in moves}):
        rows = [(tp.partition, move) for tp, move in sorted(moves.items()) if tp.topic == topic]
        sides = (
            _pairs((partition, move.sources) for partition, move in rows),
            _pairs((partition, move.destinations) for partition, move in rows),
        )
        changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
            ConfigOperation.set(name, value)
            for name, value in zip(TOPIC_THROTTLES, sides, strict=True)
            if value
        ]
    brokers = {broker for move in moves.values() for broker in (*move.sources, *move.destinations)}
    for broker in sorted(brokers):
        changes[_broker(broker)] = [
            ConfigOperation.set(name, str(bytes_per_second)) for name in _RATES
        ]
    return changes


def directory_throttles(
    brokers: Iterable[int], bytes_per_second: int
) -> dict[ConfigResource, list[ConfigOperation]]:
    """The changes that limit moves between the directories of brokers."""
    operation = ConfigOperation.set(_DIRECTORY_RATE, str(bytes_per_second))
    return {_broker(broker): [operation] for broker in sorted(set(brokers))}


def removals(
    settings: Mapping[ConfigResource, Sequence[ConfigEntry]],
) -> dict[ConfigResource, list[ConfigOperation]]:
    """The changes that remove throttles: of those settings that a topic or a broker itself has."""
    changes: dict[ConfigResource, list[ConfigOperation]] = {}
    for resource, entries in settings.items():
        is_topic = resource.type is ConfigResourceType.TOPIC
        names = TOPIC_THROTTLES if is_topic else BROKER_THROTTLES
        own = _OF_TOPIC if is_topic else _OF_BROKER
        found = [entry.name for entry in entries if entry.name in names and entry.source in own]
        if found:
            changes[resource] = [ConfigOperation.delete(name) for name in found]
    return changes


def _pairs(replicas: Iterable[tuple[int, Sequence[int]]]) -> str:
    return ",".join(f"{partition}:{broker}" for partition, ids in replicas for broker in ids)


def _broker(broker_id: int) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, str(broker_id))
