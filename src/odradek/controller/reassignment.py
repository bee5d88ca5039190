"""Decisions on reassignments: moving the replicas of partitions to other brokers. Pure.

ORS are the replicas before, TRS the target, AR those only in TRS (adding), RR those only in ORS
(removing). While the reassignment runs, the replicas of the partition are TRS and then RR::

    ReplicaAssignment([1, 2]).reassign_to([2, 3])    replicas [2, 3, 1], adding [3], removing [1]

The topic's node stores replicas, AR and RR; they alone tell the next controller how far it is:

====================  ============================================================================
Begin                 store replicas, AR, RR; stop replicas that an overridden target had added
A: TRS not in ISR     raise the leader epoch, LeaderAndIsr to all replicas, AR become NEW; then
                      wait until the leader has brought all of TRS into the ISR
B: TRS in the ISR     AR become ONLINE; the leader moves into TRS, or its epoch is raised; RR leave
                      the ISR and are deleted; at last the store has TRS alone
====================  ============================================================================

B stores its result last: a controller that dies in its middle leaves AR and RR in the store, and
the next one repeats the steps, all of which may be repeated.

A null target cancels: the target is ORS, which is in the ISR or returns to it, and AR are stopped.
A second request overrides the first: its ORS are those of the first, never replicas that the
first one was adding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from odradek.controller.context import ControllerContext
from odradek.controller.request_batch import RequestBatch
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.changes import AssignmentChanged, PartitionChanged
from odradek.model import NO_LEADER, ReplicaAssignment, TopicPartition

__all__ = [
    "LeaderMove",
    "announce_replicas",
    "decide_assignments",
    "decide_epoch_bump",
    "decide_reassignment",
    "is_complete",
    "leader_of",
    "plan_leader_move",
]


def decide_reassignment(
    context: ControllerContext,
    tp: TopicPartition,
    target: tuple[int, ...] | None,
    *,
    allows_other_count: bool = True,
) -> ReplicaAssignment:
    """The assignment by which a reassignment begins; nothing is changed.

    Args:
        context: The assignment now, and the brokers.
        tp: The partition.
        target: Its replicas at the end; None cancels the reassignment that runs.
        allows_other_count: Whether the number of replicas may change.

    Raises:
        ApiError: It is refused, with the code that Kafka gives for the reason.
    """
    current = context.partition_full_assignment(tp)
    if target is None:
        if not current.is_being_reassigned:
            raise ApiError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"partition {tp} is not being reassigned"
            )
        wanted = current.reassign_to(current.origin)
    else:
        _check_target(context, tp, current, target)
        wanted = current.reassign_to(target)
    if not current.replicas or context.is_topic_queued_for_deletion(tp.topic):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist, or is deleted"
        )
    record = context.partition_leadership.get(tp)
    isr = () if record is None else record.leader_and_isr.isr
    if isr and not set(isr) & set(wanted.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partition {tp}: none of the replicas in sync {list(isr)} would be left, found"
            f" {list(wanted.replicas)}",
        )
    if not allows_other_count and len(wanted.target) != len(current.origin):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"partition {tp} has {len(current.origin)} replicas, and the request does not allow"
            f" another number; found {list(wanted.target)}",
        )
    return wanted


def _check_target(
    context: ControllerContext,
    tp: TopicPartition,
    current: ReplicaAssignment,
    target: tuple[int, ...],
) -> None:
    if not target:
        problem = "expected at least one replica, found an empty list"
    elif len(set(target)) != len(target):
        problem = f"expected different brokers, found {list(target)}"
    elif min(target) < 0:
        problem = f"expected broker ids from 0, found {list(target)}"
    else:
        adding = current.reassign_to(target).adding
        missing = set(adding) - context.live_broker_ids
        if not missing:
            return
        problem = (
            f"expected new replicas on live brokers {sorted(context.live_broker_ids)}, found"
            f" {sorted(missing)} in {list(target)}"
        )
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {tp}: {problem}")


def decide_assignments(
    context: ControllerContext, wanted: Mapping[TopicPartition, ReplicaAssignment]
) -> list[AssignmentChanged]:
    """One change per topic, whatever the number of its partitions."""
    by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
    for tp, assignment in wanted.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = assignment
    return [
        AssignmentChanged(
            topic=topic,
            topic_id=context.topic_ids[topic],
            assignment={**context.partition_assignments[topic], **partitions},
            version=context.topic_versions[topic],
        )
        for topic, partitions in sorted(by_topic.items())
        if topic in context.all_topics
    ]


def decide_epoch_bump(
    context: ControllerContext, partitions: Iterable[TopicPartition]
) -> list[PartitionChanged]:
    """Raises the leader epoch and changes nothing else, for partitions with leader and ISR.

    Replicas then take the new list of replicas, which they would ignore in an epoch they know.
    """
    changes = []
    for tp in partitions:
        record = context.partition_leadership.get(tp)
        if record is None:
            continue
        old = record.leader_and_isr
        changes.append(
            PartitionChanged(
                tp=tp,
                topic_id=context.topic_ids.get(tp.topic),
                state=replace(old, leader_epoch=old.leader_epoch + 1),
                controller_epoch=context.controller_epoch,
                is_first=False,
            )
        )
    return changes


def announce_replicas(context: ControllerContext, batch: RequestBatch, tp: TopicPartition) -> None:
    """Adds the requests that announce a partition to all its replicas and to all brokers."""
    record = context.partition_leadership[tp]
    assignment = context.partition_full_assignment(tp)
    batch.add_leader_and_isr(assignment.origin, tp, record, is_new=False)
    batch.add_leader_and_isr(assignment.adding, tp, record, is_new=True)


def is_complete(context: ControllerContext, tp: TopicPartition) -> bool:
    """Whether all target replicas are in the ISR as the context knows it."""
    assignment = context.partition_full_assignment(tp)
    if not assignment.is_being_reassigned:
        return True
    record = context.partition_leadership.get(tp)
    return record is not None and set(assignment.target) <= set(record.leader_and_isr.isr)


def leader_of(context: ControllerContext, tp: TopicPartition) -> int:
    """The leader as the context knows it."""
    record = context.partition_leadership.get(tp)
    return NO_LEADER if record is None else record.leader_and_isr.leader


class LeaderMove(NamedTuple):
    """Partitions whose new replicas have caught up, by what becomes of their leader."""

    elect: list[TopicPartition]  # The leader is no target replica, or is offline.
    keep: list[TopicPartition]  # Only its epoch is raised.


def plan_leader_move(
    context: ControllerContext, partitions: Iterable[TopicPartition]
) -> LeaderMove:
    """Separates partitions whose leader has to move into the target replicas."""
    plan = LeaderMove([], [])
    for tp in partitions:
        leader = leader_of(context, tp)
        stays = leader in context.partition_full_assignment(
            tp
        ).target and context.is_replica_online(leader, tp)
        (plan.keep if stays else plan.elect).append(tp)
    return plan
