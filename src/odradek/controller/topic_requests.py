"""Decisions on requests for topics: names, counts, placement. Pure.

A topic's name has 1 to 249 letters, digits, ``.``, ``_`` and ``-``, and is not ``.`` or ``..``. In
metric names ``.`` and ``_`` look alike, so two topics that differ only there collide, and the
second one is refused.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import BROKER_DEFAULT, NewPartitions, NewTopic
from odradek.metadata.changes import PartitionsAdded, TopicCreated
from odradek.metadata.placement import (
    BrokerRack,
    RandomSource,
    assign_replicas,
    check_assignment,
    extend_assignment,
)
from odradek.metadata.topic_names import colliding_name, find_name_problem
from odradek.model import ReplicaAssignment

__all__ = [
    "ConfigCheck",
    "accept_any_config",
    "check_topic_name",
    "decide_new_partitions",
    "decide_new_topic",
]

# Checks the overrides of a topic (name, configs) and returns those to store.
ConfigCheck: TypeAlias = Callable[[str, Mapping[str, str | None]], Mapping[str, str]]


def accept_any_config(_topic: str, configs: Mapping[str, str | None]) -> Mapping[str, str]:
    """Accepts all overrides that have a value."""
    return {name: value for name, value in configs.items() if value is not None}


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Refuses an illegal name, or one that collides with an existing topic.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION or TOPIC_ALREADY_EXISTS.
    """
    problem = find_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    existing = set(existing)
    if name in existing:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    colliding = sorted(other for other in existing if colliding_name(other) == colliding_name(name))
    if colliding:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with existing topics {', '.join(colliding)}: "
            "names must differ in more than '.' and '_'",
        )


def decide_new_topic(
    context: ControllerContext,
    topic: NewTopic,
    *,
    topic_id: uuid.UUID,
    config: ControllerConfig,
    check_configs: ConfigCheck,
    random: RandomSource,
    also_taken: Iterable[str] = (),
) -> TopicCreated:
    """Decides on a topic to create; nothing is changed.

    Args:
        context: The existing topics and brokers.
        topic: The requested topic.
        topic_id: The id it will have.
        config: Has the defaults of the counts.
        check_configs: Checks the overrides and returns those to store.
        random: For the placement.
        also_taken: Names that were decided on a moment ago.

    Raises:
        ApiError: The topic cannot be created; the message names the reason.
    """
    check_topic_name(topic.name, context.all_topics.union(also_taken))
    configs = check_configs(topic.name, topic.configs)
    if topic.assignment is not None:
        if (topic.partition_count, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "numbers of partitions and replicas cannot be given along with an assignment",
            )
        assignment = check_assignment(topic.assignment, frozenset(context.live_broker_ids))
    else:
        assignment = assign_replicas(
            _racks(context),
            partition_count=_or_default(topic.partition_count, config.default_partition_count),
            replication_factor=_or_default(
                topic.replication_factor, config.default_replication_factor
            ),
            random=random,
        )
    return TopicCreated(
        topic=topic.name, topic_id=topic_id, assignment=assignment, configs=dict(configs)
    )


def decide_new_partitions(context: ControllerContext, topic: NewPartitions) -> PartitionsAdded:
    """Decides on partitions to add to a topic; nothing is changed.

    Raises:
        ApiError: The partitions cannot be added; the message names the reason.
    """
    name = topic.name
    problem = find_name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r}: {problem}")
    existing = context.partition_assignments.get(name)
    if not existing or context.is_topic_queued_for_deletion(name):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist")
    if any(assignment.is_being_reassigned for assignment in existing.values()):
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of topic {name!r} are being reassigned"
        )
    added_count = topic.total_count - len(existing)
    if added_count <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {len(existing)} partitions, expected a larger number, found"
            f" {topic.total_count}",
        )
    added = _added_assignment(context, topic, existing, added_count)
    return PartitionsAdded(
        topic=name,
        topic_id=context.topic_ids[name],
        assignment={**existing, **added},
        added=frozenset(added),
        version=context.topic_versions[name],
    )


def _added_assignment(
    context: ControllerContext,
    topic: NewPartitions,
    existing: Mapping[int, ReplicaAssignment],
    added_count: int,
) -> dict[int, ReplicaAssignment]:
    if topic.assignments is None:
        return extend_assignment(existing, _racks(context), partition_count=topic.total_count)
    if len(topic.assignments) != added_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added_count} partitions are to be added, found {len(topic.assignments)} assignments",
        )
    return check_assignment(
        dict(enumerate(topic.assignments, start=len(existing))),
        frozenset(context.live_broker_ids),
        first_partition=len(existing),
        replication_factor=len(existing[0].replicas),
    )


def _racks(context: ControllerContext) -> list[BrokerRack]:
    live = context.live_broker_ids
    return [
        BrokerRack(broker.id, broker.rack)
        for broker in context.live_or_shutting_down_brokers
        if broker.id in live
    ]


def _or_default(number: int, default: int) -> int:
    return default if number == BROKER_DEFAULT else number
