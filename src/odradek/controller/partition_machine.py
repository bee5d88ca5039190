"""The partition machine: states of partitions, and the steps to bring one online. Pure.

::

    NON_EXISTENT ──► NEW ──► ONLINE ◄──► OFFLINE ──► NON_EXISTENT
                      └───────────────────►┘

ONLINE and OFFLINE also lead to themselves: a re-election, and a second loss. Any other transition
is illegal, is reported with state and target, and leaves the partition in its state.

Only the transition to ONLINE needs a durable change. It runs in rounds:

1. `decide_online` makes one PartitionChanged per partition: a first leader for those that are NEW,
   an election for those that are ONLINE or OFFLINE. It reads nothing: the change carries the
   version the controller knows, and fails if the store holds another one.
2. The driver commits, and folds the durable changes into the context
   (`odradek.controller.folding`).
3. `apply_online` puts those partitions ONLINE; `learn_conflict` adopts the record that the store
   holds instead, and returns whether the partition is decided again in the next round.
4. `announce_online` computes the requests from the committed changes.
5. Where no replica can be elected there is nothing to commit, so no version check shows whether the
   known ISR is current: the driver reads the partition once and, if it differs, decides again.

A NEW partition is initialized, never elected for: it has no ISR to choose from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from odradek.controller.context import ControllerContext, PartitionStatus
from odradek.controller.election import Candidates, Election, Strategy, elect, elect_first
from odradek.controller.request_batch import RequestBatch
from odradek.errors import InvariantViolation, OdradekError
from odradek.metadata.changes import PartitionChanged
from odradek.metadata.ports import Committed, Conflict, PartitionRecord
from odradek.model import INITIAL_LEADER_EPOCH, LeaderAndIsr, TopicPartition

__all__ = [
    "VALID_PREVIOUS",
    "OnlineDecision",
    "PartitionSplit",
    "StateChangeFailed",
    "announce_online",
    "apply_online",
    "decide_online",
    "initial_states",
    "learn_conflict",
    "move_partition",
    "split_partitions",
    "topics_without_live_isr",
]

_S = PartitionStatus

# Target → the states from which a partition may reach it.
VALID_PREVIOUS: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.NON_EXISTENT: frozenset({_S.OFFLINE}),
}


class StateChangeFailed(OdradekError):  # noqa: N818 - Kafka's word, and a value more often than raised
    """A partition or replica could not be brought to its target."""


class PartitionSplit(NamedTuple):
    """Partitions by whether a transition is legal from their state."""

    valid: list[TopicPartition]
    invalid: list[TopicPartition]


def split_partitions(
    context: ControllerContext, partitions: Iterable[TopicPartition], target: PartitionStatus
) -> PartitionSplit:
    """Separates legal from illegal transitions; an unknown partition is NON_EXISTENT."""
    split = PartitionSplit([], [])
    for tp in partitions:
        is_valid = context.partition_state(tp) in VALID_PREVIOUS[target]
        (split.valid if is_valid else split.invalid).append(tp)
    return split


def move_partition(context: ControllerContext, tp: TopicPartition, target: PartitionStatus) -> None:
    """Puts a partition into another state.

    Raises:
        InvariantViolation: The table forbids it.
    """
    current = context.partition_state(tp)
    if current not in VALID_PREVIOUS[target]:
        raise InvariantViolation(
            f"partition {tp} cannot go from {current.name} to {target.name}, "
            f"only from {sorted(state.name for state in VALID_PREVIOUS[target])}"
        )
    context.put_partition_state(tp, target)


def initial_states(context: ControllerContext) -> None:
    """Derives the state of every partition from a context that a new controller loaded."""
    for tp in context.all_partitions():
        record = context.partition_leadership.get(tp)
        if record is None:
            state = _S.NEW
        elif context.is_replica_online(record.leader_and_isr.leader, tp):
            state = _S.ONLINE
        else:
            state = _S.OFFLINE
        context.put_partition_state(tp, state)


def topics_without_live_isr(
    context: ControllerContext, partitions: Iterable[TopicPartition]
) -> list[str]:
    """Topics whose configuration decides on an unclean election; only theirs is read."""
    topics: dict[str, None] = {}
    for tp in partitions:
        record = context.partition_leadership.get(tp)
        if record is not None and not any(
            context.is_replica_online(replica, tp) for replica in record.leader_and_isr.isr
        ):
            topics[tp.topic] = None
    return list(topics)


@dataclass(slots=True)
class OnlineDecision:
    """The decision on partitions that are to be brought online."""

    changes: list[PartitionChanged] = field(default_factory=list)
    elections: dict[TopicPartition, Election] = field(default_factory=dict)
    failures: dict[TopicPartition, StateChangeFailed] = field(default_factory=dict)


def decide_online(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    strategy: Strategy | None,
    *,
    unclean_topics: frozenset[str] = frozenset(),
    decision: OnlineDecision | None = None,
) -> OnlineDecision:
    """Decides leader and ISR of partitions for which ONLINE is a legal target.

    Args:
        context: Is only read.
        partitions: In the states NEW, ONLINE or OFFLINE.
        strategy: Needed unless all partitions are NEW.
        unclean_topics: Topics that permit an unclean election under OFFLINE.
        decision: The decision on other partitions; this call adds to it and returns it.

    Raises:
        ValueError: An election is needed and there is no strategy; nothing was decided.
    """
    partitions = list(partitions)
    to_elect = [tp for tp in partitions if context.partition_state(tp) is not _S.NEW]
    if to_elect and strategy is None:
        raise ValueError(f"a strategy is needed to elect leaders of {[str(t) for t in to_elect]}")
    decision = OnlineDecision() if decision is None else decision
    for tp in partitions:
        if context.partition_state(tp) is _S.NEW:
            _decide_first(context, tp, decision)
        else:
            assert strategy is not None
            is_permitted = tp.topic in unclean_topics
            _decide_election(context, tp, strategy, decision, is_unclean_permitted=is_permitted)
    return decision


def _decide_first(context: ControllerContext, tp: TopicPartition, decision: OnlineDecision) -> None:
    assignment = context.partition_full_assignment(tp)
    election = elect_first(assignment, _live(context, tp))
    if election is None:
        decision.failures[tp] = StateChangeFailed(
            f"{tp}: none of its replicas {list(assignment.replicas)} is alive"
        )
        return
    decision.elections[tp] = election
    state = LeaderAndIsr(
        leader=election.leader, leader_epoch=INITIAL_LEADER_EPOCH, isr=election.isr
    )
    decision.changes.append(_change(context, tp, state, is_first=True))


def _decide_election(
    context: ControllerContext,
    tp: TopicPartition,
    strategy: Strategy,
    decision: OnlineDecision,
    *,
    is_unclean_permitted: bool,
) -> None:
    record = context.partition_leadership.get(tp)
    if record is None:
        decision.failures[tp] = StateChangeFailed(f"{tp}: no leader and ISR are known")
        return
    old = record.leader_and_isr
    is_shutdown = strategy is Strategy.CONTROLLED_SHUTDOWN
    candidates = Candidates(
        context.partition_full_assignment(tp),
        old.isr,
        _live(context, tp, include_shutting_down=is_shutdown),
        frozenset(context.shutting_down_broker_ids),
    )
    election = elect(strategy, candidates, is_unclean_permitted=is_unclean_permitted)
    if election is None:
        decision.failures[tp] = StateChangeFailed(
            f"{tp}: no leader by strategy {strategy.value}; replicas "
            f"{list(candidates.assignment.replicas)}, ISR {list(old.isr)}, "
            f"live {sorted(candidates.live)}"
        )
        return
    decision.elections[tp] = election
    state = replace(
        old,
        leader=election.leader,
        leader_epoch=old.leader_epoch + 1,
        isr=election.isr,
        is_recovering=old.is_recovering or election.is_unclean,
    )
    decision.changes.append(_change(context, tp, state, is_first=False))


def apply_online(
    context: ControllerContext, committed: Iterable[Committed]
) -> dict[TopicPartition, LeaderAndIsr]:
    """Puts partitions ONLINE whose leader and ISR are durable, and in the context already."""
    done: dict[TopicPartition, LeaderAndIsr] = {}
    for change, _ in committed:
        assert isinstance(change, PartitionChanged)
        move_partition(context, change.tp, _S.ONLINE)
        done[change.tp] = context.partition_leadership[change.tp].leader_and_isr
    return done


def announce_online(
    context: ControllerContext,
    batch: RequestBatch,
    elections: Mapping[TopicPartition, Election],
    committed: Iterable[Committed],
) -> None:
    """Adds the requests that announce applied changes to the replicas and to all brokers."""
    for change, _ in committed:
        assert isinstance(change, PartitionChanged)
        batch.add_leader_and_isr(
            elections[change.tp].recipients,
            change.tp,
            context.partition_leadership[change.tp],
            is_new=change.is_first,
        )


def learn_conflict(context: ControllerContext, conflict: Conflict) -> StateChangeFailed | None:
    """Adopts the record the store holds instead of our change; None: decide again."""
    change, found = conflict
    assert isinstance(change, PartitionChanged)
    tp = change.tp
    if found is None:
        # A first state expects no node: its write was lost.
        return None if change.is_first else StateChangeFailed(f"{tp}: its state has vanished")
    assert isinstance(found, PartitionRecord)
    if found.controller_epoch > context.controller_epoch:
        return StateChangeFailed(
            f"{tp}: a controller of epoch {found.controller_epoch} has written its state, "
            f"ours is {context.controller_epoch}"
        )
    if change.is_first:
        return StateChangeFailed(f"{tp}: it has a state already")
    context.partition_leadership[tp] = found
    return None


def _change(
    context: ControllerContext, tp: TopicPartition, state: LeaderAndIsr, *, is_first: bool
) -> PartitionChanged:
    return PartitionChanged(
        tp=tp,
        topic_id=context.topic_ids.get(tp.topic),
        state=state,
        controller_epoch=context.controller_epoch,
        is_first=is_first,
    )


def _live(
    context: ControllerContext, tp: TopicPartition, *, include_shutting_down: bool = False
) -> frozenset[int]:
    return frozenset(
        replica
        for replica in context.partition_replica_assignment(tp)
        if context.is_replica_online(replica, tp, include_shutting_down=include_shutting_down)
    )
