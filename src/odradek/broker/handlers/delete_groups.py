"""DeleteGroups: removes groups without members, with all their offsets."""

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_delete_groups"]


def handle_delete_groups(request: Request, context: BrokerContext) -> None:
    """Answers when the removals are durable."""
    version = request.header.api_version
    message, _ = parse_message(DeleteGroupsRequest, request.payload, version, request.body_offset)
    names = list(dict.fromkeys(message.groups_names))
    results: dict[str, ErrorCode] = {}

    def settle(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        if len(results) < len(names):
            return
        rows = [DeletableGroupResult(group_id=name, error_code=results[name]) for name in names]
        request.reply(reply_throttled(request, DeleteGroupsResponse(results=rows), context))

    if not names:
        request.reply(reply_throttled(request, DeleteGroupsResponse(results=[]), context))
    for name in names:
        if is_allowed(context.authorizer, request, Operation.DELETE, ResourceType.GROUP, name):
            context.groups.delete_group(
                name,
                lambda error, name=name: settle(name, error),  # type: ignore[misc]
            )
        else:
            settle(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
