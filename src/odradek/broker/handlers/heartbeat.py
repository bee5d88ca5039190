"""Heartbeat: a member is alive, and hears whether it has to join again."""

from odradek.broker.authorization import Operation, ResourceType
from odradek.broker.context import BrokerContext, request_throttle_ms
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response, SendResponse
from odradek.protocol.headers import encode_response_header
from odradek.protocol.hot.heartbeat import encode_heartbeat_response, parse_heartbeat_request

__all__ = ["handle_heartbeat"]


def handle_heartbeat(request: Request, context: BrokerContext) -> Response:
    """Answers at once."""
    api_key, version, correlation_id, _ = request.header
    group_id, generation_id, member_id, instance_id = parse_heartbeat_request(
        request.payload, request.body_offset, version
    )
    if context.authorizer.is_allowed(request, Operation.READ, ResourceType.GROUP, group_id):
        error = context.groups.service.heartbeat(group_id, generation_id, member_id, instance_id)
    else:
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    body = encode_heartbeat_response(version, error, request_throttle_ms(request, context))
    return SendResponse(request, [encode_response_header(api_key, version, correlation_id) + body])
