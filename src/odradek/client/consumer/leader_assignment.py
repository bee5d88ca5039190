"""The work of a group's leader: assigns partitions to all members, by the strategy they share."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.assignors import (
    Assignor,
    TopicPartitions,
    encode_assignment,
    parse_subscription,
)
from odradek.client.client import Client
from odradek.client.cluster import Node, TopicView
from odradek.errors import ApiError, DecodeError, ErrorCode
from odradek.protocol.messages.join_group import JoinGroupResponse

__all__ = ["LeaderAssignment", "assign_as_leader"]


class LeaderAssignment(NamedTuple):
    """The assignments to send, and the partition counts that the leader watches from now on."""

    # By member, encoded; empty if the coordinator wants none.
    assignments: dict[str, bytes]
    # How many partitions each topic of the group has, 0 for one that does not exist.
    partition_counts: dict[str, int]


async def assign_as_leader(
    client: Client, joined: JoinGroupResponse, assignor: Assignor
) -> LeaderAssignment:
    """Looks the group's topics up and assigns their partitions to its members.

    Raises:
        ApiError: A member's subscription is unreadable, or no broker describes the topics.
    """
    members = {}
    for member in joined.members:
        try:
            members[member.member_id] = parse_subscription(
                member.metadata, member.group_instance_id
            )
        except DecodeError as error:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"member {member.member_id} has an unreadable subscription: {error}",
            ) from error
    wanted = sorted({topic for member in members.values() for topic in member.topics})
    found = await client.topics(wanted) if wanted else {}
    topics = {
        name: _topic_partitions(topic, client.cluster.nodes)
        for name, topic in found.items()
        if isinstance(topic, TopicView)
    }
    counts = {name: topics[name].count if name in topics else 0 for name in wanted}
    if joined.skip_assignment:
        return LeaderAssignment({}, counts)
    # On another thread, so that heartbeats go on.
    assigned = await asyncio.to_thread(assignor.assign, topics, members)  # noqa: TID251 - a client has no threads of its own
    return LeaderAssignment(
        {member: encode_assignment(partitions) for member, partitions in assigned.items()}, counts
    )


def _topic_partitions(topic: TopicView, nodes: Mapping[int, Node]) -> TopicPartitions:
    racks = tuple(
        frozenset(
            rack for node_id in one.replicas if node_id in nodes and (rack := nodes[node_id].rack)
        )
        for one in topic.partitions
    )
    return TopicPartitions(count=len(topic.partitions), racks=racks if any(racks) else ())
