"""Heartbeat: renews a member's session; the answer says whether it has to join again."""

from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response, SendResponse
from odradek.protocol.hot.heartbeat import encode_heartbeat_answer, parse_heartbeat_request
from odradek.security.authorizer import ALLOW_EVERYTHING
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_heartbeat"]

_READ = Operation.READ
_GROUP = ResourceType.GROUP


def handle_heartbeat(request: Request, context: BrokerContext) -> Response:
    """Answers at once."""
    header = request.header
    version = header.api_version
    group_id, generation_id, member_id, instance_id = parse_heartbeat_request(
        request.payload, request.body_offset, version
    )
    authorizer = context.authorizer
    sender = request.context
    if authorizer is ALLOW_EVERYTHING or authorizer.is_allowed(
        sender.principal, sender.client_address, _READ, _GROUP, group_id
    ):
        error = context.groups.heartbeat(group_id, generation_id, member_id, instance_id)
    else:
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    throttle_ms = request_throttle_ms(request, context) if context.quotas.limits_traffic else 0
    answer = encode_heartbeat_answer(version, header.correlation_id, error, throttle_ms)
    return SendResponse(request, [answer])
