"""The request side's view of the cluster image.

Every broker answers Metadata from its own copy, to which the controller's updates are applied one
after the other. Rule for every read: take the image once and use only that one, since the next read
may return another; a caller that needs several answers about one moment takes `image` itself. A
copy may be behind: a client that acts on old metadata gets an error from the broker it addresses,
and refreshes.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.metadata.delta import AppliedDelta, ClusterDelta
from odradek.metadata.image import (
    NO_NODE,
    ClusterImage,
    LiveBroker,
    Node,
    PartitionState,
    TopicImage,
)
from odradek.model import NO_LEADER, TopicPartition

__all__ = ["ClusterMetadata", "MetadataCache", "PartitionMetadata", "TopicMetadata"]

logger = logging.getLogger(__name__)
_state_change_logger = logging.getLogger("state.change.logger")
_TRACE = 5  # Below DEBUG: one line per partition.


class PartitionMetadata(NamedTuple):
    """A partition in a Metadata answer."""

    error: ErrorCode
    partition: int
    leader: int  # NO_LEADER if it cannot be reached on the listener.
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic in a Metadata answer."""

    name: str
    id: UUID | None
    partitions: list[PartitionMetadata]  # Sorted by number.


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The whole cluster as one listener's clients see it."""

    cluster_id: str
    nodes: list[Node]  # Sorted by id.
    controller: Node | None
    topics: list[TopicMetadata]  # Sorted by name.


@mypyc_attr(allow_interpreted_subclasses=True)
class MetadataCache:
    """Holds the published image of one broker. One writer, the publisher; any number of readers."""

    __slots__ = ("_broker_id", "_image", "_prefix", "_sorted", "is_published")

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._prefix = f"[MetadataCache brokerId={broker_id}] "
        self._image = ClusterImage()
        # Topics of an image, and their names sorted.
        self._sorted: tuple[Mapping[str, TopicImage], list[str]] = ({}, [])
        # Whether an update was published; before that no client request may be answered from here.
        self.is_published = False

    @property
    def image(self) -> ClusterImage:
        """The published image, which never changes."""
        return self._image

    # Updates

    def publish(self, applied: AppliedDelta, delta: ClusterDelta, correlation_id: int) -> None:
        """Publishes the image that `delta` made, in one step."""
        image = applied.image
        if delta.membership is not None:
            self._check_listeners(image)
        if delta.partitions:
            self._log_partitions(applied, delta, correlation_id)
        self._image = image
        # A delta of the config feed has no brokers: after it alone the cache is still empty.
        self.is_published = self.is_published or delta.membership is not None

    def _check_listeners(self, image: ClusterImage) -> None:
        own = image.brokers.get(self._broker_id)
        if own is None:
            return
        listeners = own.nodes.keys()
        if any(broker.nodes.keys() != listeners for broker in image.brokers.values()):
            logger.error(
                "%sListeners are not identical across brokers: %s",
                self._prefix,
                {broker.id: sorted(broker.nodes) for broker in image.brokers.values()},
            )

    def _log_partitions(
        self, applied: AppliedDelta, delta: ClusterDelta, correlation_id: int
    ) -> None:
        source = (applied.image.controller_id, applied.image.controller_epoch, correlation_id)
        if _state_change_logger.isEnabledFor(_TRACE):
            for state in delta.partitions:
                _state_change_logger.log(
                    _TRACE,
                    "%sCached %s from controller %s epoch %s with correlation id %s",
                    self._prefix,
                    state,
                    *source,
                )
        _state_change_logger.info(
            "%sAdded %d partitions, deleted %d partitions, from controller %s epoch %s "
            "with correlation id %s",
            self._prefix,
            len(delta.partitions) - len(applied.deleted),
            len(applied.deleted),
            *source,
        )

    # Reads

    def contains_topic(self, topic: str) -> bool:
        return topic in self._image.topics

    def contains(self, tp: TopicPartition) -> bool:
        return self._image.partition(tp.topic, tp.partition) is not None

    def get_partition_info(self, topic: str, partition: int) -> PartitionState | None:
        return self._image.partition(topic, partition)

    def get_sorted_topics(self, image: ClusterImage) -> list[str]:
        """Names of the topics of an image, sorted once for all callers; not to be edited."""
        topics, names = self._sorted
        if topics is not image.topics:
            names = sorted(image.topics)
            self._sorted = (image.topics, names)
        return names

    def get_all_topics(self) -> set[str]:
        return set(self._image.topics)

    def get_all_partitions(self) -> set[TopicPartition]:
        topics = self._image.topics.values()
        return {TopicPartition(topic.name, p) for topic in topics for p in topic.partitions}

    def get_non_existing_topics(self, topics: Iterable[str]) -> set[str]:
        known = self._image.topics
        return {topic for topic in topics if topic not in known}

    def get_topic_id(self, topic: str) -> UUID | None:
        image = self._image.topics.get(topic)
        return None if image is None else image.id

    def get_topic_name(self, topic_id: UUID) -> str | None:
        return self._image.topic_names.get(topic_id)

    def get_controller_id(self) -> int | None:
        return self._image.controller_id

    def get_alive_broker(self, broker_id: int) -> LiveBroker | None:
        return self._image.brokers.get(broker_id)

    def get_rack(self, broker_id: int, listener: str) -> str | None:
        """The rack of a live broker that has the listener; None if it has none, or is not there."""
        node = _node_on(self._image, broker_id, listener)
        return None if node is None else node.rack

    def get_alive_brokers(self) -> list[LiveBroker]:
        """Live brokers, sorted by id."""
        brokers = self._image.brokers
        return [brokers[broker_id] for broker_id in sorted(brokers)]

    def get_alive_nodes(self, listener: str) -> list[Node]:
        """Live brokers that have the listener, sorted by id."""
        return _nodes_on(self._image, listener)

    def get_partition_replica_endpoints(self, tp: TopicPartition, listener: str) -> dict[int, Node]:
        """The nodes of a partition's replicas on a listener; unreachable replicas are left out."""
        image = self._image
        state = image.partition(tp.topic, tp.partition)
        found = {}
        for replica in state.replicas if state is not None else ():
            node = _node_on(image, replica, listener)
            if node is not None:
                found[replica] = node
        return found

    def get_partition_leader_endpoint(
        self, topic: str, partition: int, listener: str
    ) -> Node | None:
        """The leader's node, NO_NODE if it cannot be reached, None if the partition is unknown."""
        image = self._image
        state = image.partition(topic, partition)
        if state is None:
            return None
        return _node_on(image, state.leader, listener) or NO_NODE

    def get_topic_metadata(
        self,
        topics: Iterable[str],
        listener: str,
        *,
        image: ClusterImage | None = None,
        error_unavailable_endpoints: bool = False,
        error_unavailable_listeners: bool = False,
    ) -> list[TopicMetadata]:
        """The part of a Metadata answer about `topics`; unknown ones are left out.

        Args:
            topics: Names, in the order of the answer.
            listener: The listener the request arrived on.
            image: The image to answer from; by default the published one.
            error_unavailable_endpoints: Metadata v0: leave dead replicas out and return an error.
            error_unavailable_listeners: Metadata v6+: distinguish a missing listener from a dead
                leader.
        """
        return _topic_metadata(
            self._image if image is None else image,
            topics,
            listener,
            filters_dead=error_unavailable_endpoints,
            names_listener=error_unavailable_listeners,
        )

    def get_cluster_metadata(self, cluster_id: str, listener: str) -> ClusterMetadata:
        """The whole cluster as the clients of a listener see it."""
        image = self._image
        controller = image.controller_id
        return ClusterMetadata(
            cluster_id=cluster_id,
            nodes=_nodes_on(image, listener),
            controller=None if controller is None else _node_on(image, controller, listener),
            topics=_topic_metadata(
                image, sorted(image.topics), listener, filters_dead=False, names_listener=False
            ),
        )


