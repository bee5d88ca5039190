"""The phase of a group's member, and how the answers of its coordinator change it. Pure.

=============  =====================================================================================
OUTSIDE        not in the group, or on the way back into it
JOINING        a JoinGroup or SyncGroup is under way
ASSIGNED       the group has settled; the application has not taken its assignment over yet
STABLE         the assignment is in use
FENCED         another consumer took this one's instance id: the end
=============  =====================================================================================

========================================  ==========================================================
error of the answer                       consequence
========================================  ==========================================================
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION     outside; owned partitions are **lost**; join again as a
                                          newcomer (the id is kept for the latter)
REBALANCE_IN_PROGRESS                     join again, in the same generation
MEMBER_ID_REQUIRED                        join again with the id that came with it
FENCED_INSTANCE_ID                        fenced
COORDINATOR_*, NOT_COORDINATOR, network   the same again, after a pause; the coordinator is looked
                                          up anew unless it is only loading
others                                    raised to the application; joining may be tried again
========================================  ==========================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.model import TopicPartition

__all__ = [
    "NO_MEMBER",
    "MemberIdentity",
    "Membership",
    "Next",
    "Phase",
    "Transfer",
    "decide_next",
    "decide_transfer",
]


class MemberIdentity(NamedTuple):
    """The sender of a commit: a member of a generation, or none (`NO_MEMBER`)."""

    member_id: str
    generation: int
    instance_id: str | None = None


NO_MEMBER: Final = MemberIdentity("", -1)


class Phase(Enum):
    """See the module's docstring."""

    OUTSIDE = auto()
    JOINING = auto()
    ASSIGNED = auto()
    STABLE = auto()
    FENCED = auto()


class Next(Enum):
    """The next step after an answer."""

    GO_ON = auto()
    SAME_AGAIN = auto()
    JOIN_AGAIN = auto()
    JOIN_WITH_ID = auto()
    LOST = auto()
    FENCED = auto()
    RAISE = auto()


_NEXT = {
    ErrorCode.NONE: Next.GO_ON,
    ErrorCode.REBALANCE_IN_PROGRESS: Next.JOIN_AGAIN,
    ErrorCode.MEMBER_ID_REQUIRED: Next.JOIN_WITH_ID,
    ErrorCode.UNKNOWN_MEMBER_ID: Next.LOST,
    ErrorCode.ILLEGAL_GENERATION: Next.LOST,
    ErrorCode.FENCED_INSTANCE_ID: Next.FENCED,
}


def decide_next(code: ErrorCode) -> Next:
    """Decides the next step after an answer to Join, Sync or Heartbeat."""
    if code in _NEXT:
        return _NEXT[code]
    return Next.SAME_AGAIN if code.retriable else Next.RAISE


@dataclass(frozen=True, slots=True)
class Transfer:
    """The changes of an assignment."""

    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    assigned: tuple[TopicPartition, ...]
    # Whether to join again at once, so that revoked partitions go to other members.
    rejoins: bool


def decide_transfer(
    owned: Iterable[TopicPartition],
    assigned: Iterable[TopicPartition],
    *,
    is_cooperative: bool,
) -> Transfer:
    """Decides the changes from owned partitions to assigned ones.

    An eager member gave up everything before it joined, so all of its assignment is new.
    """
    before, after = set(owned), set(assigned)
    revoked = tuple(sorted(before - after))
    return Transfer(
        revoked=revoked,
        added=tuple(sorted(after - before)),
        assigned=tuple(sorted(after)),
        rejoins=is_cooperative and bool(revoked),
    )


class Membership:
    """The member as the group knows it. Owned by `MembershipDriver`."""

    def __init__(self, instance_id: str | None) -> None:
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.generation = -1
        self.instance_id = instance_id
        # Whether another round of joining is wanted, though the member may be stable.
        self.wants_join = True
        # Whether partitions were lost without a revocation: the application must be told.
        self.has_lost = False

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.generation, self.instance_id)

    @property
    def is_in_group(self) -> bool:
        return self.phase in (Phase.ASSIGNED, Phase.STABLE)

    def on_joined(self, member_id: str, generation: int) -> None:
        """Takes the id and generation of a successful JoinGroup."""
        self.member_id = member_id
        self.generation = generation

    def on_synced(self) -> None:
        """After a successful SyncGroup: the member is in the group and has to send heartbeats."""
        self.phase = Phase.ASSIGNED

    def on_applied(self) -> None:
        """After the application took the assignment over; it may have been lost meanwhile."""
        if self.phase is Phase.ASSIGNED:
            self.phase = Phase.STABLE

    def on_lost(self, code: ErrorCode | None = None) -> None:
        """After the group removed this member."""
        if self.phase is Phase.FENCED:
            return
        self.phase = Phase.OUTSIDE
        self.generation = -1
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.wants_join = True
        self.has_lost = True

    def on_fenced(self) -> None:
        """After another consumer joined with this one's instance id."""
        self.phase = Phase.FENCED
        self.generation = -1
        self.has_lost = True

    def leave(self) -> None:
        """After the member left by itself."""
        self.phase = Phase.OUTSIDE
        self.generation = -1
        self.member_id = ""
        self.wants_join = True
