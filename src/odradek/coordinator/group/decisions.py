"""What happens to a group, and what its functions return: requests, replies, timers, writes. Pure.

The functions (`membership.join` and `leave`, `syncing.sync`, the timers of `sessions`) edit what is
volatile and return what must be durable. Rules between them and the coordinator that calls them:

1. A function edits the group's volatile state (which members wait, which are late, which state) in
   place. No client was promised any of it: it is gone with the coordinator, and members join again.
2. What is promised (assignments, a static member's new id, offsets) changes only when its record is
   durable. The function returns the record in `Decision.write`; the coordinator appends it and
   hands the outcome to `writes.complete_write`, which returns the next decision.
3. `Decision.replies` may be sent at once: an answer that has to wait for a record is not in it
   before that record is written.
4. `Decision.timers` are only ever added. A timer that rings before its deadline, because that was
   moved or the clock went back, is armed anew; one that is not needed any more finds nothing to do.
   So a heartbeat, which moves a deadline, touches no timer.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from odradek.coordinator.writing import Record
from odradek.errors import ErrorCode

__all__ = [
    "NO_GENERATION",
    "Decision",
    "GroupWrite",
    "JoinReply",
    "JoinRequest",
    "JoinedMember",
    "Now",
    "Reply",
    "SyncReply",
    "SyncRequest",
    "Ticket",
    "TimerKey",
    "TimerKind",
    "WriteKind",
]

NO_GENERATION: Final = -1

# Whatever the driver needs to answer a request later; never looked into.
Ticket: TypeAlias = object


class Now(NamedTuple):
    """The moment of an event, on both clocks."""

    timer_ms: int  # Monotonic: what deadlines are compared with.
    wall_ms: int  # Since the epoch: what records say.


class TimerKind(Enum):
    """What a timer is for."""

    SESSION = "session"  # A member has been silent.
    PENDING = "pending"  # An id was handed out, and nobody joined with it.
    JOIN = "join"  # Members had time enough to join.
    SYNC = "sync"  # Members had time enough to fetch their assignment.


# What for, the member id where there is one, and when it should ring: that tells the timer that
# counts from one that was armed before it. A clock may go back between arming and ringing.
TimerKey: TypeAlias = tuple[TimerKind, str, int]


class JoinRequest(NamedTuple):
    """A JoinGroup request."""

    group_id: str
    member_id: str  # Empty for one that has none yet.
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # As session_timeout_ms where the request has none (version 0).
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]  # The member's favourite first.
    version: int


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The answer to a JoinGroup request."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """A SyncGroup request."""

    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]  # By member id; only the leader sends any.


class SyncReply(NamedTuple):
    """The answer to a SyncGroup request: one member's own assignment."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


Reply: TypeAlias = JoinReply | SyncReply


class WriteKind(Enum):
    """Why a group's registration is written, hence what follows when it is."""

    ASSIGNMENT = "assignment"  # The leader assigned: the generation begins.
    EMPTY = "empty"  # The last member left.
    STATIC_MEMBER = "static-member"  # A static member came back under a new id.


class GroupWrite:
    """A registration record to be appended, and what to remember until it is."""

    __slots__ = (
        "assignments",
        "generation_id",
        "kind",
        "previous",
        "records",
        "ticket",
    )

    def __init__(
        self,
        kind: WriteKind,
        records: list[Record],
        generation_id: int,
        *,
        assignments: Mapping[str, bytes] | None = None,
        previous: object = None,
        ticket: Ticket = None,
    ) -> None:
        self.kind = kind
        self.records = records
        # Of the group when this was decided; the outcome of an older one concerns nobody.
        self.generation_id = generation_id
        self.assignments: Mapping[str, bytes] = assignments or {}  # ASSIGNMENT only.
        self.previous = previous  # STATIC_MEMBER: what to put back.
        self.ticket = ticket  # STATIC_MEMBER: who waits.


class Decision:
    """What a driver has to do; see the rules on top."""

    __slots__ = ("replies", "timers", "write")

    def __init__(self) -> None:
        self.replies: list[tuple[Ticket, Reply]] = []
        self.timers: list[tuple[TimerKey, int]] = []
        self.write: GroupWrite | None = None
