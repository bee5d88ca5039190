"""CreateAcls: refused for each rule, since this broker has no authorizer."""

from odradek.broker.authorization import check_allowed, security_disabled
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ApiError
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_create_acls"]


def handle_create_acls(request: Request, context: BrokerContext) -> Response:
    """Answers SECURITY_DISABLED: a rule without effect must not seem to be created."""
    version = request.header.api_version
    message, _ = parse_message(CreateAclsRequest, request.payload, version, request.body_offset)
    error = security_disabled()
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
    except ApiError as denial:
        error = denial
    row = AclCreationResult(error_code=error.code, error_message=str(error))
    response = CreateAclsResponse(results=[row] * len(message.creations))
    return reply_throttled(request, response, context)
