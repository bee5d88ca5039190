"""How far the moves of a plan are, for `odradek reassign`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.model import ReplicaId, TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.reassignment_plans import ReassignmentPlan

__all__ = [
    "COMPLETE",
    "MOVING",
    "NOT_THERE",
    "current_replicas",
    "homes_of",
    "progress",
    "wait_for_moves",
]

COMPLETE, MOVING, NOT_THERE = "complete", "in progress", "not at its target"

_POLL_S = 0.2
# How long after the end of its move a partition may show its former replicas: the brokers learn of
# the end after the controller.
_METADATA_LAG_S = 10.0


async def current_replicas(
    admin: "Admin", targets: Mapping[TopicPartition, object]
) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of those partitions that exist."""
    from odradek.errors import ApiError

    found = await admin.describe_topics(sorted({tp.topic for tp in targets}))
    return {
        tp: tuple(one.replicas)
        for topic in found.values()
        if not isinstance(topic, ApiError)
        for one in topic.partitions
        if (tp := TopicPartition(topic.name, one.partition)) in targets
    }


async def homes_of(
    admin: "Admin", replicas: Mapping[ReplicaId, str]
) -> dict[ReplicaId, tuple[str | None, str | None]]:
    """The directory that each replica is in, and the one that it moves to."""
    from odradek.errors import ApiError

    if not replicas:
        return {}
    told = await admin.describe_log_dirs(
        sorted({replica.broker for replica in replicas}),
        partitions=sorted({replica.tp for replica in replicas}),
    )
    found: dict[ReplicaId, tuple[str | None, str | None]] = dict.fromkeys(replicas, (None, None))
    for broker, directories in told.items():
        if isinstance(directories, ApiError):
            raise directories
        for path, directory in directories.items():
            if isinstance(directory, ApiError):
                continue
            for tp, one in directory.replicas.items():
                current, future = found.get(ReplicaId(tp, broker), (None, None))
                if ReplicaId(tp, broker) in found:
                    found[ReplicaId(tp, broker)] = (
                        (current, path) if one.is_future else (path, future)
                    )
    return found


async def progress(
    admin: "Admin", plan: "ReassignmentPlan"
) -> tuple[dict[TopicPartition, str], dict[ReplicaId, str]]:
    """How far each partition is, and each replica with a directory.

    One that is moving elsewhere is not at its target.
    """
    targets = plan.replicas
    if not targets:
        return {}, {}
    moving = await admin.list_partition_reassignments(targets)
    current = await current_replicas(admin, targets)
    states = {}
    for tp, target in targets.items():
        move = moving.get(tp)
        if move is not None:
            goal = [replica for replica in move.replicas if replica not in move.removing]
            states[tp] = MOVING if goal == list(target) else NOT_THERE
        else:
            states[tp] = COMPLETE if current.get(tp) == tuple(target) else NOT_THERE
    homes = {}
    for replica, (path, future) in (await homes_of(admin, plan.directories)).items():
        goal_path = plan.directories[replica]
        homes[replica] = MOVING if future == goal_path else NOT_THERE
        if path == goal_path and future is None:
            homes[replica] = COMPLETE
        elif states[replica.tp] == COMPLETE:
            states[replica.tp] = homes[replica]
    return states, homes


async def wait_for_moves(
    admin: "Admin", plan: "ReassignmentPlan", lag_s: float = _METADATA_LAG_S
) -> tuple[dict[TopicPartition, str], dict[ReplicaId, str]]:
    """The `progress` once no move of a plan is under way and the brokers know of their ends.

    A partition that is elsewhere for `lag_s` after the last move was moved elsewhere, or cancelled.
    """
    import asyncio

    clock = asyncio.get_running_loop().time
    deadline = clock() + lag_s
    while True:
        states, homes = await progress(admin, plan)
        if MOVING in states.values():
            deadline = clock() + lag_s
        elif NOT_THERE not in states.values() or clock() >= deadline:
            return states, homes
        await asyncio.sleep(_POLL_S)
