"""A history as values: what `parse_history` makes of the lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "Assigned",
    "Batch",
    "Commit",
    "Committed",
    "Fault",
    "FinalRead",
    "Healed",
    "History",
    "InSync",
    "Joined",
    "MalformedHistoryError",
    "Outcome",
    "Partition",
    "Poll",
    "Record",
    "Replica",
    "Revoked",
    "Send",
    "Source",
    "Transaction",
    "TransactionFate",
    "Watermarks",
    "parse_history",
]

NEVER = float("inf")
READ_COMMITTED = "read_committed"


class MalformedHistoryError(Exception):
    """A line is not what the format says."""


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class TransactionFate(StrEnum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Record(NamedTuple):
    partition: Partition
    offset: int
    value: str


class Source(NamedTuple):
    """The record of which another one is the result."""

    partition: Partition
    offset: int
    value: str

    def __str__(self) -> str:
        return f"{self.value!r} at {self.offset} of {self.partition}"


@dataclass(slots=True)
class Transaction:
    """What a producer did with a transaction, and what it was told."""

    process: str
    n: int
    transactional_id: str
    began: float
    # When its end was asked for, if it was.
    ending: float = NEVER
    is_commit: bool = False  # What was asked for first.
    ended: float = NEVER
    outcome: TransactionFate = TransactionFate.UNKNOWN

    @property
    def fate(self) -> TransactionFate:
        """What has to have become of it: nothing commits a transaction unasked."""
        return self.outcome if self.is_commit else TransactionFate.ABORTED

    def __str__(self) -> str:
        return f"transaction {self.n} of {self.process} ({self.transactional_id})"


@dataclass(slots=True)
class Send:
    """A record that was handed to a producer, and what became of it."""

    process: str
    n: int
    partition: Partition
    value: str
    began: float
    ended: float = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    error: str | None = None
    transaction: Transaction | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    process: str
    t: float
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A reader begins at these positions, by hand."""

    process: str
    t: float
    positions: Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class Joined:
    process: str
    t: float
    group: str
    generation: int | None
    member: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    process: str
    t: float
    partitions: tuple[Partition, ...]


@dataclass(slots=True)
class Commit:
    process: str
    n: int
    group: str
    generation: int | None
    offsets: Mapping[Partition, int]
    began: float
    ended: float = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    # The transaction that it is part of: its beginning, end and outcome are those of its commit.
    transaction: Transaction | None = None
    # When the offsets were handed over: a transaction ends later.
    handed_over: float = NEVER


@dataclass(frozen=True, slots=True)
class Committed:
    """A look at the offsets of a group."""

    process: str
    since: float
    t: float
    group: str
    offsets: Mapping[Partition, int | None]


@dataclass(frozen=True, slots=True)
class Watermarks:
    process: str
    since: float
    t: float
    partition: Partition
    low: int
    high: int
    stable: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    t: float
    n: int
    name: str
    phase: str
    targets: tuple[str, ...]
    detail: str
    serves: bool


@dataclass(frozen=True, slots=True)
class Healed:
    t: float
    bound_s: float


@dataclass(frozen=True, slots=True)
class InSync:
    """The replicas of a partition after healing, and those in sync."""

    t: float
    partition: Partition
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FinalRead:
    process: str
    t: float
    partition: Partition
    low: int
    high: int
    records: tuple[Record, ...]
    is_committed: bool = False


class Batch(NamedTuple):
    base: int
    last: int
    leader_epoch: int
    digest: str
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class Replica:
    t: float
    broker: int
    partition: Partition
    high: int
    batches: tuple[Batch, ...]
    records: tuple[Record, ...]


@dataclass(slots=True)
class History:
    """All that was written down, each list by time."""

    run: Mapping[str, Any] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    # What one reader or member went through: polls, assignments, revocations.
    reading: list[Poll | Assigned | Joined | Revoked] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    looks: list[Committed] = field(default_factory=list)
    watermarks: list[Watermarks] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    healed: Healed | None = None
    final_reads: dict[Partition, FinalRead] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    ended: dict[str, float] = field(default_factory=dict)
    in_sync: list[InSync] = field(default_factory=list)
    controllers: Mapping[str, int] | None = None
    transactions: list[Transaction] = field(default_factory=list)
    # The processes that read committed records alone.
    committed_readers: set[str] = field(default_factory=set)
    # Names of anomalies for which the cluster's own logs give a reason.
    excused: set[str] = field(default_factory=set)

    @property
    def polls(self) -> list[Poll]:
        return [one for one in self.reading if isinstance(one, Poll)]

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(self.run.get("allowed", ())) | self.excused


