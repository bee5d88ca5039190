"""The replica machine: states of replicas, and the requests to their brokers. Pure.

::

    NON_EXISTENT ─► NEW ─► ONLINE ◄─► OFFLINE ─► DELETION_STARTED ─► DELETION_SUCCESSFUL ─► (gone)
                     └────────────────►┘ ▲ │          │
                           ▲             │ ▼          ▼
                           └────────── DELETION_INELIGIBLE

ONLINE and OFFLINE also lead to themselves. Any other transition is illegal, is reported with state
and target, and leaves the replica in its state.

================  ==========================================================================
Target            what happens
================  ==========================================================================
NEW               LeaderAndIsr(is_new) to its broker, if the partition has a leader
ONLINE            the same without is_new, unless the replica was NEW: its broker has it already
OFFLINE           StopReplica; it leaves the ISR, durably; LeaderAndIsr to the other replicas
DELETION_STARTED  StopReplica with delete
NON_EXISTENT      it leaves the assignment in memory
others            only the state changes
================  ==========================================================================

Only OFFLINE needs a durable change; it runs in rounds like a partition's transition to ONLINE:
`decide_isr_removal`, commit, `apply_offline`, and `learn_conflict` of the partition machine.
Moving replicas and announcing the moves are separate functions; the latter fill a request batch
from the committed changes, and change nothing.
The last member never leaves the ISR; otherwise the records that it alone has would be lost. If it
was the leader, the partition is without a leader nevertheless.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from odradek.controller.context import ControllerContext, PartitionAndReplica, ReplicaStatus
from odradek.controller.partition_machine import StateChangeFailed
from odradek.controller.request_batch import RequestBatch
from odradek.errors import InvariantViolation
from odradek.metadata.changes import PartitionChanged
from odradek.model import NO_LEADER, ReplicaAssignment, TopicPartition

__all__ = [
    "VALID_PREVIOUS",
    "IsrRemoval",
    "MovedReplicas",
    "ReplicaSplit",
    "announce_isr_removal",
    "announce_moves",
    "announce_stops",
    "announce_without_state",
    "apply_offline",
    "by_broker",
    "decide_isr_removal",
    "initial_states",
    "move_replica",
    "move_replicas",
    "split_replicas",
]

_S = ReplicaStatus

# Target → the states from which a replica may reach it.
VALID_PREVIOUS: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.NON_EXISTENT: frozenset({_S.DELETION_SUCCESSFUL}),
}


class ReplicaSplit(NamedTuple):
    """Replicas by whether a transition is legal from their state."""

    valid: list[PartitionAndReplica]
    invalid: list[PartitionAndReplica]


def by_broker(replicas: Iterable[PartitionAndReplica]) -> dict[int, list[PartitionAndReplica]]:
    """Replicas grouped by the broker that hosts them, brokers and partitions in order."""
    grouped: dict[int, list[PartitionAndReplica]] = {}
    for item in sorted(set(replicas), key=lambda r: (r.replica, r.tp)):
        grouped.setdefault(item.replica, []).append(item)
    return grouped


def split_replicas(
    context: ControllerContext, replicas: Iterable[PartitionAndReplica], target: ReplicaStatus
) -> ReplicaSplit:
    """Separates legal from illegal transitions; an unknown replica is NON_EXISTENT."""
    split = ReplicaSplit([], [])
    for replica in replicas:
        is_valid = context.replica_state(replica) in VALID_PREVIOUS[target]
        (split.valid if is_valid else split.invalid).append(replica)
    return split


def move_replica(
    context: ControllerContext, replica: PartitionAndReplica, target: ReplicaStatus
) -> None:
    """Puts a replica into another state.

    Raises:
        InvariantViolation: The table forbids it.
    """
    current = context.replica_state(replica)
    if current not in VALID_PREVIOUS[target]:
        raise InvariantViolation(
            f"replica {replica} cannot go from {current.name} to {target.name}, "
            f"only from {sorted(state.name for state in VALID_PREVIOUS[target])}"
        )
    context.replica_states[replica] = target


def initial_states(context: ControllerContext) -> None:
    """Derives the state of every replica from a context that a new controller loaded."""
    online, offline = context.online_and_offline_replicas()
    context.replica_states.update(dict.fromkeys(online, _S.ONLINE))
    # Not OFFLINE yet: that transition removes it from the ISR.
    context.replica_states.update(dict.fromkeys(offline, _S.DELETION_INELIGIBLE))


# Targets that are announced to the broker by LeaderAndIsr, if there is a leader.
_TOLD_OF_LEADERS = frozenset({_S.NEW, _S.ONLINE})


@dataclass(slots=True)
class MovedReplicas:
    """Transitions that were made, and those that were not."""

    # The transitions that have to be announced to the replica's broker.
    to_announce: list[PartitionAndReplica] = field(default_factory=list)
    failures: dict[PartitionAndReplica, StateChangeFailed] = field(default_factory=dict)


def move_replicas(
    context: ControllerContext, replicas: Iterable[PartitionAndReplica], target: ReplicaStatus
) -> MovedReplicas:
    """Makes legal transitions that need no durable change."""
    assert target is not _S.OFFLINE, "leaves the ISR, which has to be durable first"
    moved = MovedReplicas()
    for replica in replicas:
        record = context.partition_leadership.get(replica.tp)
        was_new = context.replica_state(replica) is _S.NEW
        if target is _S.NEW and record and record.leader_and_isr.leader == replica.replica:
            moved.failures[replica] = StateChangeFailed(
                f"replica {replica} cannot be NEW while it is to lead"
            )
            continue
        if target is _S.ONLINE and was_new:
            _add_to_assignment(context, replica)
        elif target is _S.DELETION_STARTED or (target in _TOLD_OF_LEADERS and record is not None):
            moved.to_announce.append(replica)
        elif target is _S.NON_EXISTENT:
            assignment = context.partition_full_assignment(replica.tp)
            context.update_partition_assignment(
                replica.tp, assignment.remove_replica(replica.replica)
            )
        move_replica(context, replica, target)
        if target is _S.NON_EXISTENT:
            del context.replica_states[replica]
    return moved


def announce_moves(
    context: ControllerContext,
    batch: RequestBatch,
    replicas: Iterable[PartitionAndReplica],
    target: ReplicaStatus,
) -> None:
    """Adds the requests that announce the transitions to the replicas' brokers."""
    for tp, broker_id in replicas:
        if target is _S.DELETION_STARTED:
            batch.add_stop_replica([broker_id], tp, deletes=True)
        else:
            record = context.partition_leadership[tp]
            batch.add_leader_and_isr([broker_id], tp, record, is_new=target is _S.NEW)


