"""ListGroups: the groups that this broker coordinates."""

from odradek.broker.authorization import CLUSTER_NAME, Operation, ResourceType
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.coordinator.group.admin import matches_filters
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

__all__ = ["handle_list_groups"]

_GROUP_TYPE = "classic"


def handle_list_groups(request: Request, context: BrokerContext) -> Response:
    """Names all groups that pass the filters; some may be missing while a partition loads."""
    version = request.header.api_version
    message, _ = parse_message(ListGroupsRequest, request.payload, version, request.body_offset)
    allowed = context.authorizer.is_allowed
    sees_all = allowed(request, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    groups = context.groups
    runtime = groups.registry.runtime
    if runtime is None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif runtime.is_loading:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    else:
        error = ErrorCode.NONE
    rows = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_GROUP_TYPE,
        )
        for group in groups.registry
        if matches_filters(group, message.states_filter, message.types_filter)
        and (sees_all or allowed(request, Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    return reply_throttled(request, ListGroupsResponse(error_code=error, groups=rows), context)
