"""SyncGroup: the leader sends the assignments, every member gets its own."""

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import body_of
from odradek.coordinator.group.decisions import SyncReply, SyncRequest
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_sync_group"]


def handle_sync_group(request: Request, context: BrokerContext) -> None:
    """Answers when the leader has assigned, or with an error."""
    message = body_of(SyncGroupRequest, request)

    def answer(reply: SyncReply) -> None:
        response = SyncGroupResponse(
            error_code=reply.error,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol_name,
            assignment=reply.assignment,
        )
        request.reply(reply_throttled(request, response, context))

    if not is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        answer(SyncReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    context.groups.sync(
        message.group_id,
        SyncRequest(
            generation_id=message.generation_id,
            member_id=message.member_id,
            instance_id=message.group_instance_id,
            protocol_type=message.protocol_type,
            protocol_name=message.protocol_name,
            assignments={row.member_id: bytes(row.assignment) for row in message.assignments},
        ),
        answer,
    )
