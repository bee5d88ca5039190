"""The replica machine: states of replicas, and what their brokers are told.

::

    NON_EXISTENT ─► NEW ─► ONLINE ◄─► OFFLINE ─► DELETION_STARTED ─► DELETION_SUCCESSFUL ─► (gone)
                     └────────────────►┘ ▲ │          │
                           ▲             │ ▼          ▼
                           └────────── DELETION_INELIGIBLE

ONLINE and OFFLINE also lead to themselves. Everything else is illegal, is reported with state and
target, and leaves the replica where it is.

================  ==========================================================================
Target            what happens
================  ==========================================================================
NEW               LeaderAndIsr(is_new) to its broker, if the partition has a leader
ONLINE            the same without is_new, unless the replica was NEW: it has been told then
OFFLINE           StopReplica; it leaves the ISR, durably, and the other replicas are told
DELETION_STARTED  StopReplica with delete
NON_EXISTENT      it leaves the assignment in memory
others            nothing but the state
================  ==========================================================================

Only OFFLINE needs something durable; it goes in rounds like the way of a partition to ONLINE:
`decide_isr_removal`, commit, `apply_isr_removal`, and `learn_conflict` of the partition machine.
The last member never leaves the ISR, or the records it alone has would be given up; a leader that
goes offline leaves the partition without one all the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.controller.context import ControllerContext, PartitionAndReplica, ReplicaStatus
from odradek.controller.partition_machine import StateChangeFailed, committed_record
from odradek.controller.request_batch import RequestBatch
from odradek.errors import InvariantViolation
from odradek.metadata.changes import PartitionChanged
from odradek.metadata.ports import Committed
from odradek.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition

__all__ = [
    "VALID_PREVIOUS",
    "IsrRemoval",
    "ReplicaSplit",
    "apply_isr_removal",
    "apply_offline_without_state",
    "by_broker",
    "decide_isr_removal",
    "initial_states",
    "move_replica",
    "move_replicas",
    "split_replicas",
    "stop_replicas",
]

_S = ReplicaStatus

# Target → the states a replica may come from.
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
    """Replicas by whether a transition is legal from where they are."""

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
    """Sorts out illegal transitions; an unknown replica starts as NON_EXISTENT."""
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
        InvariantViolation: the table forbids it.
    """
    current = context.replica_state(replica)
    if current not in VALID_PREVIOUS[target]:
        raise InvariantViolation(
            f"replica {replica} cannot go from {current.name} to {target.name}, "
            f"only from {sorted(state.name for state in VALID_PREVIOUS[target])}"
        )
    context.replica_states[replica] = target


def initial_states(context: ControllerContext) -> None:
    """Gives every replica the state a new controller finds it in."""
    online, offline = context.online_and_offline_replicas()
    context.replica_states.update(dict.fromkeys(online, _S.ONLINE))
    # Not OFFLINE yet: that transition takes it out of the ISR.
    context.replica_states.update(dict.fromkeys(offline, _S.DELETION_INELIGIBLE))


def move_replicas(
    context: ControllerContext,
    batch: RequestBatch,
    replicas: Iterable[PartitionAndReplica],
    target: ReplicaStatus,
) -> dict[PartitionAndReplica, StateChangeFailed]:
    """Makes legal transitions that need nothing durable; returns those that failed."""
    assert target is not _S.OFFLINE, "leaves the ISR, which has to be durable first"
    failures: dict[PartitionAndReplica, StateChangeFailed] = {}
    for replica in replicas:
        match target:
            case _S.NEW:
                failure = _announce_new(context, batch, replica)
                if failure is not None:
                    failures[replica] = failure
                    continue
            case _S.ONLINE:
                _announce_online(context, batch, replica)
            case _S.DELETION_STARTED:
                batch.add_stop_replica([replica.replica], replica.tp, deletes=True)
            case _S.NON_EXISTENT:
                assignment = context.partition_full_assignment(replica.tp)
                context.update_partition_assignment(
                    replica.tp, assignment.remove_replica(replica.replica)
                )
            case _:
                pass
        move_replica(context, replica, target)
        if target is _S.NON_EXISTENT:
            del context.replica_states[replica]
    return failures


def _announce_new(
    context: ControllerContext, batch: RequestBatch, replica: PartitionAndReplica
) -> StateChangeFailed | None:
    tp, broker_id = replica
    record = context.partition_leadership.get(tp)
    if record is None:
        return None
    if record.leader_and_isr.leader == broker_id:
        return StateChangeFailed(f"replica {replica} cannot be NEW while it is to lead")
    batch.add_leader_and_isr([broker_id], tp, record, is_new=True)
    return None


def _announce_online(
    context: ControllerContext, batch: RequestBatch, replica: PartitionAndReplica
) -> None:
    tp, broker_id = replica
    if context.replica_state(replica) is _S.NEW:
        assignment = context.partition_full_assignment(tp)
        if broker_id not in assignment.replicas:
            context.update_partition_assignment(
                tp,
                ReplicaAssignment(
                    (*assignment.replicas, broker_id), assignment.adding, assignment.removing
                ),
            )
        return
    record = context.partition_leadership.get(tp)
    if record is not None:
        batch.add_leader_and_isr([broker_id], tp, record, is_new=False)


# -- OFFLINE.


@dataclass(slots=True)
class IsrRemoval:
    """A broker's replicas on their way out of the ISR."""

    changes: list[PartitionChanged] = field(default_factory=list)
    # Partitions whose ISR the broker is not in: there is nothing to write.
    unchanged: list[TopicPartition] = field(default_factory=list)


def stop_replicas(batch: RequestBatch, replicas: Iterable[PartitionAndReplica]) -> None:
    """Tells their broker to stop serving them; what it holds stays."""
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
        state = LeaderAndIsr(
            leader=NO_LEADER if was_leader else old.leader,
            leader_epoch=old.leader_epoch + (raises_leader_epoch or was_leader),
            isr=old.isr if len(old.isr) == 1 else tuple(r for r in old.isr if r != broker_id),
            partition_version=old.partition_version,
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


def apply_isr_removal(
    context: ControllerContext,
    batch: RequestBatch,
    broker_id: int,
    *,
    committed: Iterable[Committed],
    unchanged: Iterable[TopicPartition],
) -> None:
    """Takes over what is durable, tells the other replicas, and puts the replicas OFFLINE."""
    done = list(unchanged)
    for change, version in committed:
        assert isinstance(change, PartitionChanged)
        context.partition_leadership[change.tp] = committed_record(change, version)
        done.append(change.tp)
    for tp in done:
        if not context.is_topic_queued_for_deletion(tp.topic):
            others = [b for b in context.partition_replica_assignment(tp) if b != broker_id]
            batch.add_leader_and_isr(others, tp, context.partition_leadership[tp], is_new=False)
        move_replica(context, PartitionAndReplica(tp, broker_id), _S.OFFLINE)


def apply_offline_without_state(
    context: ControllerContext, batch: RequestBatch, replicas: Iterable[PartitionAndReplica]
) -> None:
    """Puts replicas OFFLINE whose partition has neither leader nor ISR."""
    for replica in replicas:
        batch.add_update_metadata(context.live_or_shutting_down_broker_ids, [replica.tp])
        move_replica(context, replica, _S.OFFLINE)
