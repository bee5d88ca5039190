"""Inputs and outputs of a group's functions: requests, replies, timers, writes. Pure.

The functions (`membership.join` and `leave`, `syncing.sync`, the timers of `sessions`) edit the
volatile state and return the changes that must be durable. Rules between them and the coordinator
that calls them:

1. A function edits the group's volatile state (which members wait, which are late, which state) in
   place. No client relies on it: it is lost with the coordinator, and members join again.
2. State that clients rely on (assignments, a static member's new id, offsets) changes only when its
   record is durable. The function returns the record in `Decision.write`; the coordinator appends
   it and passes the outcome to `writes.complete_write`, which returns the next decision.
3. `Decision.replies` may be sent at once: an answer that has to wait for a record is added only
   after that record is written.
4. `Decision.timers` are only ever added. A timer that fires before its deadline, because that was
   moved or the clock went back, is armed again; one that is no longer needed does nothing. So a
   heartbeat, which moves a deadline, changes no timer.
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

# An opaque object by which the coordinator answers a request later.
Ticket: TypeAlias = object


class Now(NamedTuple):
    """The time of an event, on both clocks."""

    timer_ms: int  # Monotonic; deadlines are compared with it.
    wall_ms: int  # Since the epoch; used in records.


class TimerKind(Enum):
    """The purpose of a timer."""

    SESSION = "session"  # A member has been silent.
    PENDING = "pending"  # An id was handed out, and no client joined with it.
    JOIN = "join"  # The time for members to join is over.
    SYNC = "sync"  # The time for members to fetch their assignment is over.


# Purpose, member id if there is one, and the time it is armed for, which distinguishes the valid
# timer from those armed before it. A clock may go back between arming and firing.
TimerKey: TypeAlias = tuple[TimerKind, str, int]


class JoinRequest(NamedTuple):
    """A JoinGroup request."""

    group_id: str
    member_id: str  # Empty for a client without an id.
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
    """The reason why a group's registration is written, which decides the next step."""

    ASSIGNMENT = "assignment"  # The leader assigned: the generation begins.
    EMPTY = "empty"  # The last member left.
    STATIC_MEMBER = "static-member"  # A static member returned under a new id.


class GroupWrite:
    """A registration record to be appended, and the context to continue with afterwards."""

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
        # Of the group when this was decided; the outcome of an older generation is ignored.
        self.generation_id = generation_id
        self.assignments: Mapping[str, bytes] = assignments or {}  # ASSIGNMENT only.
        self.previous = previous  # STATIC_MEMBER: the state to restore on failure.
        self.ticket = ticket  # STATIC_MEMBER: the request that waits.


class Decision:
    """The actions for the coordinator; see the rules in the module's docstring."""

    __slots__ = ("replies", "timers", "write")

    def __init__(self) -> None:
        self.replies: list[tuple[Ticket, Reply]] = []
        self.timers: list[tuple[TimerKey, int]] = []
        self.write: GroupWrite | None = None
