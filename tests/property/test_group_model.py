"""A group under fire: members join, leave, pause, restart and die, writes fail, coordinators move.

Clients follow the protocol as consumers do, on a virtual clock, with a random sequence of faults
from one seed. Checked after every step:

- In one generation a partition has at most one owner, whatever anybody was told by whom.
- The group's books agree with its members.
- No request is answered twice.
- What was acknowledged as committed is what is read.

Then the faults end. Within a bound the group must be Stable with exactly the clients that are
alive, every partition owned once, and nobody still waiting.
"""

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.group import sessions
from odradek.coordinator.group.group import Group, GroupState
from odradek.coordinator.group.member import protocol_names
from odradek.coordinator.group.membership import NEW_MEMBER_TIMEOUT_MS
from odradek.coordinator.group.offsets import (
    GroupOffsets,
    apply_commit,
    build_commit,
    fail_commit,
    fetch_offset,
)
from odradek.coordinator.group.replay import GroupReplay
from odradek.coordinator.group.sessions import check_commit
from odradek.errors import ErrorCode
from tests.unit.coordinator.group.group_driver import GroupDriver, Ticket

PARTITION_COUNT = 7
STEP_MS = 500
HEARTBEAT_MS = 3_000
SESSION_MS = 10_000
MAX_REBALANCE_MS = 40_000
MAX_CLIENTS = 8
FAULT_STEPS = 400
# A client of an old version that vanished with its first JoinGroup parked is waited for longest;
# then two rebalances, one of which somebody sleeps through.
SETTLE_MS = NEW_MEMBER_TIMEOUT_MS + 2 * (MAX_REBALANCE_MS + SESSION_MS) + 10_000

