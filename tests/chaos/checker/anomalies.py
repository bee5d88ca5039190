"""The names of what can be wrong with a history."""

from dataclasses import dataclass

__all__ = ["ANOMALIES", "Anomaly", "show_time"]

ANOMALIES = {
    # Records.
    "inconsistent-offsets": "one offset of a partition was reported with two values",
    "duplicate": "one value, sent once, is at two offsets of its partition",
    "client-duplicate": "the same, and the client gave each of them a sequence number of its own",
    "lost-write": "an acknowledged record is not in its partition",
    "unseen": "an acknowledged record was read by no client, and its partition was not read out",
    "vanished-read": "a record that a client read is not in its partition any more",
    "phantom-read": "a value was read in a partition to which no producer sent it",
    "failed-write-read": "a record was read whose producer was told that it was not written",
    "nonmonotonic-send": "of two records of one producer the later one has the smaller offset",
    # Transactions.
    "aborted-read": "a reader of committed records got one of a transaction that was aborted",
    "uncommitted-read": "a reader of committed records got one before its commit was asked for",
    "torn-transaction": "a part of a transaction is there, and another part is not",
    "lost-transaction": "nothing of a transaction is there whose commit was acknowledged",
    "dirty-update": "a committed record is the result of one that was never committed",
    "duplicate-result": "two committed transactions wrote the result of one record",
    "lost-result": "a record counts as processed, and its result is not there",
    "stalled-stable-offset": "the last stable offset does not come to the end of a partition",
    # Reading.
    "nonmonotonic-poll": "a poll begins at or before what the reader had already",
    "int-nonmonotonic-poll": "the same within one poll",
    "poll-skip": "a poll goes on behind a record that the reader never got",
    "int-poll-skip": "the same within one poll",
    "offset-regression": "the start, end or stable end of a partition went back for one client",
    # Groups.
    "commit-regression": "a committed offset was told that a later commit had replaced",
    "phantom-commit": "a committed offset was told that no member committed",
    "double-ownership": "two members of one generation own a partition",
    "fenced-commit": "a commit of a generation was accepted after a later one had begun",
    "generation-regression": "a member joined a generation below one that it had before",
    # The cluster after healing.
    "divergent-replicas": "two replicas differ below the high watermark",
    "epoch-regression": "the leader epochs of a log fall",
    "split-control": "the controllers of a healed cluster are not exactly one",
    "stalled-replica": "after healing a replica does not return to those in sync in time",
    "stalled-service": "a partition took no record during a fault that must not stop it",
    "stalled-producer": "after healing a producer is not acknowledged in time",
    "stalled-reader": "after healing a reader does not come to the end of a partition",
    "stalled-group": "after healing a group does not come to the end of a partition",
    "unread-partition": "a partition could not be read out at the end",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One thing that is wrong."""

    name: str
    # Topic and partition, or the group.
    where: str
    # Records, offsets, processes and times.
    text: str
    # What belongs to it, for a machine to compare.
    values: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    processes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.name in ANOMALIES, self.name

    def __str__(self) -> str:
        return f"{self.name} {self.where}: {self.text}"


def show_time(t: float) -> str:
    """A time of the history."""
    return f"t={t:.3f}"
