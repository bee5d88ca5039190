"""LeaveGroup: members leave a group at once, each with its own error from version 3 on."""

from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_leave_group"]

_FIRST_LIST_VERSION: Final = 3


def handle_leave_group(request: Request, context: BrokerContext) -> Response:
    """Answers at once, without waiting for a record: a departure need not be durable."""
    version = request.header.api_version
    message, _ = parse_message(LeaveGroupRequest, request.payload, version, request.body_offset)
    members = message.members
    if version < _FIRST_LIST_VERSION:
        members = [MemberIdentity(member_id=message.member_id)]
    error, errors = ErrorCode.GROUP_AUTHORIZATION_FAILED, list[ErrorCode]()
    if is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        error, errors = context.groups.leave(
            message.group_id, [(row.member_id, row.group_instance_id) for row in members]
        )
    if version < _FIRST_LIST_VERSION:
        return reply_throttled(
            request, LeaveGroupResponse(error_code=error or errors[0], members=[]), context
        )
    rows = [
        MemberResponse(
            member_id=row.member_id, group_instance_id=row.group_instance_id, error_code=code
        )
        for row, code in zip(members, errors, strict=False)
    ]
    return reply_throttled(request, LeaveGroupResponse(error_code=error, members=rows), context)
