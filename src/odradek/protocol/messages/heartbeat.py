"""Heartbeat (key 12): a member is alive."""

from odradek.protocol.primitives import INT16, INT32, STRING
from odradek.protocol.schema import Message, wire

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
    """A member of a generation."""

    # 3: static members (KIP-345).
    # 4: flexible.

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Message, versions="0-4", flexible="4+"):
    """Whether the member may continue, must join again, or was removed."""

    # 1: throttle time.
    # 4: flexible.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
