"""SyncGroup (key 14): the leader sends all assignments, every member receives its own."""

from collections.abc import Sequence

from odradek.protocol.primitives import BYTES, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


class SyncGroupRequestAssignment(Message):
    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


class SyncGroupRequest(Message, versions="0-5", flexible="4+"):
    """A member, and from the leader the assignments of all members."""

    # 3: static members (KIP-345).
    # 4: flexible.
    # 5: protocol type and name, to be checked (KIP-559).

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: Sequence[SyncGroupRequestAssignment] = wire(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message, versions="0-5", flexible="4+"):
    """The member's assignment."""

    # 1: throttle time.
    # 4: flexible.
    # 5: protocol type and name.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = wire(BYTES)
