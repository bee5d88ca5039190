"""CreateAcls: refused for each rule, since this broker has no authorizer."""

from odradek.broker.authorization import check_allowed, security_disabled
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError
from odradek.network.request import Request
from odradek.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_create_acls"]


@in_slices
def handle_create_acls(request: Request, context: BrokerContext) -> Steps:
    """Answers SECURITY_DISABLED: a rule without effect must not seem to be created."""
    message = body_of(CreateAclsRequest, request)
    error = security_disabled()
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
    except ApiError as denial:
        error = denial
    row = AclCreationResult(error_code=error.code, error_message=str(error))
    response = CreateAclsResponse(results=[row] * len(message.creations))
    return (yield from reply_in_slices(request, response, context))
