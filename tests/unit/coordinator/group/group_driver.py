"""A group on a virtual clock: what the broker's runtime does for it, in a few lines.

Timers ring when `advance` reaches them. Appends succeed at once, unless `append_errors` says how
they end, or `is_holding_writes` keeps them back until `release_writes`. The log is a list of
records.
"""

import heapq
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.coordinator.group import membership, sessions, syncing, writes
from odradek.coordinator.group.decisions import (
    Decision,
    GroupWrite,
    JoinReply,
    JoinRequest,
    Now,
    SyncReply,
    SyncRequest,
    TimerKey,
    TimerKind,
)
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.offsets import GroupOffsets
from odradek.coordinator.group.replay import GroupReplay
from odradek.coordinator.writing import Record
from odradek.errors import ErrorCode

WALL_START_MS = 1_580_000_000_000
RANGE = (("range", b"range metadata"),)


class Ticket:
    """A request that waits for its answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.replies: list[Any] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.replies)

    @property
    def reply(self) -> Any:
        assert len(self.replies) == 1, f"{self.name}: {self.replies}"
        return self.replies[0]

    @property
    def error(self) -> ErrorCode:
        error = self.reply.error
        assert isinstance(error, ErrorCode)
        return error

    def __repr__(self) -> str:
        return f"Ticket({self.name}: {self.replies})"


class GroupDriver:
    """One group with its timers and its log."""

    def __init__(self, group_id: str = "g", **settings: int) -> None:
        self.config = GroupCoordinatorConfig(**settings)
        self.timer_ms = 1_000
        self.group = Group(group_id, self.config, wall_ms=WALL_START_MS)
        self.offsets = GroupOffsets(group_id)
        self.log: list[Record] = []
        self.append_errors: list[ErrorCode] = []
        self.is_holding_writes = False
        self.held: list[GroupWrite] = []
        self._ids = count(1)
        self._timers: list[tuple[int, int, TimerKey]] = []
        self._sequence = count()

    @property
    def now(self) -> Now:
        return Now(self.timer_ms, WALL_START_MS + self.timer_ms)

    def state(self) -> GroupState:
        """A method, for a type checker believes that attributes stay as they were compared."""
        return self.group.state

    def new_id(self) -> str:
        return f"{next(self._ids):08d}-0000-4000-8000-000000000000"

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        client_id: str = "c",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        version: int = 9,
    ) -> Ticket:
        request = JoinRequest(
            self.group.group_id,
            member_id,
            instance_id,
            client_id,
            "/127.0.0.1",
            session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type,
            protocols,
            version,
        )
        ticket = Ticket(f"join {member_id or client_id}")
        self.carry_out(membership.join(self.group, request, ticket, self.now, self.new_id))
        return ticket

    def join_twice(self, **arguments: Any) -> tuple[str, Ticket]:
        """Join as clients from version 4 on do it: get an id, join with it."""
        first = self.join(**arguments)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.reply.member_id
        return member_id, self.join(member_id, **arguments)

    def sync(
        self,
        member_id: str,
        generation_id: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Ticket:
        request = SyncRequest(
            self.group.generation_id if generation_id is None else generation_id,
            member_id,
            instance_id,
            protocol_type,
            protocol_name,
            assignments or {},
        )
        ticket = Ticket(f"sync {member_id}")
        self.carry_out(syncing.sync(self.group, request, ticket, self.now))
        return ticket

    def heartbeat(
        self, member_id: str, generation_id: int | None = None, instance_id: str | None = None
    ) -> ErrorCode:
        if generation_id is None:
            generation_id = self.group.generation_id
        return sessions.heartbeat(self.group, member_id, generation_id, instance_id, self.timer_ms)

    def leave(self, *identities: tuple[str, str | None]) -> list[ErrorCode]:
        errors, decision = membership.leave(self.group, identities, self.now)
        self.carry_out(decision)
        return errors

    def advance(self, duration_ms: int) -> None:
        """Let time pass, timer by timer."""
        end_ms = self.timer_ms + duration_ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, key = heapq.heappop(self._timers)
            self.timer_ms = max(self.timer_ms, due_ms)
            self.carry_out(sessions.on_timer(self.group, key, self.now))
        self.timer_ms = end_ms

    def ring_all_early(self) -> set[TimerKind]:
        """Let every timer ring now, though its time has not come; what kinds there were."""
        timers, self._timers = self._timers, []
        for _, _, key in timers:
            self.carry_out(sessions.on_timer(self.group, key, self.now))
        return {key[0] for _, _, key in timers}

    def carry_out(self, decision: Decision) -> None:
        for ticket, reply in decision.replies:
            assert isinstance(ticket, Ticket)
            ticket.replies.append(reply)
        for key, due_ms in decision.timers:
            heapq.heappush(self._timers, (due_ms, next(self._sequence), key))
        if decision.write is not None:
            self.held.append(decision.write)
            if not self.is_holding_writes:
                self.release_writes()

    def release_writes(self, error: ErrorCode | None = None) -> None:
        """End the appends that are held back."""
        while self.held:
            write = self.held.pop(0)
            outcome = error
            if outcome is None:
                outcome = self.append_errors.pop(0) if self.append_errors else ErrorCode.NONE
            if outcome is ErrorCode.NONE:
                self.log += write.records
            self.carry_out(writes.complete_write(self.group, write, outcome, self.now))

    def fail_over(self) -> None:
        """Go on with what the log says, as another coordinator would."""
        replay = GroupReplay(self.config)
        for offset, (key, value) in enumerate(self.log):
            replay.record(key, value, batch_offset=offset)
        ((group, offsets),) = replay.finish(self.now.wall_ms)
        self.restart_with(group, offsets)

    def restart_with(self, group: Group, offsets: GroupOffsets) -> None:
        """Go on with a group that was loaded; timers of the one before are gone."""
        self.group = group
        self.offsets = offsets
        self._timers.clear()
        self.carry_out(sessions.on_loaded(group, self.now))

    def make_stable(self, member_count: int = 2, **arguments: Any) -> list[str]:
        """A Stable group of dynamic members; the first one leads."""
        joined = [self.join_twice(**arguments) for _ in range(member_count)]
        self.advance(self.config.initial_rebalance_delay_ms * 2)
        ids = [member_id for member_id, _ in joined]
        for _, ticket in joined:
            assert ticket.error is ErrorCode.NONE
        assert joined[0][1].reply.leader == ids[0]
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: Sequence[str]) -> None:
        """All sync; the leader gives everybody its own id as assignment."""
        leader = self.group.leader_id
        tickets = [self.sync(member_id) for member_id in ids if member_id != leader]
        assert leader is not None
        assignments = {member_id: member_id.encode() for member_id in self.group.members}
        tickets.append(self.sync(leader, assignments=assignments))
        for ticket in tickets:
            assert ticket.error is ErrorCode.NONE, ticket
        assert self.group.state.value == "Stable"

    def make_static_pair(self, version: int = 9) -> tuple[str, str]:
        """A Stable group of two static members, instances `a` (leading) and `b`."""
        tickets = [self.join(instance_id=name, version=version) for name in ("a", "b")]
        self.advance(self.config.initial_rebalance_delay_ms * 2)
        first, second = (ticket.reply for ticket in tickets)
        assert isinstance(first, JoinReply)
        assert first.leader == first.member_id
        self.sync_all([first.member_id, second.member_id])
        return first.member_id, second.member_id


def sync_reply(ticket: Ticket) -> SyncReply:
    reply = ticket.reply
    assert isinstance(reply, SyncReply)
    return reply
