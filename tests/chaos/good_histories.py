"""Histories without an anomaly, as a cluster that keeps every promise would leave them.

A model of a cluster writes them: one list of records for each partition, one register for each
committed offset. Acknowledgements and commits are answered late, or not at all, whether they took
effect or not.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chaos.checker import History, parse_history

__all__ = ["Event", "good_history", "parsed"]

Event = dict[str, Any]

TOPIC = "t"
GROUP = "g"
PARTITIONS = 2
PRODUCERS = ("producer-1", "producer-2")
READERS = ("reader-1", "reader-2")
MEMBERS = ("member-1", "member-2")
BROKERS = (1, 2, 3)


def parsed(events: Iterable[Event]) -> History:
    """What the checker sees of them."""
    return parse_history(json.dumps(event) + "\n" for event in events)


def good_history(random: Random, steps: int = 120) -> list[Event]:
    """A history of some steps under faults, and of the healing after them."""
    model = _Model(random)
    model.begin()
    for _ in range(steps):
        model.step()
    model.heal()
    model.end()
    return model.events


@dataclass(slots=True)
class _Model:
    random: Random
    events: list[Event] = field(default_factory=list)
    t: float = 100.0
    logs: list[list[str]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    sends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PRODUCERS, 0))
    # Answers that are still to come.
    pending: list[Event] = field(default_factory=list)
    positions: dict[str, list[int]] = field(default_factory=dict)
    generation: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)
    committed: list[int | None] = field(default_factory=lambda: [None] * PARTITIONS)
    commits: int = 0
    faults: int = 0

    def say(self, process: str, event: str, **facts: Any) -> None:
        self.t += self.random.uniform(0.001, 0.1)
        self.events.append({"t": round(self.t, 6), "process": process, "event": event, **facts})

    def begin(self) -> None:
        self.say("campaign", "run", seed=0, cluster="model", allowed=[])
        for reader in READERS:
            self.positions[reader] = [0] * PARTITIONS
            rows = [[TOPIC, number, 0] for number in range(PARTITIONS)]
            self.say(reader, "assign", positions=rows)
        self.rebalance()

    def step(self) -> None:
        self.random.choice(
            [
                self.send, self.send, self.send, self.answer, self.answer, self.read, self.read,
                self.work, self.work, self.look, self.rebalance, self.fault,
            ]
        )()  # fmt: skip

    def send(self, outcome: str | None = None, partition: int | None = None) -> None:
        process = self.random.choice(PRODUCERS)
        self.send_as(process, outcome, partition)

    def send_as(self, process: str, outcome: str | None, partition: int | None) -> None:
        number = self.random.randrange(PARTITIONS) if partition is None else partition
        self.sends[process] += 1
        n = self.sends[process]
        value = f"{process}/{n}"
        self.say(process, "send", n=n, topic=TOPIC, partition=number, key="k", value=value)
        if outcome is None:
            outcome = self.random.choice(["ok"] * 6 + ["told-nothing", "lost", "silent", "fail"])
        offset: int | None = len(self.logs[number])
        if outcome in ("ok", "told-nothing", "silent"):
            self.logs[number].append(value)
        if outcome == "silent":
            return
        answer = {"ok": "ok", "told-nothing": "ok", "lost": "unknown", "fail": "fail"}[outcome]
        if outcome != "ok":
            offset = None
        self.pending.append(
            {
                "process": process, "event": "sent", "n": n, "outcome": answer, "offset": offset,
                "error": None if answer == "ok" else "_MSG_TIMED_OUT",
            }
        )  # fmt: skip

    def answer(self) -> None:
        if self.pending:
            row = self.pending.pop(self.random.randrange(len(self.pending)))
            facts = {name: fact for name, fact in row.items() if name not in ("process", "event")}
            self.say(row["process"], row["event"], **facts)

    def read(self) -> None:
        reader = self.random.choice(READERS)
        self.poll(reader, self.positions[reader], range(PARTITIONS), self.random.randint(0, 5))

    def poll(
        self, process: str, positions: list[int], partitions: Iterable[int], most: int
    ) -> None:
        rows: list[list[Any]] = []
        for number in partitions:
            start = positions[number]
            values = self.logs[number][start : start + most]
            rows += [[TOPIC, number, start + i, value] for i, value in enumerate(values)]
            positions[number] = start + len(values)
        self.say(process, "poll", records=rows)

    def rebalance(self) -> None:
        # Commits in flight are answered by the generation they were sent in, or refused.
        while any(row["event"] == "commit-done" for row in self.pending):
            self.answer()
        for member in MEMBERS:
            if self.owned.get(member):
                rows = [[TOPIC, number] for number in self.owned[member]]
                self.say(
                    member, "revoked", group=GROUP, generation=self.generation, partitions=rows
                )
        self.generation += self.random.choice([1, 1, 2])
        numbers = list(range(PARTITIONS))
        cut = self.random.randint(0, PARTITIONS)
        for member, mine in zip(MEMBERS, (numbers[:cut], numbers[cut:]), strict=True):
            self.owned[member] = mine
            self.positions[member] = [self.committed[number] or 0 for number in numbers]
            self.say(
                member, "joined", group=GROUP, generation=self.generation, member=f"{member}-id",
                partitions=[[TOPIC, number] for number in mine],
            )  # fmt: skip

    def work(self) -> None:
        member = self.random.choice(MEMBERS)
        mine = self.owned[member]
        self.poll(member, self.positions[member], mine, self.random.randint(0, 5))
        if mine and self.random.random() < 0.7:
            self.commit(member, mine, self.random.choice(["ok", "ok", "silent", "fail"]))

    def commit(self, member: str, mine: list[int], outcome: str) -> None:
        self.commits += 1
        rows = [[TOPIC, number, self.positions[member][number]] for number in mine]
        self.say(
            member, "commit", n=self.commits, group=GROUP, generation=self.generation, offsets=rows
        )
        if outcome != "fail":
            for number in mine:
                self.committed[number] = self.positions[member][number]
        if outcome != "silent":
            self.say(member, "commit-done", n=self.commits, outcome=outcome, error=None)

    def look(self) -> None:
        since = self.t
        rows = [[TOPIC, number, self.committed[number]] for number in range(PARTITIONS)]
        self.say("observer-1", "committed", since=since, group=GROUP, offsets=rows)
        for number, log in enumerate(self.logs):
            self.say(
                "observer-1", "watermarks", since=self.t, topic=TOPIC, partition=number,
                low=0, high=len(log),
            )  # fmt: skip

    def fault(self) -> None:
        self.faults += 1
        for phase in ("begin", "end"):
            self.say(
                "campaign", "fault", n=self.faults, name="kill", phase=phase, targets=["broker-1"]
            )

    def heal(self) -> None:
        self.say("campaign", "healed", bound_s=60)
        for process in PRODUCERS:
            for number in range(PARTITIONS):
                self.send_as(process, "ok", number)
        while self.pending:
            self.answer()
        for reader in READERS:
            self.poll(reader, self.positions[reader], range(PARTITIONS), 10_000)
        for member in MEMBERS:
            self.poll(member, self.positions[member], self.owned[member], 10_000)
            if self.owned[member]:
                self.commit(member, self.owned[member], "ok")
        self.look()

    def end(self) -> None:
        for number, log in enumerate(self.logs):
            rows = [[offset, value] for offset, value in enumerate(log)]
            self.say(
                "final", "final-read", topic=TOPIC, partition=number, low=0, high=len(log),
                records=rows,
            )  # fmt: skip
            for broker in BROKERS:
                self.say(
                    "final", "replica", broker=broker, topic=TOPIC, partition=number,
                    high=len(log),
                    batches=[[o, o, 1 + o // 20, f"d{o}", 7, 0, o] for o in range(len(log))],
                    records=rows,
                )  # fmt: skip
            self.say(
                "final", "in-sync", topic=TOPIC, partition=number,
                replicas=[1, 2, 3], in_sync=[3, 1, 2],
            )  # fmt: skip
        self.say("final", "controllers", counts={"1": 0, "2": 1, "3": 0})
