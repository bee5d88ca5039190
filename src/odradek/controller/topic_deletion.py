"""Decisions on topic deletion: which topics can be deleted now, and each one's next step. Pure.

Deleting a topic cleans three places: the logs on all brokers, the brokers' metadata, and the store.
It is asynchronous and survives a change of controller: the mark in the store stays until the end.

1. *Queued*: the topic is marked and announced to brokers with leader -2.
2. *Started*: its partitions are NON_EXISTENT, its replicas on live brokers go OFFLINE and then
   DELETION_STARTED (StopReplica with delete).
3. Each answer moves a replica to DELETION_SUCCESSFUL, or to DELETION_INELIGIBLE.
4. All successful: the topic is removed from store and context, its mark last.

A topic is *ineligible* while a replica's broker is offline, a replica could not be deleted, or a
reassignment runs. That halts its deletion and does not cancel it: a returning broker, the end of
the reassignment or the next controller resumes it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from odradek.controller.context import ControllerContext, PartitionAndReplica, ReplicaStatus

__all__ = [
    "PartitionDeletion",
    "ResumePlan",
    "initially_ineligible",
    "mark_ineligible",
    "plan_partition_deletion",
    "plan_resume",
    "replicas_of_queued_topics",
    "resume_topics",
]

_S = ReplicaStatus


class ResumePlan(NamedTuple):
    """The next step of every queued topic."""

    complete: list[str]  # All replicas are deleted.
    retry: list[str]  # Ineligible replicas return to OFFLINE, so that a later pass finds them.
    start: list[str]


class PartitionDeletion(NamedTuple):
    """The replicas of topics whose deletion starts, by what is possible now."""

    ineligible: list[PartitionAndReplica]  # Their brokers are offline.
    to_delete: list[PartitionAndReplica]
    halted: list[str]  # Topics with ineligible replicas.


def plan_resume(context: ControllerContext) -> ResumePlan:
    """The next step of each queued topic, by name."""
    plan = ResumePlan([], [], [])
    for topic in sorted(context.topics_to_be_deleted):
        if context.are_all_replicas_in_state(topic, _S.DELETION_SUCCESSFUL):
            plan.complete.append(topic)
            continue
        if context.is_any_replica_in_state(topic, _S.DELETION_STARTED):
            continue  # Answers of brokers are still expected.
        if context.is_any_replica_in_state(topic, _S.DELETION_INELIGIBLE):
            plan.retry.append(topic)
        if context.is_topic_eligible_for_deletion(topic):
            plan.start.append(topic)
    return plan


def plan_partition_deletion(context: ControllerContext, topics: Iterable[str]) -> PartitionDeletion:
    """Splits the replicas of topics by whether they can be deleted now."""
    plan = PartitionDeletion([], [], [])
    for topic in topics:
        has_offline = False
        for replica in context.replicas_for_topic(topic):
            if not context.is_replica_online(replica.replica, replica.tp):
                has_offline = True
                plan.ineligible.append(replica)
            elif context.replica_state(replica) is not _S.DELETION_SUCCESSFUL:
                plan.to_delete.append(replica)
        if has_offline:
            plan.halted.append(topic)
    return plan


def mark_ineligible(context: ControllerContext, topics: Iterable[str]) -> list[str]:
    """Halts the deletion of those topics that are queued; returns them."""
    halted = sorted(set(topics) & context.topics_to_be_deleted)
    context.topics_ineligible_for_deletion.update(halted)
    return halted


def resume_topics(context: ControllerContext, topics: Iterable[str]) -> bool:
    """Makes queued topics eligible again; returns whether there were any."""
    reassigned = {tp.topic for tp in context.partitions_being_reassigned}
    resumed = (set(topics) & context.topics_to_be_deleted) - reassigned
    context.topics_ineligible_for_deletion -= resumed
    return bool(resumed)


def replicas_of_queued_topics(
    context: ControllerContext, replicas: Iterable[PartitionAndReplica]
) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
    """Replicas of topics queued for deletion, and the others."""
    queued: list[PartitionAndReplica] = []
    others: list[PartitionAndReplica] = []
    for replica in sorted(replicas):
        is_queued = context.is_topic_queued_for_deletion(replica.tp.topic)
        (queued if is_queued else others).append(replica)
    return queued, others


def initially_ineligible(context: ControllerContext, topics: Iterable[str]) -> set[str]:
    """Topics a new controller cannot delete yet: a replica is offline, or a reassignment runs."""
    reassigned = {tp.topic for tp in context.partitions_being_reassigned}
    return {
        topic
        for topic in topics
        if topic in reassigned
        or any(
            not context.is_replica_online(replica.replica, replica.tp)
            for replica in context.replicas_for_topic(topic)
        )
    }
