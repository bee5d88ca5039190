"""Runs scenarios of a consumer group: the pure functions, with time and log in memory.

=========================  ====================================================================
Command                    Meaning
=========================  ====================================================================
join a                     member a joins; the first time without an id, then with the one it got
join a instance=i          likewise as a static member
sync a a=x b=y             member a syncs, here as the leader, and gives these assignments
heartbeat a                a sign of life
commit a t-0=5             a commits an offset of its generation
leave a                    a leaves
restart a                  the client of member a begins anew and has forgotten its id
wait 10s                   time passes; timers ring
hold                       appends to the log wait from now on
release [ERROR]            those that waited end, well or with an error; later ones do not wait
fail-over                  another coordinator loads what is in the log
stable a=t-0 b=t-1         these members join, and the first one gives these assignments
=========================  ====================================================================

A session lasts 10 s, a rebalance takes at most 60 s, the first one waits 3 s for more members.

The trace of a step: answers, also those of requests that waited since earlier steps; records that
were appended; timers that were set, by the second at which they ring; the group, if it differs from
before.
"""

from collections.abc import Sequence

from odradek.coordinator.group.decisions import Decision, JoinReply, SyncReply
from odradek.coordinator.group.offsets import apply_commit, build_commit
from odradek.coordinator.group.records import (
    OffsetKey,
    parse_group_value,
    parse_key,
    parse_offset_value,
)
from odradek.coordinator.group.sessions import check_commit
from odradek.errors import ErrorCode
from tests.scenarios.scripts import GIVEN
from tests.unit.coordinator.group.group_driver import GroupDriver, Ticket

__all__ = ["run"]


class _Driver(GroupDriver):
    """Takes note of the timers that are set."""

    def __init__(self) -> None:
        super().__init__()
        self.set_timers: list[tuple[str, str, int]] = []

    def carry_out(self, decision: Decision) -> None:
        self.set_timers += [(kind.value, member, due) for (kind, member, _), due in decision.timers]
        super().carry_out(decision)


