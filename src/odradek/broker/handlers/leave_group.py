"""LeaveGroup: members leave a group at once, each with its own error from version 3 on."""

from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, portions, reply_in_slices
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_leave_group"]

_FIRST_LIST_VERSION: Final = 3
# Members that leave in one step.
_LEAVING_AT_ONCE: Final = 20


@in_slices
def handle_leave_group(request: Request, context: BrokerContext) -> Steps:
    """Answers at once, without waiting for a record: a departure need not be durable."""
    version = request.header.api_version
    message = body_of(LeaveGroupRequest, request)
    members = message.members
    if version < _FIRST_LIST_VERSION:
        members = [MemberIdentity(member_id=message.member_id)]
    error, errors = ErrorCode.GROUP_AUTHORIZATION_FAILED, list[ErrorCode]()
    if is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        error = ErrorCode.NONE
        for portion in portions(members, _LEAVING_AT_ONCE):
            error, some = context.groups.leave(
                message.group_id, [(row.member_id, row.group_instance_id) for row in portion]
            )
            if error is not ErrorCode.NONE:
                break
            errors += some
            yield
    if version < _FIRST_LIST_VERSION:
        return reply_throttled(
            request, LeaveGroupResponse(error_code=error or errors[0], members=[]), context
        )
    rows = []
    for row, code in zip(members, errors, strict=False):
        rows.append(
            MemberResponse(
                member_id=row.member_id, group_instance_id=row.group_instance_id, error_code=code
            )
        )
        yield
    response = LeaveGroupResponse(error_code=error, members=rows)
    return (yield from reply_in_slices(request, response, context))
