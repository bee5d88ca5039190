"""DescribeGroups: state, strategy and members of groups."""

from typing import Final

from odradek.broker.authorization import allowed_operations, is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.coordinator.group.admin import GroupSummary
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.security.operations import NOT_ASKED, Operation, ResourceType

__all__ = ["handle_describe_groups"]

_FIRST_NOT_FOUND_VERSION: Final = 6


@in_slices
def handle_describe_groups(request: Request, context: BrokerContext) -> Steps:
    """Answers from memory; an unknown group is Dead, an error from version 6 on."""
    message = body_of(DescribeGroupsRequest, request)
    rows: list[DescribedGroup] = []
    with_operations = message.include_authorized_operations
    for group_id in dict.fromkeys(message.groups):
        rows.append(_describe(request, group_id, context, with_operations=with_operations))
        yield
    response = DescribeGroupsResponse(groups=rows)
    return (yield from reply_in_slices(request, response, context))


def _describe(
    request: Request, group_id: str, context: BrokerContext, *, with_operations: bool
) -> DescribedGroup:
    authorizer = context.authorizer
    if not is_allowed(authorizer, request, Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _failed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = context.groups.check(group_id)
    if error is not ErrorCode.NONE:
        return _failed(group_id, error)
    operations = NOT_ASKED
    if with_operations:
        operations = allowed_operations(authorizer, request, ResourceType.GROUP, group_id)
    summary = context.groups.describe(group_id)
    if summary is not None:
        return _row(group_id, summary, operations)
    if request.header.api_version >= _FIRST_NOT_FOUND_VERSION:
        return _failed(
            group_id,
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {group_id} not found.",
            operations,
        )
    return _failed(group_id, ErrorCode.NONE, None, operations)


def _row(group_id: str, summary: GroupSummary, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=summary.state,
        protocol_type=summary.protocol_type,
        protocol_data=summary.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in summary.members
        ],
        authorized_operations=operations,
    )


def _failed(
    group_id: str, error: ErrorCode, why: str | None = None, operations: int = NOT_ASKED
) -> DescribedGroup:
    is_dead = error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    return DescribedGroup(
        error_code=error,
        error_message=why,
        group_id=group_id,
        group_state="Dead" if is_dead else "",
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=operations,
    )