class _Scenario:
    def __init__(self) -> None:
        self.driver = _Driver()
        self.ids: dict[str, str] = {}  # Of members, by name.
        self.names: dict[str, str] = {}  # And the reverse; an id of before keeps its name.
        self.instances: dict[str, str] = {}
        self.waiting: list[tuple[str, Ticket]] = []
        self.answers: list[str] = []
        self.told_records = 0
        self.told_group = self.group()

    def perform(self, command: str) -> None:
        name, *arguments = command.split()
        who = arguments[0] if arguments else ""
        options = dict(argument.split("=") for argument in arguments if "=" in argument)
        driver = self.driver
        match name:
            case "join":
                if "instance" in options:
                    self.instances[who] = options["instance"]
                ticket = driver.join(
                    self.ids.get(who, ""), client_id=who, instance_id=self.instances.get(who)
                )
                self.waiting.append((who, ticket))
            case "sync":
                assignments = {self.ids[m]: part.encode() for m, part in options.items()}
                ticket = driver.sync(
                    self.ids[who], assignments=assignments, instance_id=self.instances.get(who)
                )
                self.waiting.append((who, ticket))
            case "heartbeat":
                self.answer(who, driver.heartbeat(self.ids[who]).name)
            case "commit":
                self.answer(who, self.commit(who, options).name)
            case "leave":
                [error] = driver.leave((self.ids.pop(who), self.instances.get(who)))
                self.answer(who, error.name)
            case "restart":
                del self.ids[who]
            case "wait":
                driver.advance(int(who.removesuffix("s")) * 1000)
            case "hold":
                driver.is_holding_writes = True
            case "release":
                driver.is_holding_writes = False
                driver.release_writes(ErrorCode[who] if who else None)
            case "fail-over":
                driver.fail_over()
            case "stable":
                leader, *followers = options
                joins = [f"join {member}" for member in options for _ in range(2)]
                syncs = [f"sync {follower}" for follower in followers]
                for step in (*joins, "wait 6s", *syncs, f"sync {leader} {' '.join(arguments)}"):
                    self.perform(step)
            case _:
                raise ValueError(f"unknown command {name}")
        self.collect_answers()

    def commit(self, who: str, offsets: dict[str, str]) -> ErrorCode:
        driver = self.driver
        error = check_commit(
            driver.group,
            self.ids[who],
            driver.group.generation_id,
            self.instances.get(who),
            driver.timer_ms,
        )
        if error is not ErrorCode.NONE:
            return error
        topics = [
            (topic, [(int(number), int(offsets[f"{topic}-{number}"]), -1, "")])
            for topic, _, number in (name.rpartition("-") for name in offsets)
        ]
        write = build_commit(
            driver.offsets, topics, driver.now.wall_ms, driver.config.max_metadata_size
        )
        assert write is not None
        driver.log += write.records()
        apply_commit(write, len(driver.log))
        return ErrorCode.NONE

    def collect_answers(self) -> None:
        for who, ticket in list(self.waiting):
            if ticket.is_answered:
                self.waiting.remove((who, ticket))
                self.answer(who, self.describe(who, ticket.reply))

    def answer(self, who: str, text: str) -> None:
        self.answers.append(f"{who} is answered {text}")

    def describe(self, who: str, reply: JoinReply | SyncReply) -> str:
        if isinstance(reply, JoinReply):
            if reply.member_id:
                self.ids[who] = reply.member_id
                self.names[reply.member_id] = who
            if reply.error is not ErrorCode.NONE:
                return reply.error.name
            text = f"generation {reply.generation_id}, leader {self.name(reply.leader)}"
            if reply.members:
                text += f", members {_listed([self.name(m.member_id) for m in reply.members])}"
            return f"{text}, no need to assign" if reply.skip_assignment else text
        if reply.error is not ErrorCode.NONE:
            return reply.error.name
        return f"assignment {reply.assignment.decode() or 'of nothing'}"

    def name(self, member_id: str | None) -> str:
        """The name of a member; that it has another id than before counts as well."""
        if not member_id:
            return "none"
        name = self.names.get(member_id)
        if name is None:  # Its answer is still to come.
            return member_id.partition("-")[0]
        return name if self.ids.get(name) == member_id else f"former {name}"

    # The trace

    def group(self) -> str:
        group = self.driver.group
        text = f"group is {group.state.value}, generation {group.generation_id}"
        if group.members:
            members = _listed([self.name(member_id) for member_id in group.members])
            text += f", leader {self.name(group.leader_id)}, members {members}"
        if group.pending_members:
            text += f", expects {_listed([self.name(m) for m in group.pending_members])}"
        committed = [
            f"{topic}-{number}={slot.committed.offset}"
            for (topic, number), slot in sorted(self.driver.offsets.slots.items())
            if slot.committed is not None
        ]
        return f"{text}, offsets {_listed(committed)}" if committed else text

    def take_trace(self) -> list[str]:
        trace = list(self.answers)
        self.answers.clear()
        trace += [f"appended: {self.record(r)}" for r in self.driver.log[self.told_records :]]
        self.told_records = len(self.driver.log)
        for kind, member, due_ms in self.driver.set_timers:
            whose = f" of {self.name(member)}" if member else ""
            trace.append(f"timer: {kind}{whose} at {due_ms / 1000:g} s")
        self.driver.set_timers.clear()
        group = self.group()
        if group != self.told_group:
            trace.append(group)
        self.told_group = group
        return trace

    def record(self, record: tuple[bytes, bytes | None]) -> str:
        key, value = parse_key(record[0]), record[1]
        if isinstance(key, OffsetKey):
            if value is None:
                return f"no offset of {key.topic}-{key.partition}"
            return f"offset {parse_offset_value(value).offset} of {key.topic}-{key.partition}"
        if value is None:
            return "no group"
        group = parse_group_value(value)
        members = [f"{self.name(m.member_id)}={m.assignment.decode()}" for m in group.members]
        return f"group of generation {group.generation_id}, {_listed(members) or 'no members'}"


def _listed(items: Sequence[str]) -> str:
    return ", ".join(items)


def run(steps: Sequence[Sequence[str]]) -> list[list[str]]:
    """The trace of each step."""
    scenario = _Scenario()
    traces = []
    for commands in steps:
        for command in commands:
            scenario.perform(command.removeprefix(GIVEN))
            if command.startswith(GIVEN):
                scenario.take_trace()
        traces.append(scenario.take_trace())
    return traces
