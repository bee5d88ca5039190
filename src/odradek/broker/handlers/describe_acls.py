"""DescribeAcls: refused, since this broker has no authorizer."""

from odradek.broker.authorization import check_allowed, security_disabled
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import body_of
from odradek.errors import ApiError
from odradek.network.request import Request, Response
from odradek.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from odradek.security.operations import Operation

__all__ = ["handle_describe_acls"]


def handle_describe_acls(request: Request, context: BrokerContext) -> Response:
    """Answers SECURITY_DISABLED, which tools treat as "no rules" (13 section 11)."""
    body_of(DescribeAclsRequest, request)
    error = security_disabled()
    try:
        check_allowed(context.authorizer, request, Operation.DESCRIBE)
    except ApiError as denial:
        error = denial
    response = DescribeAclsResponse(error_code=error.code, error_message=str(error))
    return reply_throttled(request, response, context)