def _node_on(image: ClusterImage, broker_id: int, listener: str) -> Node | None:
    broker = image.brokers.get(broker_id)
    return None if broker is None else broker.nodes.get(listener)


def _nodes_on(image: ClusterImage, listener: str) -> list[Node]:
    nodes = (_node_on(image, broker_id, listener) for broker_id in sorted(image.brokers))
    return [node for node in nodes if node is not None]


def _topic_metadata(
    image: ClusterImage,
    names: Iterable[str],
    listener: str,
    *,
    filters_dead: bool,
    names_listener: bool,
) -> list[TopicMetadata]:
    answers = []
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            continue
        partitions = [
            _partition_metadata(
                image,
                topic.partitions[number],
                listener,
                filters_dead=filters_dead,
                names_listener=names_listener,
            )
            for number in sorted(topic.partitions)
        ]
        answers.append(TopicMetadata(name, topic.id, partitions))
    return answers


def _partition_metadata(
    image: ClusterImage,
    state: PartitionState,
    listener: str,
    *,
    filters_dead: bool,
    names_listener: bool,
) -> PartitionMetadata:
    replicas, isr, leader = state.replicas, state.isr, state.leader
    if filters_dead:
        replicas = tuple(r for r in replicas if _node_on(image, r, listener) is not None)
        isr = tuple(r for r in isr if _node_on(image, r, listener) is not None)
    error = ErrorCode.NONE
    if _node_on(image, leader, listener) is None:
        is_alive = leader in image.brokers
        error = ErrorCode.LEADER_NOT_AVAILABLE
        if is_alive and names_listener:
            error = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_LEADER
    elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
        error = ErrorCode.REPLICA_NOT_AVAILABLE
    return PartitionMetadata(
        error, state.partition, leader, state.leader_epoch, replicas, isr, state.offline_replicas
    )
