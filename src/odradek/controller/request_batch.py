"""The requests that announce one state change: at most a few per broker. Pure.

A batch is filled from committed and applied changes, and built once. Rules:

1. Order for each broker: LeaderAndIsr, UpdateMetadata, StopReplica. A broker must know the others
   before it follows one of them, and must stop serving before it deletes.
2. A LeaderAndIsr for a partition also announces it to all brokers by UpdateMetadata.
3. Of two entries for a broker and partition the later one counts, but once new, always new.
4. Only brokers that are live or shutting down get requests; negative ids are ignored.
5. A partition of a topic that is queued for deletion is announced with leader -2. One without
   leader and ISR is not announced, but the live brokers are.

Requests have the form of the newest versions; the channels send older ones where they must.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.controller.context import ControllerContext
from odradek.errors import InvariantViolation
from odradek.metadata.control_requests import ControlRequest
from odradek.metadata.ports import PartitionRecord
from odradek.model import LEADER_DURING_DELETE, ReplicaAssignment, TopicPartition
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

__all__ = [
    "OutgoingRequest",
    "RequestBatch",
]

_INCREMENTAL = 1  # LeaderAndIsr type: partitions that are not listed stay as they are.
_EPOCH_DURING_DELETE = -2  # StopReplica: obeyed whatever leader epoch the broker knows.
_UNKNOWN_EPOCH = -1
_NO_ID = uuid.UUID(int=0)


class OutgoingRequest(NamedTuple):
    """A request and the broker it is for."""

    broker_id: int
    request: ControlRequest


class _Hosted(NamedTuple):
    record: PartitionRecord
    assignment: ReplicaAssignment
    is_new: bool


class RequestBatch:
    """Collects requests during one state change.

    Args:
        context: Source of brokers, ids and assignments.
        controller_id: This broker.
        leader_listener: The listener between brokers, for LeaderAndIsr's list of live leaders.
    """

    def __init__(
        self, context: ControllerContext, *, controller_id: int, leader_listener: str
    ) -> None:
        self._context = context
        self._controller_id = controller_id
        self._leader_listener = leader_listener
        self._leader_and_isr: dict[int, dict[TopicPartition, _Hosted]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata_partitions: dict[TopicPartition, UpdateMetadataPartitionState] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._leader_and_isr or self._stop_replica or self._metadata_brokers)

    def begin(self) -> None:
        """Starts a batch.

        Raises:
            InvariantViolation: The batch before was neither built nor cleared.
        """
        if not self.is_empty:
            raise InvariantViolation(
                "requests of the batch before were not sent: LeaderAndIsr to "
                f"{sorted(self._leader_and_isr)}, UpdateMetadata to "
                f"{sorted(self._metadata_brokers)}, StopReplica to {sorted(self._stop_replica)}"
            )

    def clear(self) -> None:
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._metadata_brokers.clear()
        self._metadata_partitions.clear()

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        tp: TopicPartition,
        record: PartitionRecord,
        *,
        is_new: bool,
    ) -> None:
        assignment = self._context.partition_full_assignment(tp)
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            hosted = self._leader_and_isr.setdefault(broker_id, {})
            was_new = tp in hosted and hosted[tp].is_new
            hosted[tp] = _Hosted(record, assignment, is_new or was_new)
        self.add_update_metadata(self._context.live_or_shutting_down_broker_ids, [tp])

    def add_stop_replica(
        self, broker_ids: Iterable[int], tp: TopicPartition, *, deletes: bool
    ) -> None:
        for broker_id in broker_ids:
            if broker_id >= 0:
                stopped = self._stop_replica.setdefault(broker_id, {})
                stopped[tp] = deletes or stopped.get(tp, False)

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]
    ) -> None:
        """Announces partitions, and the live brokers; `partitions` may be empty."""
        self._metadata_brokers.update(b for b in broker_ids if b >= 0)
        for tp in partitions:
            record = self._context.partition_leadership.get(tp)
            if record is not None:
                self._metadata_partitions[tp] = self._announced(tp, record)

    def build(self, controller_epoch: int) -> list[OutgoingRequest]:
        """The requests in the order they have to be sent; the batch is empty afterwards."""
        live = self._context.live_broker_epochs
        metadata = self._metadata_topics()
        brokers = self._live_brokers()
        outgoing = [
            OutgoingRequest(b, self._leader_and_isr_request(b, controller_epoch))
            for b in sorted(self._leader_and_isr)
            if b in live
        ]
        outgoing += [
            OutgoingRequest(
                broker_id,
                UpdateMetadataRequest(
                    controller_id=self._controller_id,
                    controller_epoch=controller_epoch,
                    broker_epoch=live[broker_id],
                    topic_states=metadata,
                    live_brokers=brokers,
                ),
            )
            for broker_id in sorted(self._metadata_brokers)
            if broker_id in live
        ]
        for broker_id in sorted(self._stop_replica):
            if broker_id in live:
                outgoing += self._stop_replica_requests(broker_id, controller_epoch)
        self.clear()
        return outgoing

    # LeaderAndIsr

    def _leader_and_isr_request(self, broker_id: int, epoch: int) -> LeaderAndIsrRequest:
        hosted = self._leader_and_isr[broker_id]
        by_topic: dict[str, list[LeaderAndIsrPartitionState]] = {}
        leaders: set[int] = set()
        for tp, (record, assignment, is_new) in sorted(hosted.items(), key=lambda item: item[0]):
            state = record.leader_and_isr
            leaders.add(state.leader)
            by_topic.setdefault(tp.topic, []).append(
                LeaderAndIsrPartitionState(
                    partition_index=tp.partition,
                    controller_epoch=record.controller_epoch,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    partition_epoch=state.partition_version,
                    replicas=assignment.replicas,
                    adding_replicas=assignment.adding,
                    removing_replicas=assignment.removing,
                    is_new=is_new,
                    leader_recovery_state=int(state.is_recovering),
                )
            )
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=epoch,
            broker_epoch=self._context.live_broker_epochs[broker_id],
            type=_INCREMENTAL,
            topic_states=tuple(
                LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=self._id(topic), partition_states=tuple(states)
                )
                for topic, states in by_topic.items()
            ),
            live_leaders=self._live_leaders(leaders),
        )

    def _live_leaders(self, leaders: set[int]) -> tuple[LeaderAndIsrLiveLeader, ...]:
        found = []
        for broker_id in sorted(leaders):
            broker = self._context.live_or_shutting_down_broker(broker_id)
            node = None if broker is None else broker.nodes.get(self._leader_listener)
            if node is not None:
                found.append(
                    LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=node.host, port=node.port)
                )
        return tuple(found)

    # UpdateMetadata

    def _announced(
        self, tp: TopicPartition, record: PartitionRecord
    ) -> UpdateMetadataPartitionState:
        context = self._context
        state = record.leader_and_isr
        replicas = context.partition_replica_assignment(tp)
        is_deleted = context.is_topic_queued_for_deletion(tp.topic)
        return UpdateMetadataPartitionState(
            partition_index=tp.partition,
            controller_epoch=record.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.partition_version,
            replicas=replicas,
            offline_replicas=tuple(
                r
                for r in replicas
                if not context.is_replica_online(r, tp, include_shutting_down=True)
            ),
        )

    def _metadata_topics(self) -> tuple[UpdateMetadataTopicState, ...]:
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for tp in sorted(self._metadata_partitions):
            by_topic.setdefault(tp.topic, []).append(self._metadata_partitions[tp])
        return tuple(
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=self._id(topic), partition_states=tuple(states)
            )
            for topic, states in by_topic.items()
        )

    def _live_brokers(self) -> tuple[UpdateMetadataBroker, ...]:
        return tuple(
            UpdateMetadataBroker(
                id=broker.id,
                endpoints=tuple(
                    UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=int(endpoint.security_protocol),
                    )
                    for endpoint in broker.endpoints
                ),
                rack=broker.rack,
            )
            for broker in self._context.live_or_shutting_down_brokers
        )

    # StopReplica

    def _stop_replica_requests(self, broker_id: int, epoch: int) -> list[OutgoingRequest]:
        """One request for replicas that only stop, one for replicas to be deleted."""
        stopped = self._stop_replica[broker_id]
        return [
            OutgoingRequest(broker_id, self._stop_replica_request(broker_id, epoch, partitions))
            for deletes in (False, True)
            if (partitions := {tp: deletes for tp in sorted(stopped) if stopped[tp] is deletes})
        ]

    def _stop_replica_request(
        self, broker_id: int, epoch: int, partitions: Mapping[TopicPartition, bool]
    ) -> StopReplicaRequest:
        by_topic: dict[str, list[StopReplicaPartitionState]] = {}
        for tp, deletes in partitions.items():
            by_topic.setdefault(tp.topic, []).append(
                StopReplicaPartitionState(
                    partition_index=tp.partition,
                    leader_epoch=self._stop_epoch(tp),
                    delete_partition=deletes,
                )
            )
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=epoch,
            broker_epoch=self._context.live_broker_epochs[broker_id],
            topic_states=tuple(
                StopReplicaTopicState(topic_name=topic, partition_states=tuple(states))
                for topic, states in by_topic.items()
            ),
        )

    def _stop_epoch(self, tp: TopicPartition) -> int:
        if self._context.is_topic_queued_for_deletion(tp.topic):
            return _EPOCH_DURING_DELETE
        record = self._context.partition_leadership.get(tp)
        return _UNKNOWN_EPOCH if record is None else record.leader_and_isr.leader_epoch

    def _id(self, topic: str) -> bytes:
        return self._context.topic_ids.get(topic, _NO_ID).bytes
