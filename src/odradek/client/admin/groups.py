"""Consumer groups, seen from outside: their list, their members, their committed offsets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from odradek.client.client import Client
from odradek.client.cluster import Node
from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.client.consumer.coordinator import Coordinator
from odradek.client.consumer.membership import NO_MEMBER
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.security.operations import Operation, parse_operation_bits

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "alter_group_offsets",
    "delete_group_offsets",
    "delete_groups",
    "describe_groups",
    "list_group_offsets",
    "list_groups",
    "remove_group_members",
]

R = TypeVar("R")


class GroupListing(NamedTuple):
    """A group that a broker coordinates; empty from brokers that do not report it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member of a group. Metadata and assignment are the protocol's own bytes."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group and its members."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[GroupMember, ...]
    # The operations that the caller's principal may do; None unless asked for.
    authorized_operations: frozenset[Operation] | None = None
    # The address of the coordinator, as host:port.
    coordinator_address: str = ""


async def list_groups(
    client: Client,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    deadline: Deadline,
) -> list[GroupListing]:
    """The groups of all brokers, by name.

    Raises:
        ApiError: A broker refuses or does not answer.
    """
    await client.refresh((), deadline)
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

    async def ask(node_id: int) -> ListGroupsResponse:
        async def attempt() -> ListGroupsResponse:
            response = await client.ask_broker(
                node_id, ApiKey.LIST_GROUPS, request, ListGroupsResponse, deadline
            )
            if response.error_code != ErrorCode.NONE:
                raise api_error(response.error_code, None, f"groups of broker {node_id}")
            return response

        return await client.retry("LIST_GROUPS", attempt, deadline)

    answers = await asyncio.gather(*map(ask, sorted(client.cluster.nodes)))
    return sorted(
        {
            GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
            for answer in answers
            for one in answer.groups
        }
    )


async def describe_groups(
    client: Client,
    group_ids: Iterable[str],
    *,
    include_authorized_operations: bool = False,
    deadline: Deadline,
) -> dict[str, GroupDescription | ApiError]:
    """Each group with its members; one that does not exist is GROUP_ID_NOT_FOUND."""

    async def describe(coordinator: Coordinator) -> GroupDescription:
        group_id = coordinator.group_id
        response = await coordinator.ask(
            ApiKey.DESCRIBE_GROUPS,
            DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=include_authorized_operations
            ),
            DescribeGroupsResponse,
            deadline,
        )
        (told,) = response.groups
        coordinator.check(told.error_code, "DESCRIBE_GROUPS")
        if told.group_state == "Dead":  # Before version 6: there is no such group.
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        node_id = await coordinator.find(deadline)
        node = client.cluster.nodes.get(node_id)
        return GroupDescription(
            group_id,
            told.group_state,
            told.protocol_type,
            told.protocol_data,
            node_id,
            tuple(
                GroupMember(
                    one.member_id,
                    one.group_instance_id,
                    one.client_id,
                    one.client_host,
                    bytes(one.member_metadata),
                    bytes(one.member_assignment),
                )
                for one in told.members
            ),
            parse_operation_bits(told.authorized_operations),
            "" if node is None else _address(node),
        )

    return await _per_group(client, group_ids, describe, deadline)


def _address(node: Node) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


async def delete_groups(
    client: Client, group_ids: Iterable[str], *, deadline: Deadline
) -> dict[str, ApiError | None]:
    """Deletes groups without members; None for each that is gone."""

    async def delete(coordinator: Coordinator) -> None:
        response = await coordinator.ask(
            ApiKey.DELETE_GROUPS,
            DeleteGroupsRequest(groups_names=[coordinator.group_id]),
            DeleteGroupsResponse,
            deadline,
        )
        (told,) = response.results
        coordinator.check(told.error_code, "DELETE_GROUPS")

    return await _per_group(client, group_ids, delete, deadline)


