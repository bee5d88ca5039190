"""The controller's knowledge: all metadata of the cluster, and queries on it. Pure.

Rules:

1. Only the handler of the current event changes it; between two events it is consistent.
2. Nothing here elects or sends: the machines decide, the driver persists, and durable changes are
   folded in here.

Invariants:

* A broker has an epoch exactly if it is live or shutting down.
* Every topic with an assignment is in `all_topics`.
* `topics_with_deletion_started` is part of `topics_to_be_deleted`.
* `offline_partition_count` counts the OFFLINE partitions of topics whose deletion has not started.
  So a topic's partitions become NON_EXISTENT *before* its deletion counts as started; otherwise
  the count would never fall again.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import Fence, PartitionRecord, RegisteredBroker, TopicRecord
from odradek.model import ReplicaAssignment, TopicPartition

__all__ = ["ControllerContext", "PartitionAndReplica", "PartitionStatus", "ReplicaStatus"]

_NO_ASSIGNMENT = ReplicaAssignment(())


class PartitionAndReplica(NamedTuple):
    """One replica: a partition on a broker."""

    tp: TopicPartition
    replica: int

    def __str__(self) -> str:
        return f"{self.tp} on {self.replica}"


class PartitionStatus(IntEnum):
    """The state of a partition in its machine."""

    NEW = 0  # It has replicas, but neither leader nor ISR yet.
    ONLINE = 1  # It has a leader.
    OFFLINE = 2  # Its leader is lost.
    NON_EXISTENT = 3  # It was never made, or is deleted.


class ReplicaStatus(IntEnum):
    """The state of a replica in its machine."""

    NEW = 1  # Just assigned.
    ONLINE = 2  # Serving.
    OFFLINE = 3  # Its broker is down, or it was stopped.
    DELETION_STARTED = 4  # Its broker was told to delete it.
    DELETION_SUCCESSFUL = 5  # Its broker has deleted it.
    DELETION_INELIGIBLE = 6  # To be deleted, but that is not possible now.
    NON_EXISTENT = 7  # About to leave the context.


class ControllerContext:
    """The controller's metadata; empty unless this broker is the controller."""

    __slots__ = (
        "_live_broker_epochs",
        "_live_brokers",
        "all_topics",
        "controller_epoch",
        "fence",
        "offline_partition_count",
        "partition_assignments",
        "partition_leadership",
        "partition_states",
        "partitions_being_reassigned",
        "replica_states",
        "replicas_on_offline_dirs",
        "shutting_down_broker_ids",
        "topic_ids",
        "topic_incarnations",
        "topic_versions",
        "topics_ineligible_for_deletion",
        "topics_to_be_deleted",
        "topics_with_deletion_started",
    )

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything, as on resignation."""
        self.offline_partition_count = 0  # See the module's invariants.
        self.shutting_down_broker_ids: set[int] = set()
        self._live_brokers: dict[int, LiveBroker] = {}
        # Grows with every registration of a broker, so a restarted one has another epoch.
        self._live_broker_epochs: dict[int, int] = {}
        self.controller_epoch = 0  # Of this controller; 0 = never elected.
        self.fence = Fence(0)  # Part of every commit, which fails once a newer controller exists.
        self.all_topics: set[str] = set()
        self.partition_assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self.partition_leadership: dict[TopicPartition, PartitionRecord] = {}
        self.partitions_being_reassigned: set[TopicPartition] = set()
        self.partition_states: dict[TopicPartition, PartitionStatus] = {}
        self.replica_states: dict[PartitionAndReplica, ReplicaStatus] = {}
        self.replicas_on_offline_dirs: dict[int, set[TopicPartition]] = {}
        self.topics_to_be_deleted: set[str] = set()
        self.topics_with_deletion_started: set[str] = set()
        self.topics_ineligible_for_deletion: set[str] = set()
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.topic_versions: dict[str, int] = {}  # For the next change of a topic.
        # Differs between two topics that had the same name in turn; None: not read yet.
        self.topic_incarnations: dict[str, int | None] = {}

    # Brokers

    @property
    def live_broker_ids(self) -> set[int]:
        """Brokers that may lead or get replicas: those shutting down may not."""
        return self._live_broker_epochs.keys() - self.shutting_down_broker_ids

    @property
    def live_or_shutting_down_broker_ids(self) -> set[int]:
        return set(self._live_broker_epochs)

    @property
    def live_or_shutting_down_brokers(self) -> list[LiveBroker]:
        """The brokers, ordered by id."""
        return [self._live_brokers[broker_id] for broker_id in sorted(self._live_brokers)]

    @property
    def live_broker_epochs(self) -> Mapping[int, int]:
        return self._live_broker_epochs

    def live_or_shutting_down_broker(self, broker_id: int) -> LiveBroker | None:
        return self._live_brokers.get(broker_id)

    def add_live_brokers(self, brokers: Mapping[int, RegisteredBroker]) -> None:
        for broker_id, (broker, broker_epoch) in brokers.items():
            self._live_brokers[broker_id] = broker
            self._live_broker_epochs[broker_id] = broker_epoch

    def remove_live_brokers(self, broker_ids: Iterable[int]) -> None:
        for broker_id in broker_ids:
            self._live_brokers.pop(broker_id, None)
            self._live_broker_epochs.pop(broker_id, None)

    def update_broker_metadata(self, old: LiveBroker, new: LiveBroker) -> None:
        """Replaces the endpoints of a live broker; its epoch stays."""
        assert old.id == new.id
        assert self._live_brokers[old.id] == old
        self._live_brokers[new.id] = new

    def is_replica_online(
        self, broker_id: int, tp: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Whether the broker lives and has not reported the replica's directory as failed."""
        if broker_id not in self._live_broker_epochs:
            return False
        if not include_shutting_down and broker_id in self.shutting_down_broker_ids:
            return False
        return tp not in self.replicas_on_offline_dirs.get(broker_id, ())

    # Topics and their assignment

    def put_topic(self, topic: str, record: TopicRecord) -> None:
        """Adds a topic as it is stored."""
        assert record.topic_id is not None, f"topic {topic} has no id yet"
        self.all_topics.add(topic)
        self.partition_assignments[topic] = dict(record.assignment)
        self.topic_ids[topic] = record.topic_id
        self.topic_versions[topic] = record.version
        self.topic_incarnations[topic] = record.incarnation if record.incarnation >= 0 else None
        for partition, assignment in record.assignment.items():
            tp = TopicPartition(topic, partition)
            if assignment.is_being_reassigned:
                self.partitions_being_reassigned.add(tp)
            else:
                self.partitions_being_reassigned.discard(tp)

    def remove_topic(self, topic: str) -> None:
        """Forgets a topic and everything about its partitions and replicas."""
        for tp in self.partitions_for_topic(topic):
            self._forget_partition(tp)
        self.all_topics.discard(topic)
        self.partition_assignments.pop(topic, None)
        self.topic_ids.pop(topic, None)
        self.topic_versions.pop(topic, None)
        self.topic_incarnations.pop(topic, None)
        self.topics_to_be_deleted.discard(topic)
        self.topics_with_deletion_started.discard(topic)
        self.topics_ineligible_for_deletion.discard(topic)

    def _forget_partition(self, tp: TopicPartition) -> None:
        for replica in self.partition_replica_assignment(tp):
            self.replica_states.pop(PartitionAndReplica(tp, replica), None)
        if tp in self.partition_states:
            self.put_partition_state(tp, PartitionStatus.NON_EXISTENT)
            del self.partition_states[tp]
        self.partition_leadership.pop(tp, None)
        self.partitions_being_reassigned.discard(tp)
        for offline in self.replicas_on_offline_dirs.values():
            offline.discard(tp)

    def all_partitions(self) -> Iterator[TopicPartition]:
        for topic, partitions in self.partition_assignments.items():
            for partition in partitions:
                yield TopicPartition(topic, partition)

    def partition_full_assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """Empty if unknown."""
        return self.partition_assignments.get(tp.topic, {}).get(tp.partition, _NO_ASSIGNMENT)

    def partition_replica_assignment(self, tp: TopicPartition) -> tuple[int, ...]:
        """Empty if unknown."""
        return self.partition_full_assignment(tp).replicas

    def update_partition_assignment(
        self, tp: TopicPartition, assignment: ReplicaAssignment
    ) -> None:
        self.partition_assignments.setdefault(tp.topic, {})[tp.partition] = assignment

    def partitions_for_topic(self, topic: str) -> list[TopicPartition]:
        """Empty if unknown."""
        partitions = self.partition_assignments.get(topic, {})
        return [TopicPartition(topic, partition) for partition in partitions]

    def partitions_on_broker(self, broker_id: int) -> set[TopicPartition]:
        return {replica.tp for replica in self.replicas_on_brokers({broker_id})}

    def replicas_on_brokers(self, broker_ids: Iterable[int]) -> set[PartitionAndReplica]:
        wanted = set(broker_ids)
        return {r for r in self._all_replicas() if r.replica in wanted}

    def replicas_for_topic(self, topic: str) -> list[PartitionAndReplica]:
        return self.replicas_for_partitions(self.partitions_for_topic(topic))

    def replicas_for_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[PartitionAndReplica]:
        return [
            PartitionAndReplica(tp, replica)
            for tp in partitions
            for replica in self.partition_replica_assignment(tp)
        ]

    def online_and_offline_replicas(
        self,
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """All replicas, split by whether they can serve."""
        online: list[PartitionAndReplica] = []
        offline: list[PartitionAndReplica] = []
        for item in self._all_replicas():
            (online if self.is_replica_online(item.replica, item.tp) else offline).append(item)
        return online, offline

    def _all_replicas(self) -> Iterator[PartitionAndReplica]:
        for topic, partitions in self.partition_assignments.items():
            for partition, assignment in partitions.items():
                tp = TopicPartition(topic, partition)
                for replica in assignment.replicas:
                    yield PartitionAndReplica(tp, replica)

    # States

    def partition_state(self, tp: TopicPartition) -> PartitionStatus:
        return self.partition_states.get(tp, PartitionStatus.NON_EXISTENT)

    def put_partition_state(self, tp: TopicPartition, target: PartitionStatus) -> None:
        self._count_offline(tp, self.partition_state(tp), target)
        self.partition_states[tp] = target

    def put_partition_state_if_not_exists(
        self, tp: TopicPartition, target: PartitionStatus
    ) -> None:
        if tp not in self.partition_states:
            self.put_partition_state(tp, target)

    def _count_offline(
        self, tp: TopicPartition, current: PartitionStatus, target: PartitionStatus
    ) -> None:
        if self.is_topic_deletion_in_progress(tp.topic):
            return
        offline = PartitionStatus.OFFLINE
        self.offline_partition_count += (target is offline) - (current is offline)

    def partitions_in_states(
        self, states: Iterable[PartitionStatus], topic: str | None = None
    ) -> list[TopicPartition]:
        wanted = frozenset(states)
        partitions = self.all_partitions() if topic is None else self.partitions_for_topic(topic)
        return [tp for tp in partitions if self.partition_state(tp) in wanted]

    def replica_state(self, replica: PartitionAndReplica) -> ReplicaStatus:
        return self.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)

    def replicas_in_state(self, topic: str, state: ReplicaStatus) -> list[PartitionAndReplica]:
        return [r for r in self.replicas_for_topic(topic) if self.replica_state(r) is state]

    def are_all_replicas_in_state(self, topic: str, state: ReplicaStatus) -> bool:
        """Also true for a topic without any."""
        return all(self.replica_state(r) is state for r in self.replicas_for_topic(topic))

    def is_any_replica_in_state(self, topic: str, state: ReplicaStatus) -> bool:
        return any(self.replica_state(r) is state for r in self.replicas_for_topic(topic))

    # Deletion

    def queue_topic_deletion(self, topics: Iterable[str]) -> None:
        self.topics_to_be_deleted.update(topics)

    def unqueue_topic_deletion(self, topics: Iterable[str]) -> None:
        gone = set(topics)
        self.topics_to_be_deleted -= gone
        self.topics_with_deletion_started -= gone
        self.topics_ineligible_for_deletion -= gone

    def begin_topic_deletion(self, topics: Iterable[str]) -> None:
        started = set(topics)
        assert started <= self.topics_to_be_deleted, f"{started - self.topics_to_be_deleted}"
        self.topics_with_deletion_started |= started

    def is_topic_queued_for_deletion(self, topic: str) -> bool:
        return topic in self.topics_to_be_deleted

    def is_topic_deletion_in_progress(self, topic: str) -> bool:
        return topic in self.topics_with_deletion_started

    def is_topic_eligible_for_deletion(self, topic: str) -> bool:
        return (
            topic in self.topics_to_be_deleted and topic not in self.topics_ineligible_for_deletion
        )
