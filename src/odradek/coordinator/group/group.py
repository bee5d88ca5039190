"""One group of the classic protocol: its states, its members, their votes, its generation. Pure.

`VALID_PREVIOUS` has the legal transitions. The usual ones::

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ...
      ^______________|  no member joined

Any state may end in Dead, since a group can move to another coordinator at any time; Dead is final.

Invariants:

- `votes[p]` is the number of members that list protocol `p`.
- `awaiting_join_count` is the number of members with a parked JoinGroup.
- A static member's id is `static_members[its instance id]`, and that of no other member.
- `pending_sync` has ids of members only, and is empty in Empty and PreparingRebalance.
- While there are members, `leader_id` is one of them.

This class keeps the state consistent; `membership`, `rebalance`, `syncing` and `sessions` decide
when members are added and removed. Any protocol type is supported: all its bytes are opaque. The
offsets that a group commits are no part of it: `offsets` keeps them, for groups of any protocol.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group.decisions import (
    Decision,
    JoinedMember,
    JoinReply,
    SyncReply,
    Ticket,
    TimerKind,
)
from odradek.coordinator.group.member import (
    CONSUMER_PROTOCOL_TYPE,
    Member,
    protocol_names,
    subscribed_topics,
)
from odradek.coordinator.group.records import GroupValue, MemberValue
from odradek.errors import ErrorCode, InvariantViolation

__all__ = ["VALID_PREVIOUS", "Group", "GroupState", "check_transition"]


class GroupState(Enum):
    """The state of a group; the value is the name that tools print."""

    EMPTY = "Empty"  # No members; it may have offsets.
    PREPARING_REBALANCE = "PreparingRebalance"  # Members are joining, for the first time or again.
    COMPLETING_REBALANCE = "CompletingRebalance"  # All joined, the leader is assigning.
    STABLE = "Stable"
    DEAD = "Dead"  # Removed, or coordinated elsewhere.


VALID_PREVIOUS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


def check_transition(group_id: str, current: GroupState, target: GroupState) -> None:
    """Checks a transition.

    Raises:
        InvariantViolation: `target` cannot follow `current`.
    """
    if current not in VALID_PREVIOUS[target]:
        allowed = ", ".join(sorted(state.value for state in VALID_PREVIOUS[target]))
        raise InvariantViolation(
            f"group {group_id!r} is {current.value}: {target.value} may only follow {allowed}"
        )


class Group:
    """State of one group; edited by the functions of this package only."""

    __slots__ = (
        "awaiting_join_count",
        "config",
        "generation_id",
        "group_id",
        "has_new_member",
        "has_registration",
        "is_being_deleted",
        "is_initial_join",
        "is_storing",
        "join_deadline_ms",
        "join_remaining_ms",
        "join_timer_due_ms",
        "leader_epoch",
        "leader_id",
        "members",
        "partition",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "sync_deadline_ms",
        "sync_timer_due_ms",
        "votes",
    )

    def __init__(
        self, group_id: str, config: GroupCoordinatorConfig, *, wall_ms: int | None
    ) -> None:
        self.group_id = group_id
        self.config = config
        # Its partition of the offsets topic and that one's leader epoch; set by the registry.
        self.partition = -1
        self.leader_epoch = -1
        self.state = GroupState.EMPTY
        # Of the last transition. None: unknown, from an old record.
        self.state_timestamp_ms = wall_ms
        self.protocol_type: str | None = None  # None: a simple consumer's, offsets only.
        self.protocol_name: str | None = None  # The assignment strategy of this generation.
        self.generation_id = 0  # Rebalances so far.
        self.leader_id: str | None = None  # The member that computes assignments.
        self.members: dict[str, Member] = {}  # In the order in which they joined.
        self.static_members: dict[str, str] = {}  # Instance id to member id.
        self.pending_members: dict[str, int] = {}  # Ids handed out, not joined; their deadlines.
        self.pending_sync: dict[str, None] = {}  # Got their JoinGroup answer, have not synced.
        self.awaiting_join_count = 0
        self.votes: dict[str, int] = {}
        # None: unknown, which protects all topics from expiry.
        self.subscribed_topics: frozenset[str] | None = None
        # A member joined since the initial delay began: the delay is prolonged.
        self.has_new_member = False
        self.is_initial_join = False  # The running join waits for its whole delay in any case.
        self.join_remaining_ms = 0  # The maximum by which the initial delay may be prolonged.
        self.join_deadline_ms: int | None = None
        self.join_timer_due_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.sync_timer_due_ms: int | None = None
        # The leader's assignment of this generation is being written.
        self.is_storing = False
        # A registration record is in the log: removing the group needs a tombstone.
        self.has_registration = False
        self.is_being_deleted = False  # Its tombstones are being written.

    @property
    def is_dead(self) -> bool:
        """Whether requests may no longer change it."""
        return self.state is GroupState.DEAD or self.is_being_deleted

    @property
    def is_vacant(self) -> bool:
        """Whether dropping it loses no member; its offsets are not considered.

        A first join that was refused leaves such a group.
        """
        return (
            self.state is GroupState.EMPTY
            and not self.has_registration
            and not self.pending_members
        )

    @property
    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.awaiting_join_count and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of its members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def transition_to(self, target: GroupState, wall_ms: int) -> None:
        """Moves to another state.

        Raises:
            InvariantViolation: `target` cannot follow the present state.
        """
        check_transition(self.group_id, self.state, target)
        self.state = target
        self.state_timestamp_ms = wall_ms

    def bury(self) -> None:
        """Makes the group Dead: it was removed, or is coordinated elsewhere."""
        self.state = GroupState.DEAD
        self.is_being_deleted = False

    def add_member(self, member: Member, join_ticket: Ticket = None) -> None:
        """Adds a member.

        Raises:
            InvariantViolation: It does not match the group; its request should have been refused.
        """
        if not self.members:
            self.protocol_type = member.protocol_type
        names = protocol_names(member.protocols)
        if not self.supports_protocols(member.protocol_type, names):
            raise InvariantViolation(
                f"member {member.member_id!r} ({member.protocol_type}: {', '.join(names)}) does "
                f"not fit into group {self.group_id!r} ({self.protocol_type}: {self.votes})"
            )
        assert member.member_id not in self.members
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count_votes(member, 1)
        if join_ticket is not None:
            member.join_ticket = join_ticket
            self.awaiting_join_count += 1

    def remove_member(self, member_id: str, error: ErrorCode, decision: Decision) -> None:
        """Removes a member; its parked requests are answered with `error`."""
        member = self.members.pop(member_id)
        if member.join_ticket is not None:
            self.awaiting_join_count -= 1
            decision.replies.append((member.join_ticket, JoinReply(error, member_id)))
            member.join_ticket = None
        if member.sync_ticket is not None:
            decision.replies.append((member.sync_ticket, SyncReply(error)))
            member.sync_ticket = None
        self._count_votes(member, -1)
        if (
            member.instance_id is not None
            and self.static_members.get(member.instance_id) == member_id
        ):
            del self.static_members[member.instance_id]
        self.discard_pending_sync(member_id)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static_member(self, old_id: str, new_id: str) -> Member:
        """Gives a static member another id; its position and assignment stay."""
        member = self.members[old_id]
        assert member.instance_id is not None
        member.member_id = new_id
        member.timer_due_ms = None  # Its timer fires under the old id and is ignored.
        self.members = {m.member_id: m for m in self.members.values()}
        self.static_members[member.instance_id] = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update_member(
        self,
        member: Member,
        *,
        protocols: Sequence[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Replaces a member's protocols and timeouts by those of another JoinGroup."""
        self._count_votes(member, -1)
        member.protocols = tuple(protocols)
        self._count_votes(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, ticket: Ticket, decision: Decision) -> None:
        """Parks a member's JoinGroup; an earlier parked one is answered with an error."""
        if member.join_ticket is None:
            self.awaiting_join_count += 1
        else:
            reply = JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            decision.replies.append((member.join_ticket, reply))
        member.join_ticket = ticket

    def answer_join(
        self, member: Member, reply: JoinReply, timer_ms: int, decision: Decision
    ) -> None:
        """Answers a parked JoinGroup; from now on the member has to send heartbeats."""
        if member.join_ticket is not None:
            self.awaiting_join_count -= 1
            decision.replies.append((member.join_ticket, reply))
            member.join_ticket = None
        self.arm_session(member, timer_ms + member.session_timeout_ms, decision)

    def answer_sync(
        self, member: Member, reply: SyncReply, timer_ms: int, decision: Decision
    ) -> None:
        """Answers a parked SyncGroup; from now on the member has to send heartbeats."""
        if member.sync_ticket is not None:
            decision.replies.append((member.sync_ticket, reply))
            member.sync_ticket = None
        self.arm_session(member, timer_ms + member.session_timeout_ms, decision)

    def arm_session(self, member: Member, deadline_ms: int, decision: Decision) -> None:
        """Moves a member's deadline, and makes sure that a timer fires no later."""
        member.deadline_ms = deadline_ms
        if member.timer_due_ms is None or deadline_ms < member.timer_due_ms:
            member.timer_due_ms = deadline_ms
            key = (TimerKind.SESSION, member.member_id, deadline_ms)
            decision.timers.append((key, deadline_ms))

    def discard_pending_sync(self, member_id: str) -> None:
        """Notes that a member synced or is gone; after the last one there is no deadline."""
        if member_id in self.pending_sync:
            del self.pending_sync[member_id]
            if not self.pending_sync:
                self.sync_deadline_ms = None

    def supports_protocols(self, protocol_type: str, names: Mapping[str, None]) -> bool:
        """Whether a member of that type with these protocols may join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        member_count = len(self.members)
        return any(self.votes.get(name, 0) == member_count for name in names)

    def candidate_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        member_count = len(self.members)
        return {name for name, count in self.votes.items() if count == member_count}

    def select_protocol(self) -> str:
        """The candidate that most members vote for; of several, the one voted for first.

        Raises:
            InvariantViolation: There are no members.
        """
        if not self.members:
            raise InvariantViolation(f"group {self.group_id!r} has no members to select a protocol")
        candidates = self.candidate_protocols()
        ballots: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            ballots[name] = ballots.get(name, 0) + 1
        return max(ballots, key=ballots.__getitem__)

    def init_next_generation(self, wall_ms: int) -> None:
        """Begins a generation with the present members, or becomes Empty without any."""
        self.generation_id += 1
        self.is_storing = False
        if self.members:
            self.protocol_name = self.select_protocol()
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, wall_ms)

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members are subscribed to; None if that is not known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        name = self.protocol_name
        if self.members and name is None:
            return None
        return subscribed_topics(member.metadata(name or "") for member in self.members.values())

    def current_members(self) -> list[JoinedMember]:
        """The members as the leader gets them for its assignment.

        Raises:
            InvariantViolation: No protocol has been selected.
        """
        if self.protocol_name is None or self.state in (
            GroupState.DEAD,
            GroupState.PREPARING_REBALANCE,
        ):
            raise InvariantViolation(
                f"group {self.group_id!r} is {self.state.value}: no protocol has been selected"
            )
        name = self.protocol_name
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(name))
            for member in self.members.values()
        ]

    def registration(self, assignments: Mapping[str, bytes]) -> GroupValue:
        """The group's registration record, with these assignments.

        Raises:
            InvariantViolation: There are members and no protocol.
        """
        name = self.protocol_name
        if self.members and name is None:
            raise InvariantViolation(f"group {self.group_id!r} has members, but no protocol")
        members = [
            MemberValue(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(name or ""),
                assignments[member.member_id],
            )
            for member in self.members.values()
        ]
        return GroupValue(
            self.protocol_type,
            self.generation_id,
            name,
            self.leader_id,
            self.state_timestamp_ms,
            members,
        )

    def _count_votes(self, member: Member, change: int) -> None:
        for name in protocol_names(member.protocols):
            count = self.votes.get(name, 0) + change
            if count:
                self.votes[name] = count
            else:
                del self.votes[name]
