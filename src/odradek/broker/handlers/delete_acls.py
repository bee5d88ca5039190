"""DeleteAcls: refused for each filter, since this broker has no authorizer."""

from odradek.broker.authorization import check_allowed, security_disabled
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError
from odradek.network.request import Request
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_delete_acls"]


@in_slices
def handle_delete_acls(request: Request, context: BrokerContext) -> Steps:
    """Answers SECURITY_DISABLED: there are no rules to delete."""
    message = body_of(DeleteAclsRequest, request)
    error = security_disabled()
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
    except ApiError as denial:
        error = denial
    row = DeleteAclsFilterResult(error_code=error.code, error_message=str(error))
    response = DeleteAclsResponse(filter_results=[row] * len(message.filters))
    return (yield from reply_in_slices(request, response, context))
