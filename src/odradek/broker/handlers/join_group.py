"""JoinGroup: a client joins a group, or a member its next generation."""

from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import body_of
from odradek.coordinator.group.decisions import JoinReply, JoinRequest
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_join_group"]

_FIRST_NULL_PROTOCOL_VERSION: Final = 7
# Protocols of a member. Clients support a handful; those of all members are compared at each join.
_MAX_PROTOCOLS: Final = 1_000


def handle_join_group(request: Request, context: BrokerContext) -> None:
    """Answers when the generation is complete, or with an error."""
    version = request.header.api_version
    message = body_of(JoinGroupRequest, request)

    def answer(reply: JoinReply) -> None:
        request.reply(reply_throttled(request, _response(reply, version), context))

    if not is_allowed(
        context.authorizer, request, Operation.READ, ResourceType.GROUP, message.group_id
    ):
        answer(JoinReply(ErrorCode.GROUP_AUTHORIZATION_FAILED, message.member_id))
        return
    if len(message.protocols) > _MAX_PROTOCOLS:
        answer(JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message.member_id))
        return
    # Version 0 has no rebalance timeout.
    rebalance_timeout_ms = message.rebalance_timeout_ms if version else message.session_timeout_ms
    context.groups.join(
        JoinRequest(
            group_id=message.group_id,
            member_id=message.member_id,
            instance_id=message.group_instance_id,
            client_id=request.header.client_id,
            client_host=f"/{request.context.client_address}",
            session_timeout_ms=message.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=message.protocol_type,
            protocols=[(row.name, bytes(row.metadata)) for row in message.protocols],
            version=version,
        ),
        answer,
    )


def _response(reply: JoinReply, version: int) -> JoinGroupResponse:
    protocol_name = reply.protocol_name
    if protocol_name is None and version < _FIRST_NULL_PROTOCOL_VERSION:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(member_id=member_id, group_instance_id=instance, metadata=data)
            for member_id, instance, data in reply.members
        ],
    )
