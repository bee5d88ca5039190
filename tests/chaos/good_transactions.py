"""Histories of pipelines with transactions without an anomaly, and anomalies to plant in them.

A model of a cluster writes them: records with their transactions, offsets that a group commits with
them, a stable offset. Pipelines die, are fenced by another instance, abort, or are not told what
became of a commit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chaos.good_histories import Event

__all__ = ["PLANTED_IN_TRANSACTIONS", "good_transactions"]

INPUT = "in"
OUTPUT = "out"
GROUP = "pipeline"
PARTITIONS = 2
PIPELINES = 2
READER = "reader-1"
BOUND_S = 30

OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


def good_transactions(random: Random, steps: int = 150) -> list[Event]:
    """A history of some steps, of the healing after them, and of the final read."""
    model = _Model(random)
    model.begin()
    for _ in range(steps):
        model.step()
    model.finish()
    return model.events


@dataclass(slots=True)
class _Transaction:
    state: str = OPEN


@dataclass(slots=True)
class _Pipeline:
    """One instance of a transactional id; instances after it have other process names."""

    name: str
    identity: str
    partitions: tuple[int, ...]
    sends: int = 0
    transactions: int = 0
    commits: int = 0
    lives: int = 1

    @property
    def process(self) -> str:
        return f"{self.name}.{self.lives}"


@dataclass(slots=True)
class _Model:
    random: Random
    events: list[Event] = field(default_factory=list)
    t: float = 100.0
    inputs: list[list[str]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    # Value and transaction; None for a marker.
    outputs: list[list[tuple[str, _Transaction] | None]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    positions: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    read_up_to: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    sent: int = 0
    is_healed: bool = False
    pipelines: list[_Pipeline] = field(
        default_factory=lambda: [
            _Pipeline(f"pipeline-{one}", f"id-{one}", (one,)) for one in range(PIPELINES)
        ]
    )

    def say(self, process: str, event: str, **facts: Any) -> None:
        self.t += self.random.uniform(0.001, 0.05)
        self.events.append({"t": round(self.t, 6), "process": process, "event": event, **facts})

    def begin(self) -> None:
        self.say("campaign", "run", seed=0, cluster="model", allowed=[])
        self.say(READER, "isolation", level="read_committed")
        rows = [[OUTPUT, number, 0] for number in range(PARTITIONS)]
        self.say(READER, "assign", positions=rows)

    def step(self) -> None:
        self.random.choice([self.feed, self.feed, self.transact, self.read, self.look])()

    def feed(self) -> None:
        """A plain producer writes to the input."""
        self.feed_to(self.random.randrange(PARTITIONS))

    def feed_to(self, number: int) -> None:
        self.sent += 1
        value = f"feeder/{self.sent}"
        self.say("feeder", "send", n=self.sent, topic=INPUT, partition=number, key="k", value=value)
        offset = len(self.inputs[number])
        self.inputs[number].append(value)
        self.say("feeder", "sent", n=self.sent, outcome="ok", offset=offset, error=None)

    def transact(self, end: str | None = None) -> None:
        """A pipeline processes what is there of its partitions, and ends in some way."""
        pipeline = self.random.choice(self.pipelines)
        self.transact_as(pipeline, end)

    def transact_as(self, pipeline: _Pipeline, end: str | None) -> None:
        process = pipeline.process
        pipeline.transactions += 1
        n = pipeline.transactions
        transaction = _Transaction()
        self.say(process, "txn-begin", n=n, id=pipeline.identity)
        touched: set[int] = set()
        positions = {}
        for source in pipeline.partitions:
            start = self.positions[source]
            stop = min(len(self.inputs[source]), start + self.random.randint(1, 6))
            for offset in range(start, stop):
                touched.add(self.write(pipeline, transaction, source, offset))
                if self.random.random() < 0.1:
                    self.read()
            if stop > start:
                positions[source] = stop
        if end is None:
            end = self.random.choice(
                ["commit"] * 6 + ["abort", "dies", "silent commit", "silent abort", "failed commit"]
            )
        if end == "dies":
            # Another instance takes its place; the coordinator aborts.
            self.replace(pipeline, transaction, touched)
            return
        if positions and end != "abort":
            pipeline.commits += 1
            self.say(
                process, "commit", n=pipeline.commits, txn=n, group=GROUP, generation=None,
                offsets=[[INPUT, one, offset] for one, offset in positions.items()],
            )  # fmt: skip
        self.say(process, "txn-ending", n=n, wish="abort" if end == "abort" else "commit")
        is_committed = end in ("commit", "silent commit")
        self.end(transaction, touched, is_committed=is_committed)
        if is_committed:
            for one, offset in positions.items():
                self.positions[one] = offset
        if end.startswith("silent"):
            self.replace(pipeline, transaction, set())
            return
        if end == "failed commit":
            self.say(process, "txn-ending", n=n, wish="abort")
        outcome = COMMITTED if is_committed else ABORTED
        self.say(process, "txn-ended", n=n, outcome=outcome, error=None)

    def write(
        self, pipeline: _Pipeline, transaction: _Transaction, source: int, offset: int
    ) -> int:
        pipeline.sends += 1
        n, process = pipeline.sends, pipeline.process
        number = n % PARTITIONS
        value = f"{process}/{n}"
        read = self.inputs[source][offset]
        self.say(
            process, "send", n=n, topic=OUTPUT, partition=number, key="k", value=value,
            txn=pipeline.transactions, source=[INPUT, source, offset, read],
        )  # fmt: skip
        place = len(self.outputs[number])
        self.outputs[number].append((value, transaction))
        if self.is_healed or self.random.random() < 0.8:
            self.say(process, "sent", n=n, outcome="ok", offset=place, error=None)
        return number

    def end(self, transaction: _Transaction, touched: set[int], *, is_committed: bool) -> None:
        if transaction.state is OPEN:
            transaction.state = COMMITTED if is_committed else ABORTED
            for number in sorted(touched):
                self.outputs[number].append(None)

    def replace(self, pipeline: _Pipeline, transaction: _Transaction, touched: set[int]) -> None:
        self.end(transaction, touched, is_committed=False)
        self.say(pipeline.process, "ended")
        pipeline.lives += 1
        pipeline.sends = pipeline.transactions = pipeline.commits = 0

    def stable(self, number: int) -> int:
        for offset, row in enumerate(self.outputs[number]):
            if row is not None and row[1].state is OPEN:
                return offset
        return len(self.outputs[number])

    def committed(self, number: int, start: int, end: int) -> list[list[Any]]:
        return [
            [offset, row[0]]
            for offset, row in enumerate(self.outputs[number][:end])
            if offset >= start and row is not None and row[1].state is COMMITTED
        ]

    def read(self) -> None:
        rows: list[list[Any]] = []
        for number in range(PARTITIONS):
            end = self.stable(number)
            found = self.committed(number, self.read_up_to[number], end)
            rows += [[OUTPUT, number, *row] for row in found]
            self.read_up_to[number] = end
        if rows:
            self.say(READER, "poll", records=rows)

    def look(self) -> None:
        since = self.t
        rows = [[INPUT, one, self.positions[one] or None] for one in range(PARTITIONS)]
        self.say("observer", "committed", since=since, group=GROUP, offsets=rows)
        for number, log in enumerate(self.outputs):
            self.say(
                "observer", "watermarks", since=self.t, topic=OUTPUT, partition=number, low=0,
                high=len(log), stable=self.stable(number),
            )  # fmt: skip

    def finish(self) -> None:
        self.say("campaign", "healed", bound_s=BOUND_S)
        self.is_healed = True
        # Each producer is acknowledged in each partition that it writes to.
        for number in range(PARTITIONS):
            for _ in range(PARTITIONS + 1):
                self.feed_to(number)
        for pipeline in self.pipelines:
            while any(self.positions[one] < len(self.inputs[one]) for one in pipeline.partitions):
                self.transact_as(pipeline, "commit")
            self.say(pipeline.process, "ended")
        self.say("feeder", "ended")
        self.read()
        self.look()
        for number in range(PARTITIONS):
            values = [[offset, value] for offset, value in enumerate(self.inputs[number])]
            self.final(INPUT, number, len(values), values)
            end = len(self.outputs[number])
            self.final(OUTPUT, number, end, self.committed(number, 0, end))

    def final(self, topic: str, number: int, high: int, rows: list[list[Any]]) -> None:
        self.say(
            "final", "final-read", topic=topic, partition=number, low=0, high=high, records=rows,
            isolation="read_committed",
        )  # fmt: skip


# What to plant. Each returns what the verdict has to name.

Planting = Callable[[list[Event], Random], set[str]]


def _of(events: list[Event], name: str, **facts: Any) -> list[Event]:
    return [
        one
        for one in events
        if one["event"] == name and all(one.get(key) == fact for key, fact in facts.items())
    ]


def _whole(events: list[Event], at_least: int = 1) -> list[tuple[Event, list[Event]]]:
    """Transactions whose commit was acknowledged, with their records."""
    found = []
    for ended in _of(events, "txn-ended", outcome=COMMITTED):
        sends = _of(events, "send", process=ended["process"], txn=ended["n"])
        if len(sends) >= at_least:
            found.append((ended, sends))
    return found


def _remove(events: list[Event], send: Event) -> None:
    """No reader of committed records got it."""
    for one in _of(events, "poll"):
        one["records"] = [row for row in one["records"] if row[3] != send["value"]]
    for one in _of(events, "final-read", topic=OUTPUT):
        one["records"] = [row for row in one["records"] if row[1] != send["value"]]


def _add(events: list[Event], value: str, number: int) -> None:
    """It is in the log, behind all that there was."""
    (final,) = _of(events, "final-read", topic=OUTPUT, partition=number)
    final["records"].append([final["high"], value])
    final["high"] += 1


def plant_aborted_read(events: list[Event], random: Random) -> set[str]:
    """LSO = high watermark, or a marker of the other kind."""
    ended, sends = random.choice(_whole(events))
    ended["outcome"] = ABORTED
    return {sends[0]["value"], ended["process"]}


def plant_read_of_one_that_never_asked(events: list[Event], random: Random) -> set[str]:
    ended, sends = random.choice(_whole(events))
    ending = _of(events, "txn-ending", process=ended["process"], n=ended["n"])
    for one in (ended, *ending):
        events.remove(one)
    return {sends[0]["value"], ended["process"]}


def plant_uncommitted_read(events: list[Event], random: Random) -> set[str]:
    """A reader got it while the transaction was open."""
    read = {row[3]: poll for poll in _of(events, "poll") for row in poll["records"]}
    ended, sends = random.choice([pair for pair in _whole(events) if pair[1][0]["value"] in read])
    poll = read[sends[0]["value"]]
    poll["t"] = sends[0]["t"] + 1e-6
    return {sends[0]["value"], poll["process"], ended["process"]}


def plant_torn_transaction(events: list[Event], random: Random) -> set[str]:
    """One marker was dropped, or a batch was lost."""
    ended, sends = random.choice(_whole(events, at_least=2))
    _remove(events, sends[0])
    return {sends[0]["value"], sends[1]["value"], ended["process"]}


def plant_torn_transaction_of_unknown_outcome(events: list[Event], random: Random) -> set[str]:
    ended, sends = random.choice(_whole(events, at_least=2))
    ended["outcome"] = "unknown"
    _remove(events, sends[-1])
    return {sends[-1]["value"]}


def plant_lost_offsets(events: list[Event], random: Random) -> set[str]:
    """The results are there, and the offsets that were committed with them are not."""
    look = _of(events, "committed")[-1]
    row = random.choice([row for row in look["offsets"] if row[2]])
    row[2] -= 1
    (final,) = _of(events, "final-read", topic=INPUT, partition=row[1])
    return {final["records"][row[2]][1]}


def plant_lost_transaction(events: list[Event], random: Random) -> set[str]:
    """Aborted, after the producer was told that it is committed."""
    ended, sends = random.choice(_whole(events))
    for send in sends:
        _remove(events, send)
    return {sends[0]["value"], ended["process"]}


def plant_dirty_update(events: list[Event], random: Random) -> set[str]:
    """The input was of a transaction that is not there in the end."""
    _, sends = random.choice(_whole(events))
    _, number, offset, value = sends[0]["source"]
    (final,) = _of(events, "final-read", topic=INPUT, partition=number)
    final["records"] = [row for row in final["records"] if row[0] != offset]
    return {value, sends[0]["value"]}


def plant_duplicate_result(events: list[Event], random: Random) -> set[str]:
    """Another instance, which was not fenced, processed the same."""
    _, sends = random.choice(_whole(events))
    t = sends[0]["t"]
    row = {"process": "pipeline-9.1", "n": 1}
    copy = {**sends[0], **row, "t": t + 1e-6, "txn": 1, "value": "pipeline-9.1/1"}
    events += [
        {"t": t, **row, "event": "txn-begin", "id": "id-9"},
        copy,
        {"t": t + 2e-6, **row, "event": "txn-ending", "wish": "commit"},
        {"t": t + 3e-6, **row, "event": "txn-ended", "outcome": COMMITTED},
        {"t": t + 4e-6, "process": "pipeline-9.1", "event": "ended"},
    ]
    _add(events, "pipeline-9.1/1", copy["partition"])
    return {sends[0]["value"], "pipeline-9.1/1"}


def plant_lost_result(events: list[Event], random: Random) -> set[str]:
    """The offset is committed, although the transaction is aborted."""
    ended, sends = random.choice(_whole(events))
    for send in sends:
        _remove(events, send)
    for one in (
        ended,
        *_of(events, "txn-ending", process=ended["process"], n=ended["n"]),
    ):
        events.remove(one)
    return {sends[0]["source"][3]}


def plant_stalled_stable_offset(events: list[Event], random: Random) -> set[str]:
    """No marker comes."""
    look = _of(events, "watermarks")[-1]
    look["stable"] -= 1
    return {str(look["stable"]), str(look["high"])}


def plant_late_stable_offset(events: list[Event], random: Random) -> set[str]:
    """A transaction keeps the stable offset back after healing; other records come meanwhile."""
    t = max(one["t"] for one in events)
    last = _of(events, "watermarks")[-1]
    high = last["high"]
    for after, end, stable in ((1, high + 2, high), (BOUND_S + 2, high + 9, high + 1)):
        events.append({**last, "since": t + after, "t": t + after, "high": end, "stable": stable})
    events.append({**last, "since": t + 99, "t": t + 99, "high": high + 9, "stable": high + 9})
    return {str(high), str(high + 2)}


def plant_stable_regression(events: list[Event], random: Random) -> set[str]:
    last = _of(events, "watermarks")[-1]
    events.append({**last, "since": last["t"], "t": last["t"] + 1e-6, "stable": 0})
    events.append({**last, "since": last["t"], "t": last["t"] + 2e-6})
    return {"stable end", str(last["stable"])}


def plant_lost_commit(events: list[Event], random: Random) -> set[str]:
    """The group's offset goes back to that of an earlier transaction, after healing."""
    commits = [
        one
        for one in _of(events, "commit", process=_of(events, "commit")[-1]["process"])
        if _of(events, "txn-ended", process=one["process"], n=one["txn"], outcome=COMMITTED)
    ]
    if len(commits) < 2:
        process = commits[0]["process"]
        n = max(one["n"] for one in _of(events, "txn-begin", process=process)) + 1
        t = max(one["t"] for one in events)
        _, number, offset = commits[0]["offsets"][0]
        facts = {"process": process, "n": n}
        later = {
            **commits[0], "t": t + 0.2, "n": 900, "txn": n, "offsets": [[INPUT, number, offset + 1]]
        }  # fmt: skip
        events += [
            {"t": t + 0.1, "event": "txn-begin", "id": "id", **facts},
            later,
            {"t": t + 0.3, "event": "txn-ending", "wish": "commit", **facts},
            {"t": t + 0.4, "event": "txn-ended", "outcome": COMMITTED, **facts},
        ]
        commits.append(later)
    t = max(one["t"] for one in events)
    first, last = commits[-2]["offsets"][0], commits[-1]["offsets"][0]
    rows = [[INPUT, first[1], first[2]]]
    events.append(
        {"t": t + 1, "since": t + 0.9, "process": "observer-2", "event": "committed",
         "group": GROUP, "offsets": rows}
    )  # fmt: skip
    return {str(first[2]), str(last[2]), "observer-2"}


