"""Whether each reader goes forward, past nothing.

A reader by hand begins where it said. Where the final read is of committed records, a reader
can miss these alone. A member of a group may begin anywhere when it joins, and
goes forward from there until it gives the partition up.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.history import (
    Assigned,
    History,
    Joined,
    Outcome,
    Partition,
    Poll,
    Record,
    Revoked,
    Watermarks,
)

__all__ = ["check_reads"]


def check_reads(history: History) -> Iterator[Anomaly]:
    """Checks polls, and what clients were told of starts and ends."""
    known = _known_offsets(history)
    by_process: dict[str, list[Poll | Assigned | Joined | Revoked]] = {}
    for event in history.reading:
        by_process.setdefault(event.process, []).append(event)
    for process in sorted(by_process):
        yield from _Positions(process, known).follow(by_process[process])
    yield from _watermarks(history.watermarks)


def _known_offsets(history: History) -> dict[Partition, list[int]]:
    """The offsets at which there are records: those of the final read, where there is one."""
    known: dict[Partition, set[int]] = {}
    for poll in history.polls:
        for record in poll.records:
            known.setdefault(record.partition, set()).add(record.offset)
    for send in history.sends:
        if send.outcome is Outcome.OK and send.offset is not None:
            known.setdefault(send.partition, set()).add(send.offset)
    for final in history.final_reads.values():
        known[final.partition] = {record.offset for record in final.records}
    return {partition: sorted(offsets) for partition, offsets in known.items()}


class _Positions:
    """Follows one reader."""

    def __init__(self, process: str, known: dict[Partition, list[int]]) -> None:
        self._process = process
        self._known = known
        # The offset that is to come next at the earliest, and when the reader got there.
        self._next: dict[Partition, tuple[int, float]] = {}

    def follow(self, events: list[Poll | Assigned | Joined | Revoked]) -> Iterator[Anomaly]:
        for event in events:
            match event:
                case Assigned():
                    self._next = {
                        partition: (offset, event.t)
                        for partition, offset in event.positions.items()
                    }
                case Joined():
                    self._next = {}
                case Revoked():
                    for partition in event.partitions:
                        self._next.pop(partition, None)
                case Poll():
                    yield from self._take(event)

    def _take(self, poll: Poll) -> Iterator[Anomaly]:
        begun: set[Partition] = set()
        for record in poll.records:
            before = self._next.get(record.partition)
            prefix = "int-" if record.partition in begun else ""
            begun.add(record.partition)
            if before is not None:
                expected, since = before
                if record.offset < expected:
                    yield self._wrong(f"{prefix}nonmonotonic-poll", poll, record, expected, since)
                elif missed := self._between(record.partition, expected, record.offset):
                    yield self._wrong(f"{prefix}poll-skip", poll, record, expected, since, missed)
            self._next[record.partition] = (record.offset + 1, poll.t)

    def _between(self, partition: Partition, start: int, end: int) -> list[int]:
        offsets = self._known.get(partition, [])
        return offsets[bisect_left(offsets, start) : bisect_right(offsets, end - 1)]

    def _wrong(
        self,
        name: str,
        poll: Poll,
        record: Record,
        expected: int,
        since: float,
        missed: list[int] | None = None,
    ) -> Anomaly:
        without = f", without {missed[0]} to {missed[-1]}" if missed else ""
        return Anomaly(
            name=name,
            where=str(record.partition),
            text=f"{self._process} was at {expected} {show_time(since)} and got {record.value!r} at"
            f" {record.offset} {show_time(poll.t)}{without}",
            values=(record.value,),
            offsets=(expected, record.offset),
            processes=(self._process,),
        )


def _watermarks(told: list[Watermarks]) -> Iterator[Anomaly]:
    last: dict[tuple[str, Partition], Watermarks] = {}
    for one in told:
        before = last.get((one.process, one.partition))
        if before is not None:
            for what, earlier, later in (
                ("start", before.low, one.low),
                ("end", before.high, one.high),
                ("stable end", before.stable, one.stable),
            ):
                if earlier is not None and later is not None and later < earlier:
                    yield Anomaly(
                        name="offset-regression",
                        where=str(one.partition),
                        text=f"{one.process} was told {show_time(before.t)} that the {what} is"
                        f" {earlier}, and {show_time(one.t)} that it is {later}",
                        offsets=(earlier, later),
                        processes=(one.process,),
                    )
        last[one.process, one.partition] = one
