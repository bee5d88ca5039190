"""JoinGroup (key 11): enter a group, or take part in its next generation."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, BYTES, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
]


class JoinGroupRequestProtocol(Message):
    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


class JoinGroupRequest(Message, versions="0-9", flexible="6+"):
    """A member, how long it may be silent, and the protocols it speaks."""

    # 0: the session timeout also bounds a rebalance. 1: a timeout of its own.
    # 4: a member without id gets one first, with MEMBER_ID_REQUIRED (KIP-394).
    # 5: static members (KIP-345).
    # 6: flexible.
    # 8: why it joins (KIP-800).

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = wire(STRING)
    protocols: Sequence[JoinGroupRequestProtocol] = wire(array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Message):
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = wire(BYTES)


class JoinGroupResponse(Message, versions="0-9", flexible="6+"):
    """The generation; the leader also gets the members to assign."""

    # 2: throttle time. 5: static members.
    # 6: flexible.
    # 7: protocol type; the name may be null (KIP-559). 9: a leader that need not assign
    # (KIP-814).

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, nullable="7+")
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STRING)
    members: Sequence[JoinGroupResponseMember] = wire(array(JoinGroupResponseMember))
