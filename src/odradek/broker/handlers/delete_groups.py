"""DeleteGroups: removes groups without members, with all their offsets."""

from collections.abc import Iterable, Mapping
from functools import partial

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import (
    Gathering,
    Steps,
    StepsOrNone,
    body_of,
    in_slices,
    reply_in_slices,
    start_in_slices,
)
from odradek.errors import ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_delete_groups"]


@in_slices
def handle_delete_groups(request: Request, context: BrokerContext) -> StepsOrNone:
    """Answers when the removals are durable."""
    message = body_of(DeleteGroupsRequest, request)
    names = list(dict.fromkeys(message.groups_names))
    results: dict[str, ErrorCode] = {}

    gathering = Gathering(
        lambda: start_in_slices(request, _answer(request, results, names, context), context)
    )

    def settle(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        gathering.end()

    for name in names:
        gathering.begin()
        if is_allowed(context.authorizer, request, Operation.DELETE, ResourceType.GROUP, name):
            context.groups.delete_group(name, partial(settle, name))
        else:
            settle(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        yield
    gathering.end()
    return None


def _answer(
    request: Request,
    results: Mapping[str, ErrorCode],
    names: Iterable[str],
    context: BrokerContext,
) -> Steps:
    rows = []
    for name in names:
        rows.append(DeletableGroupResult(group_id=name, error_code=results[name]))
        yield
    return (yield from reply_in_slices(request, DeleteGroupsResponse(results=rows), context))
