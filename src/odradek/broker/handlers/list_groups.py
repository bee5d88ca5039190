"""ListGroups: the groups that this broker coordinates."""

from functools import partial

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.network.request import Request
from odradek.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from odradek.security.operations import Operation, ResourceType

__all__ = ["handle_list_groups"]

_GROUP_TYPE = "classic"
_GROUPS_PER_STEP = 100  # Between two readings of the clock.


@in_slices
def handle_list_groups(request: Request, context: BrokerContext) -> Steps:
    """Lists all groups that pass the filters; some may be missing while a partition loads."""
    message = body_of(ListGroupsRequest, request)
    may_describe = partial(is_allowed, context.authorizer, request, Operation.DESCRIBE)
    sees_all = may_describe()
    groups = context.groups
    error = groups.check_all()
    # Without repeated filters, which would only cost time.
    states, types = list(set(message.states_filter)), list(set(message.types_filter))
    rows: list[ListedGroup] = []
    for count, group in enumerate(groups.find_groups(states, types)):
        if count % _GROUPS_PER_STEP == 0:
            yield
        if group is not None and (sees_all or may_describe(ResourceType.GROUP, group.group_id)):
            rows.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=_GROUP_TYPE,
                )
            )
    response = ListGroupsResponse(error_code=error, groups=rows)
    return (yield from reply_in_slices(request, response, context))