def parse_history(lines: Iterable[str]) -> History:
    """Reads the lines of one or several files, one after the other.

    Raises:
        MalformedHistoryError: A line is not of the format.
    """
    events = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            continue  # Its writer died over it.
        try:
            event = json.loads(line)
            events.append((float(event["t"]), number, event))
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedHistoryError(
                f"line {number}: expected a JSON object with t and event, got {line[:200]!r}"
            ) from error
    events.sort(key=lambda one: one[:2])
    reader = _Reader()
    for _, number, event in events:
        try:
            reader.take(event)
        except (KeyError, ValueError, TypeError) as error:
            raise MalformedHistoryError(f"line {number}: {error!r} in {event}") from error
    reader.end()
    return reader.history


class _Reader:
    def __init__(self) -> None:
        self.history = History()
        self._sends: dict[tuple[str, int], Send] = {}
        self._commits: dict[tuple[str, int], Commit] = {}
        self._transactions: dict[tuple[str, int], Transaction] = {}

    def end(self) -> None:
        """Gives commits the outcomes of their transactions."""
        for commit in self.history.commits:
            transaction = commit.transaction
            if transaction is not None:
                commit.began = transaction.ending
                commit.ended = transaction.ended
                commit.outcome = _OUTCOMES[transaction.fate]

    def _transaction(self, event: Mapping[str, Any]) -> Transaction | None:
        n = event.get("txn")
        return None if n is None else self._transactions[event["process"], n]

    def take(self, event: Mapping[str, Any]) -> None:
        name = event["event"]
        taken = getattr(self, "_take_" + name.replace("-", "_"), None)
        if taken is None:
            raise ValueError(f"no event has the name {name!r}")
        taken(event)

    def _take_run(self, event: Mapping[str, Any]) -> None:
        self.history.run = event

    def _take_send(self, event: Mapping[str, Any]) -> None:
        key = (event["process"], event["n"])
        if key in self._sends:
            raise ValueError(f"a second send {key}")
        send = Send(*key, _partition(event), event["value"], event["t"])
        send.transaction = self._transaction(event)
        if (source := event.get("source")) is not None:
            topic, number, offset, value = source
            send.source = Source(Partition(topic, number), offset, value)
        self._sends[key] = send
        self.history.sends.append(send)

    def _take_sent(self, event: Mapping[str, Any]) -> None:
        send = self._sends[event["process"], event["n"]]
        send.ended = event["t"]
        send.outcome = Outcome(event["outcome"])
        send.offset = event["offset"]
        send.error = event.get("error")

    def _take_assign(self, event: Mapping[str, Any]) -> None:
        positions = {Partition(t, p): offset for t, p, offset in event["positions"]}
        self.history.reading.append(Assigned(event["process"], event["t"], positions))

    def _take_poll(self, event: Mapping[str, Any]) -> None:
        records = tuple(Record(Partition(t, p), o, value) for t, p, o, value in event["records"])
        self.history.reading.append(Poll(event["process"], event["t"], records))

    def _take_joined(self, event: Mapping[str, Any]) -> None:
        self.history.reading.append(
            Joined(
                event["process"], event["t"], event["group"], event["generation"],
                event["member"], _partitions(event["partitions"]),
            )
        )  # fmt: skip

    def _take_revoked(self, event: Mapping[str, Any]) -> None:
        partitions = _partitions(event["partitions"])
        self.history.reading.append(Revoked(event["process"], event["t"], partitions))

    def _take_commit(self, event: Mapping[str, Any]) -> None:
        key = (event["process"], event["n"])
        offsets = {Partition(t, p): offset for t, p, offset in event["offsets"]}
        commit = Commit(*key, event["group"], event["generation"], offsets, event["t"])
        commit.handed_over = event["t"]
        commit.transaction = self._transaction(event)
        self._commits[key] = commit
        self.history.commits.append(commit)

    def _take_commit_done(self, event: Mapping[str, Any]) -> None:
        commit = self._commits[event["process"], event["n"]]
        commit.ended = event["t"]
        commit.outcome = Outcome(event["outcome"])

    def _take_committed(self, event: Mapping[str, Any]) -> None:
        offsets = {Partition(t, p): offset for t, p, offset in event["offsets"]}
        self.history.looks.append(
            Committed(event["process"], event["since"], event["t"], event["group"], offsets)
        )

    def _take_watermarks(self, event: Mapping[str, Any]) -> None:
        self.history.watermarks.append(
            Watermarks(
                event["process"], event["since"], event["t"], _partition(event),
                event["low"], event["high"], event.get("stable"),
            )
        )  # fmt: skip

    def _take_fault(self, event: Mapping[str, Any]) -> None:
        self.history.faults.append(
            Fault(
                event["t"], event["n"], event["name"], event["phase"],
                tuple(event["targets"]), event.get("detail", ""), event.get("serves", False),
            )
        )  # fmt: skip

    def _take_healed(self, event: Mapping[str, Any]) -> None:
        self.history.healed = Healed(event["t"], event["bound_s"])

    def _take_final_read(self, event: Mapping[str, Any]) -> None:
        partition = _partition(event)
        self.history.final_reads[partition] = FinalRead(
            event["process"], event["t"], partition, event["low"], event["high"],
            _records(partition, event["records"]), event.get("isolation") == READ_COMMITTED,
        )  # fmt: skip

    def _take_replica(self, event: Mapping[str, Any]) -> None:
        partition = _partition(event)
        batches = tuple(Batch(*row) for row in event["batches"])
        self.history.replicas.append(
            Replica(
                event["t"], event["broker"], partition, event["high"], batches,
                _records(partition, event["records"]),
            )
        )  # fmt: skip

    def _take_ended(self, event: Mapping[str, Any]) -> None:
        self.history.ended[event["process"]] = event["t"]

    def _take_deleted(self, event: Mapping[str, Any]) -> None:
        self.history.deleted.add(event["topic"])

    def _take_in_sync(self, event: Mapping[str, Any]) -> None:
        partition = Partition(event["topic"], event["partition"])
        one = InSync(event["t"], partition, tuple(event["replicas"]), tuple(event["in_sync"]))
        self.history.in_sync.append(one)

    def _take_controllers(self, event: Mapping[str, Any]) -> None:
        self.history.controllers = event["counts"]

    def _take_excused(self, event: Mapping[str, Any]) -> None:
        self.history.excused |= set(event["names"])

    def _take_isolation(self, event: Mapping[str, Any]) -> None:
        if event["level"] == READ_COMMITTED:
            self.history.committed_readers.add(event["process"])

    def _take_txn_begin(self, event: Mapping[str, Any]) -> None:
        key = (event["process"], event["n"])
        if key in self._transactions:
            raise ValueError(f"a second transaction {key}")
        transaction = Transaction(*key, event["id"], event["t"])
        self._transactions[key] = transaction
        self.history.transactions.append(transaction)

    def _take_txn_ending(self, event: Mapping[str, Any]) -> None:
        transaction = self._transactions[event["process"], event["n"]]
        # A commit that failed may be followed by an abort.
        if transaction.ending == NEVER:
            transaction.ending = event["t"]
            transaction.is_commit = event["wish"] == "commit"

    def _take_txn_ended(self, event: Mapping[str, Any]) -> None:
        transaction = self._transactions[event["process"], event["n"]]
        transaction.ended = event["t"]
        transaction.outcome = TransactionFate(event["outcome"])


_OUTCOMES = {
    TransactionFate.COMMITTED: Outcome.OK,
    TransactionFate.ABORTED: Outcome.FAIL,
    TransactionFate.UNKNOWN: Outcome.UNKNOWN,
}


def _partition(event: Mapping[str, Any]) -> Partition:
    return Partition(event["topic"], event["partition"])


def _partitions(rows: Sequence[Sequence[Any]]) -> tuple[Partition, ...]:
    return tuple(Partition(topic, number) for topic, number in rows)


def _records(partition: Partition, rows: Sequence[Sequence[Any]]) -> tuple[Record, ...]:
    return tuple(Record(partition, offset, value) for offset, value in rows)