RETRIED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Client:
    """A consumer, as far as its group can tell."""

    def __init__(self, world: "World", instance_id: str | None) -> None:
        random = world.random
        self.world = world
        self.instance_id = instance_id
        self.version = random.choice([5, 9] if instance_id is not None else [3, 4, 9])
        self.rebalance_timeout_ms = random.choice([15_000, 25_000, MAX_REBALANCE_MS])
        self.member_id = ""
        self.generation_id = -1
        self.is_alive = True
        self.is_member = False  # Joined and synced, as far as it knows.
        self.owned: list[int] = []
        self.wakes_ms = 0  # Paused until then.
        self.heartbeat_due_ms = 0
        self.ticket: Ticket | None = None  # Of the request it waits for.
        self.is_syncing = False  # What that request is.
        self.gives_up_ms = 0  # When it stops waiting for an answer.
        self.is_reply_lost = False
        # Joins, and then only says that it is alive, until somebody throws it out.
        self.is_dawdling = False

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    def step(self) -> None:
        now_ms = self.world.driver.timer_ms
        if not self.is_alive or now_ms < self.wakes_ms:
            return
        if self.ticket is not None:
            self.check_answer(now_ms)
        elif self.is_member or (self.is_dawdling and self.generation_id >= 0):
            if now_ms >= self.heartbeat_due_ms:
                self.heartbeat_due_ms = now_ms + HEARTBEAT_MS
                self.show_life()
        else:
            self.join()

    def check_answer(self, now_ms: int) -> None:
        ticket = self.ticket
        assert ticket is not None
        if ticket.is_answered and not self.is_reply_lost:
            self.ticket = None
            if self.is_syncing:
                self.on_synced(ticket)
            else:
                self.on_joined(ticket)
        elif now_ms >= self.gives_up_ms:
            self.ticket = None
        elif self.is_syncing and self.world.random.random() < 0.2:
            self.on_error(self.heartbeat())

    def wait_for(self, ticket: Ticket, *, is_syncing: bool) -> None:
        self.ticket = ticket
        self.is_syncing = is_syncing
        self.is_reply_lost = self.world.has_fault(0.04)
        patience_ms = 5_000 if self.is_reply_lost else self.rebalance_timeout_ms + 5_000
        self.gives_up_ms = self.world.driver.timer_ms + patience_ms

    def join(self) -> None:
        ticket = self.world.driver.join(
            self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            version=self.version,
        )
        self.wait_for(ticket, is_syncing=False)

    def on_joined(self, ticket: Ticket) -> None:
        reply = ticket.reply
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.error is not ErrorCode.NONE:
            self.on_error(reply.error)
        else:
            self.member_id = reply.member_id
            self.generation_id = reply.generation_id
            if self.is_dawdling:
                return
            assignments = {}
            if reply.leader == self.member_id and not reply.skip_assignment:
                assignments = self.world.assign([m.member_id for m in reply.members])
            synced = self.world.driver.sync(
                self.member_id,
                self.generation_id,
                assignments,
                instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
            )
            self.wait_for(synced, is_syncing=True)

    def on_synced(self, ticket: Ticket) -> None:
        reply = ticket.reply
        if reply.error is not ErrorCode.NONE:
            self.on_error(reply.error)
            return
        self.owned = json.loads(reply.assignment or b"[]")
        self.is_member = True
        for partition in self.owned:
            key = (self.generation_id, partition)
            owner = self.world.owners.setdefault(key, self.identity)
            assert owner == self.identity, f"{key} belongs to {owner} and {self.identity}"

    def heartbeat(self) -> ErrorCode:
        return self.world.driver.heartbeat(self.member_id, self.generation_id, self.instance_id)

    def show_life(self) -> None:
        error = self.heartbeat()
        if error is ErrorCode.NONE and self.owned and self.world.random.random() < 0.5:
            error = self.world.commit(self, self.world.random.choice(self.owned))
        self.on_error(error)

    def on_error(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive = False
            return
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        else:
            assert error in RETRIED or error is ErrorCode.ILLEGAL_GENERATION, error.name
        is_lost = error in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        if is_lost and self.is_member:
            return  # It looks for its coordinator and goes on.
        self.is_member = self.is_dawdling = False
        self.generation_id = -1
        self.owned = []
        self.ticket = None


class World:
    """The group, its clients, and what goes wrong."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driver = GroupDriver()
        self.clients: list[Client] = []
        self.owners: dict[tuple[int, int], str] = {}  # By generation and partition.
        self.committed: dict[int, int] = {}
        self.next_offset = 0
        self.are_faults_on = True

    def has_fault(self, probability: float) -> bool:
        return self.are_faults_on and self.random.random() < probability

    def assign(self, member_ids: list[str]) -> dict[str, bytes]:
        shuffled = sorted(member_ids)
        self.random.shuffle(shuffled)
        return {
            member_id: json.dumps(list(range(PARTITION_COUNT))[index :: len(shuffled)]).encode()
            for index, member_id in enumerate(shuffled)
        }

    def commit(self, client: Client, partition: int) -> ErrorCode:
        group = self.driver.group
        error = check_commit(
            group,
            client.member_id,
            client.generation_id,
            client.instance_id,
            self.driver.timer_ms,
        )
        if error is not ErrorCode.NONE:
            return error
        self.next_offset += 1
        topics = [("t", [(partition, self.next_offset, -1, "")])]
        write = build_commit(self.driver.offsets, topics, self.driver.now.wall_ms, 4096)
        assert write is not None
        if self.has_fault(0.1):
            fail_commit(write)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.driver.log += write.records()
        apply_commit(write, len(self.driver.log))
        self.committed[partition] = self.next_offset
        return ErrorCode.NONE

    def step(self) -> None:
        self.driver.advance(STEP_MS)
        if self.are_faults_on:
            self.cause_trouble()
        clients = self.clients[:]
        self.random.shuffle(clients)
        for client in clients:
            client.step()
            self.check()
        self.clients = [client for client in self.clients if client.is_alive]

    def cause_trouble(self) -> None:
        random = self.random
        driver = self.driver
        if len(self.clients) < MAX_CLIENTS and random.random() < 0.05:
            instance_id = random.choice([None, None, "a", "b", "c"])
            if instance_id not in [c.instance_id for c in self.clients if c.instance_id]:
                self.clients.append(Client(self, instance_id))
        if self.clients and random.random() < 0.06:
            self.afflict(random.choice(self.clients))
        if random.random() < 0.03:
            driver.is_holding_writes = not driver.is_holding_writes
        if not driver.is_holding_writes and driver.held:
            self.end_writes()
        if random.random() < 0.006:
            self.fail_over()

    def afflict(self, client: Client) -> None:
        random = self.random
        match random.choice(["pause", "pause", "die", "leave", "restart", "dawdle"]):
            case "pause":
                client.wakes_ms = self.driver.timer_ms + random.choice([2_000, 8_000, 30_000])
            case "die":
                client.is_alive = False
            case "leave" if client.member_id and client.instance_id is None:
                self.driver.leave((client.member_id, None))
                client.is_alive = False
            case "restart" if client.instance_id is not None:
                # The old process may live on for a while, and finds out when it speaks.
                client.is_alive = random.random() < 0.5
                self.clients.append(Client(self, client.instance_id))
            case "dawdle" if not client.is_member:
                client.is_dawdling = True
            case _:
                pass

    def end_writes(self) -> None:
        if self.random.random() < 0.7:
            self.driver.release_writes()
            return
        if self.random.random() < 0.3:  # Nobody knows, but it is in the log.
            for write in self.driver.held:
                self.driver.log += write.records
            self.driver.release_writes(ErrorCode.REQUEST_TIMED_OUT)
        else:
            self.driver.release_writes(ErrorCode.NOT_ENOUGH_REPLICAS)

    def fail_over(self) -> None:
        """Another coordinator takes over; what was being written may or may not be in the log."""
        driver = self.driver
        for write in driver.held:
            if self.random.random() < 0.5:
                driver.log += write.records
        driver.held.clear()
        driver.carry_out(sessions.unload(driver.group, driver.now))
        replay = GroupReplay(driver.config)
        for offset, (key, value) in enumerate(driver.log):
            replay.record(key, value, batch_offset=offset)
        groups = list(replay.finish(driver.now.wall_ms))
        new = Group("g", driver.config, wall_ms=driver.now.wall_ms), GroupOffsets("g")
        driver.restart_with(*(groups[0] if groups else new))

    def check(self) -> None:
        group = self.driver.group
        members = group.members
        names = [name for m in members.values() for name in protocol_names(m.protocols)]
        assert group.votes == {name: names.count(name) for name in names}
        assert group.awaiting_join_count == sum(m.is_awaiting_join for m in members.values())
        assert group.leader_id in members if members else group.leader_id is None
        assert group.static_members == {
            m.instance_id: m.member_id for m in members.values() if m.instance_id is not None
        }
        assert set(group.pending_sync) <= set(members)
        assert not set(group.pending_members) & set(members)
        if group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            assert not group.pending_sync
        if group.state is GroupState.EMPTY:
            assert not members
        for partition, offset in self.committed.items():
            assert (
                fetch_offset(self.driver.offsets, "t", partition, require_stable=True)[0] == offset
            )

    def settle(self) -> None:
        self.are_faults_on = False
        self.driver.is_holding_writes = False
        self.driver.release_writes()
        idle = Client(self, None)
        idle.is_dawdling = True
        self.clients.append(idle)
        for _ in range(SETTLE_MS // STEP_MS):
            self.step()

    def check_settled(self) -> None:
        group = self.driver.group
        alive = {client.member_id: client for client in self.clients}
        assert set(group.members) == set(alive)
        assert not group.pending_members
        assert not group.pending_sync
        if not alive:
            assert group.state is GroupState.EMPTY
            return
        assert group.state is GroupState.STABLE
        assert {client.generation_id for client in self.clients} == {group.generation_id}
        owned: list[int] = []
        for client in self.clients:
            assert client.is_member or client.is_dawdling
            # A member that was told its generation by a coordinator before this one, and dawdles
            # since, looks like one that is at work.
            assignment = group.members[client.member_id].assignment
            owned += client.owned if client.is_member else json.loads(assignment)
        assert sorted(owned) == list(range(PARTITION_COUNT))
        for member in group.members.values():
            assert not member.is_awaiting_join
            assert not member.is_awaiting_sync


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(FAULT_STEPS):
        world.step()
    world.settle()
    world.check_settled()
    return world


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_a_group_keeps_its_promises_and_recovers(seed: int) -> None:
    run(seed)


def test_the_simulation_gets_somewhere() -> None:
    """A simulation in which nothing happens proves nothing."""
    worlds = [run(seed) for seed in range(3)]
    assert sum(world.driver.group.generation_id for world in worlds) > 30
    assert sum(len(world.owners) for world in worlds) > 100
    assert all(world.committed for world in worlds)


def test_a_simulation_can_be_repeated() -> None:
    """The seed of a failure is all that is needed to see it again."""
    first, second = run(7), run(7)
    assert first.owners == second.owners
    assert first.driver.log == second.driver.log
