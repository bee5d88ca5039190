"""Reassignments: replicas of partitions that move to other brokers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.leaders import api_error, by_topic
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

__all__ = ["Reassignment", "alter_partition_reassignments", "list_partition_reassignments"]


class Reassignment(NamedTuple):
    """A partition whose replicas move."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def alter_partition_reassignments(
    client: Client,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_factor_change: bool = True,
    deadline: Deadline,
) -> dict[TopicPartition, ApiError | None]:
    """Begins moves to other replicas; a target of None cancels the move that runs.

    Raises:
        ApiError: The whole request was refused.
        TimeoutError: No controller answered in time.
    """
    if not targets:
        return {}
    topics: dict[str, list[ReassignablePartition]] = {}
    for tp, replicas in targets.items():
        topics.setdefault(tp.topic, []).append(
            ReassignablePartition(
                partition_index=tp.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=deadline.left_ms(),
        allow_replication_factor_change=allow_replication_factor_change,
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )

    async def attempt() -> AlterPartitionReassignmentsResponse:
        # A move that has begun may be asked for again: the target is the same.
        response = await client.ask_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            request,
            AlterPartitionReassignmentsResponse,
            deadline,
            repeatable=None not in targets.values(),
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, response.error_message, "reassignments")
        return response

    response = await client.retry("ALTER_PARTITION_REASSIGNMENTS", attempt, deadline)
    results: dict[TopicPartition, ApiError | None] = {}
    for topic in response.responses:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            is_done = one.error_code == ErrorCode.NONE
            results[tp] = None if is_done else api_error(one.error_code, one.error_message, tp)
    return results


async def list_partition_reassignments(
    client: Client, partitions: Iterable[TopicPartition] | None, *, deadline: Deadline
) -> dict[TopicPartition, Reassignment]:
    """Partitions whose replicas move now, among those that are named, or all.

    Raises:
        ApiError: The controller refuses.
    """
    nested = None if partitions is None else by_topic(dict.fromkeys(partitions))
    request = ListPartitionReassignmentsRequest(
        timeout_ms=deadline.left_ms(),
        topics=None
        if nested is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=list(some))
            for name, some in nested.items()
        ],
    )

    async def attempt() -> ListPartitionReassignmentsResponse:
        response = await client.ask_controller(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            request,
            ListPartitionReassignmentsResponse,
            deadline,
            repeatable=True,
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, response.error_message, "reassignments")
        return response

    response = await client.retry("LIST_PARTITION_REASSIGNMENTS", attempt, deadline)
    return {
        TopicPartition(topic.name, one.partition_index): Reassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in response.topics
        for one in topic.partitions
    }
