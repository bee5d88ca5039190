"""ListGroups (key 16): the groups a broker coordinates."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["ListGroupsRequest", "ListGroupsResponse", "ListedGroup"]


class ListGroupsRequest(Message, versions="0-5", flexible="3+"):
    """Filters; an empty one matches everything."""

    # 3: flexible.
    # 4: by state (KIP-518). 5: by type (KIP-848).

    states_filter: Sequence[str] = wire(array(STRING), "4+")
    types_filter: Sequence[str] = wire(array(STRING), "5+")


class ListedGroup(Message):
    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, "4+", ignorable=True)
    group_type: str = wire(STRING, "5+", ignorable=True)


class ListGroupsResponse(Message, versions="0-5", flexible="3+"):
    """Groups of this broker alone."""

    # 1: throttle time.
    # 3: flexible.
    # 4: state. 5: type.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    groups: Sequence[ListedGroup] = wire(array(ListedGroup))