def _add_to_assignment(context: ControllerContext, replica: PartitionAndReplica) -> None:
    tp, broker_id = replica
    assignment = context.partition_full_assignment(tp)
    if broker_id not in assignment.replicas:
        replicas = (*assignment.replicas, broker_id)
        context.update_partition_assignment(
            tp, ReplicaAssignment(replicas, assignment.adding, assignment.removing)
        )


# OFFLINE


@dataclass(slots=True)
class IsrRemoval:
    """The decision to take a broker's replicas out of the ISR."""

    changes: list[PartitionChanged] = field(default_factory=list)
    # Partitions whose ISR the broker is not in: there is nothing to write.
    unchanged: list[TopicPartition] = field(default_factory=list)


def announce_stops(batch: RequestBatch, replicas: Iterable[PartitionAndReplica]) -> None:
    """Adds the requests that make a broker stop serving its replicas; their logs stay."""
    for replica in replicas:
        batch.add_stop_replica([replica.replica], replica.tp, deletes=False)


def decide_isr_removal(
    context: ControllerContext,
    broker_id: int,
    partitions: Iterable[TopicPartition],
    *,
    raises_leader_epoch: bool,
) -> IsrRemoval:
    """Takes a broker out of the ISR of partitions whose leader and ISR are known.

    Args:
        context: Is only read.
        broker_id: The broker whose replicas go offline.
        partitions: All have leadership in the context.
        raises_leader_epoch: Whether an ISR change alone raises the leader epoch.
    """
    removal = IsrRemoval()
    for tp in partitions:
        old = context.partition_leadership[tp].leader_and_isr
        if broker_id not in old.isr:
            removal.unchanged.append(tp)
            continue
        was_leader = old.leader == broker_id
        state = replace(
            old,
            leader=NO_LEADER if was_leader else old.leader,
            leader_epoch=old.leader_epoch + (raises_leader_epoch or was_leader),
            isr=old.isr if len(old.isr) == 1 else tuple(r for r in old.isr if r != broker_id),
        )
        removal.changes.append(
            PartitionChanged(
                tp=tp,
                topic_id=context.topic_ids.get(tp.topic),
                state=state,
                controller_epoch=context.controller_epoch,
                is_first=False,
            )
        )
    return removal


def apply_offline(
    context: ControllerContext, broker_id: int, partitions: Iterable[TopicPartition]
) -> None:
    """Puts a broker's replicas OFFLINE that durably left the ISR, or whose partition has none."""
    for tp in partitions:
        move_replica(context, PartitionAndReplica(tp, broker_id), _S.OFFLINE)


def announce_isr_removal(
    context: ControllerContext,
    batch: RequestBatch,
    broker_id: int,
    partitions: Iterable[TopicPartition],
) -> None:
    """Adds the requests that announce leader and ISR to the other replicas and to all brokers."""
    for tp in partitions:
        if not context.is_topic_queued_for_deletion(tp.topic):
            others = [b for b in context.partition_replica_assignment(tp) if b != broker_id]
            batch.add_leader_and_isr(others, tp, context.partition_leadership[tp], is_new=False)


def announce_without_state(
    context: ControllerContext, batch: RequestBatch, partitions: Iterable[TopicPartition]
) -> None:
    """Adds the request to all brokers about partitions with neither leader nor ISR."""
    batch.add_update_metadata(context.live_or_shutting_down_broker_ids, partitions)