def plant_offsets_of_an_aborted_transaction(events: list[Event], random: Random) -> set[str]:
    t = max(one["t"] for one in events)
    facts = {"process": "pipeline-9.1", "n": 1}
    events += [
        {"t": t + 1, "event": "txn-begin", "id": "id-9", **facts},
        {"t": t + 2, "event": "commit", "txn": 1, "group": GROUP, "generation": None,
         "offsets": [[INPUT, 0, 4711]], **facts},
        {"t": t + 3, "event": "txn-ending", "wish": "abort", **facts},
        {"t": t + 4, "event": "txn-ended", "outcome": ABORTED, **facts},
        {"t": t + 6, "since": t + 5, "process": "observer-2", "event": "committed",
         "group": GROUP, "offsets": [[INPUT, 0, 4711]]},
    ]  # fmt: skip
    return {"4711", "observer-2"}


PLANTED_IN_TRANSACTIONS: list[tuple[str, Planting]] = [
    ("aborted-read", plant_aborted_read),
    ("aborted-read", plant_read_of_one_that_never_asked),
    ("uncommitted-read", plant_uncommitted_read),
    ("torn-transaction", plant_torn_transaction),
    ("torn-transaction", plant_torn_transaction_of_unknown_outcome),
    ("torn-transaction", plant_lost_offsets),
    ("lost-transaction", plant_lost_transaction),
    ("dirty-update", plant_dirty_update),
    ("duplicate-result", plant_duplicate_result),
    ("lost-result", plant_lost_result),
    ("stalled-stable-offset", plant_stalled_stable_offset),
    ("stalled-stable-offset", plant_late_stable_offset),
    ("offset-regression", plant_stable_regression),
    ("commit-regression", plant_lost_commit),
    ("phantom-commit", plant_offsets_of_an_aborted_transaction),
]
