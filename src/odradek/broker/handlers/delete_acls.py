"""DeleteAcls: refused for each filter, since this broker has no authorizer."""

from odradek.broker.authorization import check_allowed, security_disabled
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ApiError
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_delete_acls"]


def handle_delete_acls(request: Request, context: BrokerContext) -> Response:
    """Answers SECURITY_DISABLED: there are no rules to delete."""
    version = request.header.api_version
    message, _ = parse_message(DeleteAclsRequest, request.payload, version, request.body_offset)
    error = security_disabled()
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
    except ApiError as denial:
        error = denial
    row = DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
    response = DeleteAclsResponse(filter_results=[row] * len(message.filters))
    return reply_throttled(request, response, context)
