"""DescribeGroups (key 15): state and members of groups."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, BYTES, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
]


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+"):
    """Groups to describe."""

    # 3: authorised operations on request (KIP-430).
    # 5: flexible.
    # 6: unknown groups are errors (KIP-1043).

    groups: Sequence[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, "3+")


class DescribedGroupMember(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


class DescribedGroup(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "6+", nullable="6+", default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: Sequence[DescribedGroupMember] = wire(array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+"):
    """Each group; unknown ones are Dead without an error up to 5."""

    # 1: throttle time. 3: authorised operations. 4: static members (KIP-345).
    # 5: flexible.
    # 6: a message, and GROUP_ID_NOT_FOUND for unknown groups.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    groups: Sequence[DescribedGroup] = wire(array(DescribedGroup))
