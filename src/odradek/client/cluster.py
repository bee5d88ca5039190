"""A client's picture of its cluster: brokers, topics, leaders. Immutable and without I/O.

A picture is replaced by a newer one as a whole. Brokers answer from caches of different age, so a
later answer may carry older metadata. Rules of `merged`:

1. A partition's leader is replaced only by one of an equal or higher leader epoch.
2. A topic that has another id under the same name is another topic: nothing of the old one stays.
3. A topic that was asked for and is answered with an error is removed from the picture.

Example of rule 1: the picture says broker 2 leads in epoch 7. A broker that missed the election
still answers "broker 1, epoch 6". The picture keeps broker 2, and a request that failed for
another reason is not sent to the wrong broker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.model import NO_CONTROLLER, NO_LEADER, TopicPartition
from odradek.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

__all__ = ["NO_TOPIC_ID", "Cluster", "Node", "PartitionView", "TopicView"]

NO_TOPIC_ID: Final = bytes(16)


class Node(NamedTuple):
    """A broker and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as the cluster describes it."""

    partition: int
    leader: int  # NO_LEADER when there is none.
    leader_epoch: int  # -1 from brokers that do not report it.
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic. Partitions are in order of their number, without a gap."""

    name: str
    topic_id: bytes  # NO_TOPIC_ID from brokers that do not report it.
    is_internal: bool
    partitions: tuple[PartitionView, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition: all have as many, unless a move is under way."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def _read_only(entries: Mapping[str, TopicView]) -> Mapping[str, TopicView]:
    return MappingProxyType(dict(entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """See the module's docstring. Starts empty."""

    cluster_id: str | None = None
    controller_id: int = NO_CONTROLLER
    nodes: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))

    def leader(self, tp: TopicPartition) -> Node | None:
        """The broker that leads a partition, if both are known."""
        partition = self.partition(tp)
        return self.nodes.get(partition.leader) if partition is not None else None

    def partition(self, tp: TopicPartition) -> PartitionView | None:
        """A partition, if it is known."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, NO_TOPIC_ID if not known."""
        topic = self.topics.get(name)
        return topic.topic_id if topic is not None else NO_TOPIC_ID

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic that has an id."""
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic.name
        return None

    def merged(
        self, response: MetadataResponse, asked: Iterable[str] | None
    ) -> tuple["Cluster", dict[str, ErrorCode]]:
        """The picture after an answer, and the errors of single topics in it.

        Args:
            asked: Names the request had; None if it asked for all topics.
        """
        topics = {} if asked is None else dict(self.topics)
        errors: dict[str, ErrorCode] = {}
        for told in response.topics:
            name = told.name
            if name is None:  # Only for a request by id, which this client does not send.
                continue
            if told.error_code != ErrorCode.NONE:
                errors[name] = _error_code(told.error_code)
                topics.pop(name, None)
            else:
                topics[name] = _merged_topic(self.topics.get(name), told, name)
        cluster = Cluster(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes=MappingProxyType(
                {
                    broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
                    for broker in response.brokers
                }
            ),
            topics=_read_only(topics),
        )
        return cluster, errors

    def without_leader(self, tp: TopicPartition, *, node_id: int) -> "Cluster":
        """The picture without a leader that turned out not to lead.

        The epoch stays, so that an answer naming the same one is accepted again.
        """
        topic, partition = self.topics.get(tp.topic), self.partition(tp)
        if topic is None or partition is None or partition.leader != node_id:
            return self
        partitions = list(topic.partitions)
        partitions[tp.partition] = replace(partition, leader=NO_LEADER)
        changed = replace(topic, partitions=tuple(partitions))
        return replace(self, topics=_read_only({**self.topics, tp.topic: changed}))


def _merged_topic(known: TopicView | None, told: MetadataResponseTopic, name: str) -> TopicView:
    is_same = known is not None and known.topic_id == told.topic_id
    before = {one.partition: one for one in known.partitions} if known and is_same else {}
    partitions = [
        _merged_partition(before.get(one.partition_index), one)
        for one in sorted(told.partitions, key=lambda one: one.partition_index)
    ]
    return TopicView(
        name=name,
        topic_id=bytes(told.topic_id),
        is_internal=told.is_internal,
        partitions=tuple(partitions),
    )


def _merged_partition(
    known: PartitionView | None, told: MetadataResponsePartition
) -> PartitionView:
    if known is not None and told.leader_epoch < known.leader_epoch:
        return known
    return PartitionView(
        partition=told.partition_index,
        leader=told.leader_id,
        leader_epoch=told.leader_epoch,
        replicas=tuple(told.replica_nodes),
        isr=tuple(told.isr_nodes),
        offline_replicas=tuple(told.offline_replicas),
    )


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
