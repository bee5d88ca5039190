"""LeaveGroup (key 13): members leave a group at once."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


class MemberIdentity(Message):
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    reason: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, versions="0-5", flexible="4+"):
    """One member up to 2, then a list."""

    # 3: several members, static ones by instance id (KIP-345).
    # 4: flexible.
    # 5: why they leave (KIP-800).

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, "0-2")
    members: Sequence[MemberIdentity] = wire(array(MemberIdentity), "3+")


class MemberResponse(Message):
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+")
    error_code: int = wire(INT16, "3+")


class LeaveGroupResponse(Message, versions="0-5", flexible="4+"):
    """The outcome, per member from 3 on."""

    # 1: throttle time. 3: per member.
    # 4: flexible.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    members: Sequence[MemberResponse] = wire(array(MemberResponse), "3+")