async def remove_group_members(
    client: Client,
    group_id: str,
    instance_ids: Iterable[str] | None,
    *,
    reason: str,
    deadline: Deadline,
) -> dict[str, ApiError | None]:
    """Removes static members by instance id, or every member there is; None for each that is out.

    Members that have no instance id are named by their member id.

    Raises:
        ApiError: The group cannot be asked.
    """
    if instance_ids is not None:
        wanted = {
            one: MemberIdentity(member_id="", group_instance_id=one, reason=reason)
            for one in instance_ids
        }
    else:
        told = (await describe_groups(client, [group_id], deadline=deadline))[group_id]
        if isinstance(told, ApiError):
            raise told
        wanted = {
            one.group_instance_id or one.member_id: MemberIdentity(
                member_id="" if one.group_instance_id else one.member_id,
                group_instance_id=one.group_instance_id,
                reason=reason,
            )
            for one in told.members
        }
    if not wanted:
        return {}

    async def remove(coordinator: Coordinator) -> dict[str, ApiError | None]:
        request = LeaveGroupRequest(group_id=group_id, members=tuple(wanted.values()))
        response = await coordinator.ask(ApiKey.LEAVE_GROUP, request, LeaveGroupResponse, deadline)
        coordinator.check(response.error_code, "LEAVE_GROUP")
        return {
            (name := one.group_instance_id or one.member_id): None
            if one.error_code == ErrorCode.NONE
            else api_error(one.error_code, None, f"member {name!r}")
            for one in response.members
        }

    results = (await _per_group(client, [group_id], remove, deadline))[group_id]
    if isinstance(results, ApiError):
        raise results
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {name: results.get(name, missing) for name in wanted}


async def list_group_offsets(
    client: Client,
    group_ids: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool = False,
    deadline: Deadline,
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | ApiError]:
    """The committed offsets of each group, of all partitions unless some are named for it."""
    wanted: dict[str, list[TopicPartition] | None]
    if isinstance(group_ids, Mapping):
        wanted = {name: None if some is None else list(some) for name, some in group_ids.items()}
    else:
        wanted = dict.fromkeys(group_ids)

    async def fetch(coordinator: Coordinator) -> dict[TopicPartition, OffsetAndMetadata]:
        found = await coordinator.fetch_offsets(
            wanted[coordinator.group_id], deadline, require_stable=require_stable
        )
        return {tp: offset for tp, offset in sorted(found.items()) if offset is not None}

    return await _per_group(client, wanted, fetch, deadline)


async def alter_group_offsets(
    client: Client,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    deadline: Deadline,
) -> None:
    """Commits for a group that has no members.

    Raises:
        ApiError: The group has members, or the offsets are refused.
    """

    async def commit(coordinator: Coordinator) -> None:
        outcome = await coordinator.commit(offsets, NO_MEMBER, deadline)
        if outcome.error is not None:
            raise outcome.error

    result = (await _per_group(client, [group_id], commit, deadline))[group_id]
    if result is not None:
        raise result


async def delete_group_offsets(
    client: Client,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    deadline: Deadline,
) -> dict[TopicPartition, ApiError | None]:
    """Deletes committed offsets of partitions that the group does not read; None for each.

    Raises:
        ApiError: There is no such group.
    """
    wanted = list(dict.fromkeys(partitions))
    nested: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for tp in wanted:
        nested.setdefault(tp.topic, []).append(
            OffsetDeleteRequestPartition(partition_index=tp.partition)
        )

    async def delete(coordinator: Coordinator) -> dict[TopicPartition, ApiError | None]:
        response = await coordinator.ask(
            ApiKey.OFFSET_DELETE,
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(name=name, partitions=some)
                    for name, some in nested.items()
                ],
            ),
            OffsetDeleteResponse,
            deadline,
        )
        coordinator.check(response.error_code, "OFFSET_DELETE")
        told: dict[TopicPartition, ApiError | None] = {}
        for topic in response.topics:
            for one in topic.partitions:
                tp = TopicPartition(topic.name, one.partition_index)
                is_done = one.error_code == ErrorCode.NONE
                told[tp] = None if is_done else api_error(one.error_code, None, tp)
        return told

    results = (await _per_group(client, [group_id], delete, deadline))[group_id]
    if isinstance(results, ApiError):
        raise results
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {tp: results.get(tp, missing) for tp in wanted}


async def _per_group(
    client: Client,
    group_ids: Iterable[str],
    work: Callable[[Coordinator], Awaitable[R]],
    deadline: Deadline,
) -> dict[str, R | ApiError]:
    """Asks the coordinator of each group; a failure affects no other group."""

    async def one(group_id: str) -> R | ApiError:
        coordinator = Coordinator(client, group_id)

        async def attempt() -> R:
            return await work(coordinator)

        try:
            return await client.retry(f"group {group_id!r}", attempt, deadline)
        except ApiError as error:
            return error

    wanted = list(dict.fromkeys(group_ids))
    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
