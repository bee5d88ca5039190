"""Whether records are where producers and readers were told, each once and in order."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.history import FinalRead, History, Outcome, Partition, Send

__all__ = ["check_writes"]


class Seen(NamedTuple):
    """A client or a replica's file told that a value is at an offset."""

    offset: int
    value: str
    how: str  # acknowledged to, read by, read at the end by, on the disk of
    process: str
    t: float

    def __str__(self) -> str:
        return f"{self.value!r} at {self.offset} {self.how} {self.process} {show_time(self.t)}"


def check_writes(history: History) -> Iterator[Anomaly]:
    """Checks all partitions."""
    seen = _all_seen(history)
    numbers = _sequence_numbers(history)
    sends: dict[Partition, list[Send]] = {}
    for send in history.sends:
        sends.setdefault(send.partition, []).append(send)
    for partition in sorted(seen.keys() | sends.keys()):
        here = seen.get(partition, [])
        sent = sends.get(partition, [])
        yield from _inconsistent_offsets(partition, here)
        yield from _duplicates(partition, here, numbers.get(partition, {}))
        yield from _unknown_values(partition, here, sent)
        yield from _failed_but_read(partition, here, sent)
        yield from _out_of_order(partition, here, sent)
        final = history.final_reads.get(partition)
        if final is not None:
            yield from _lost(final, sent)
            yield from _vanished(final, here, _fleeting(final, sent))
        elif partition.topic not in history.deleted:
            yield from _lost_without_final_read(partition, here, sent)


def _all_seen(history: History) -> dict[Partition, list[Seen]]:
    seen: dict[Partition, list[Seen]] = {}
    for send in history.sends:
        if send.outcome is Outcome.OK and send.offset is not None:
            seen.setdefault(send.partition, []).append(
                Seen(send.offset, send.value, "acknowledged to", send.process, send.ended)
            )
    for poll in history.polls:
        for record in poll.records:
            seen.setdefault(record.partition, []).append(
                Seen(record.offset, record.value, "read by", poll.process, poll.t)
            )
    for final in history.final_reads.values():
        seen.setdefault(final.partition, []).extend(
            Seen(record.offset, record.value, "read at the end by", final.process, final.t)
            for record in final.records
        )
    for replica in history.replicas:
        seen.setdefault(replica.partition, []).extend(
            Seen(
                record.offset, record.value, "on the disk of", f"broker-{replica.broker}", replica.t
            )
            for record in replica.records
        )
    return seen


def _inconsistent_offsets(partition: Partition, seen: list[Seen]) -> Iterator[Anomaly]:
    first: dict[int, Seen] = {}
    told: set[tuple[int, str]] = set()
    for one in seen:
        before = first.setdefault(one.offset, one)
        if before.value != one.value and (one.offset, one.value) not in told:
            told.add((one.offset, one.value))
            yield Anomaly(
                name="inconsistent-offsets",
                where=str(partition),
                text=f"{before}; {one}",
                values=(before.value, one.value),
                offsets=(one.offset,),
                processes=(before.process, one.process),
            )


def _sequence_numbers(history: History) -> dict[Partition, dict[int, tuple[int, int, int]]]:
    """By offset the producer id, its epoch and the sequence number with which a record came."""
    numbers: dict[Partition, dict[int, tuple[int, int, int]]] = {}
    for replica in history.replicas:
        here = numbers.setdefault(replica.partition, {})
        for batch in replica.batches:
            for offset in range(batch.base, batch.last + 1):
                sequence = batch.base_sequence + offset - batch.base
                here[offset] = (batch.producer_id, batch.producer_epoch, sequence)
    return numbers


def _duplicates(
    partition: Partition, seen: list[Seen], numbers: dict[int, tuple[int, int, int]]
) -> Iterator[Anomaly]:
    first: dict[str, Seen] = {}
    told: set[tuple[int, str]] = set()
    for one in seen:
        before = first.setdefault(one.value, one)
        if before.offset != one.offset and (one.offset, one.value) not in told:
            told.add((one.offset, one.value))
            mine, other = numbers.get(before.offset), numbers.get(one.offset)
            # A broker knows a record again by its numbers, and by nothing else.
            is_new = mine is not None and other is not None and mine != other
            yield Anomaly(
                name="client-duplicate" if is_new else "duplicate",
                where=str(partition),
                text=f"{before}; {one}; producer id, epoch and sequence: {mine}, {other}",
                values=(one.value,),
                offsets=(before.offset, one.offset),
                processes=(before.process, one.process),
            )


def _unknown_values(partition: Partition, seen: list[Seen], sends: list[Send]) -> Iterator[Anomaly]:
    sent = {send.value for send in sends}
    told: set[str] = set()
    for one in seen:
        if one.value not in sent and one.value not in told:
            told.add(one.value)
            yield _about("phantom-read", partition, one, f"{one}; no producer sent it here")


def _failed_but_read(
    partition: Partition, seen: list[Seen], sends: list[Send]
) -> Iterator[Anomaly]:
    failed = {send.value: send for send in sends if send.outcome is Outcome.FAIL}
    for one in seen:
        send = failed.pop(one.value, None)
        if send is not None:
            yield _about(
                "failed-write-read", partition, one,
                f"{one}; {send.process} was told {show_time(send.ended)} that it failed:"
                f" {send.error}",
            )  # fmt: skip


def _out_of_order(partition: Partition, seen: list[Seen], sends: list[Send]) -> Iterator[Anomaly]:
    places: dict[str, int] = {}
    for one in seen:
        places.setdefault(one.value, one.offset)
    last: dict[str, tuple[int, Send]] = {}
    for send in sorted(sends, key=lambda one: (one.process, one.n)):
        offset = places.get(send.value)
        if offset is None:
            continue
        highest = last.get(send.process)
        if highest is not None and offset < highest[0]:
            yield Anomaly(
                name="nonmonotonic-send",
                where=str(partition),
                text=f"{send.process} sent {highest[1].value!r} {show_time(highest[1].began)}, it"
                f" is at {highest[0]}; then {send.value!r} {show_time(send.began)}, it is"
                f" at {offset}",
                values=(highest[1].value, send.value),
                offsets=(highest[0], offset),
                processes=(send.process,),
            )
        else:
            last[send.process] = (offset, send)


def _is_owed(send: Send) -> bool:
    """Whether a record has to be there; those of transactions are `transactions.py`'s."""
    return send.outcome is Outcome.OK and send.transaction is None


def _fleeting(final: FinalRead, sends: list[Send]) -> frozenset[str]:
    """The values that readers may have got though they are not in a read of committed records."""
    if not final.is_committed:
        return frozenset()
    return frozenset(send.value for send in sends if send.transaction is not None)


def _lost(final: FinalRead, sends: list[Send]) -> Iterator[Anomaly]:
    there = {record.value for record in final.records}
    for send in sends:
        if not _is_owed(send) or send.value in there:
            continue
        if send.offset is not None and send.offset < final.low:
            continue  # Deleted with the beginning of the log.
        yield _lost_write(
            send, f"the whole of {final.low} to {final.high} was read {show_time(final.t)}"
        )


def _lost_without_final_read(
    partition: Partition, seen: list[Seen], sends: list[Send]
) -> Iterator[Anomaly]:
    read = {one.value for one in seen if one.how != "acknowledged to"}
    end = max((one.offset for one in seen if one.how != "acknowledged to"), default=-1)
    for send in sends:
        if not _is_owed(send) or send.value in read:
            continue
        if send.offset is not None and send.offset <= end:
            yield _lost_write(send, f"the partition was read up to {end}")
        else:
            yield Anomaly(
                name="unseen",
                where=str(partition),
                text=f"{send.value!r} acknowledged to {send.process} {show_time(send.ended)} at"
                f" {send.offset}; the partition was read up to {end}",
                values=(send.value,),
                offsets=() if send.offset is None else (send.offset,),
                processes=(send.process,),
            )


def _lost_write(send: Send, how_known: str) -> Anomaly:
    return Anomaly(
        name="lost-write",
        where=str(send.partition),
        text=f"{send.value!r} was sent by {send.process} {show_time(send.began)} and acknowledged"
        f" {show_time(send.ended)} at {send.offset}; it is not there: {how_known}",
        values=(send.value,),
        offsets=() if send.offset is None else (send.offset,),
        processes=(send.process,),
    )


def _vanished(final: FinalRead, seen: list[Seen], fleeting: frozenset[str]) -> Iterator[Anomaly]:
    there = {(record.offset, record.value) for record in final.records}
    told: set[tuple[int, str]] = set()
    for one in seen:
        place = (one.offset, one.value)
        if one.how != "read by" or place in there or place in told or one.offset < final.low:
            continue
        if one.value in fleeting:
            continue
        told.add(place)
        yield _about(
            "vanished-read", final.partition, one,
            f"{one}; it is not there {show_time(final.t)}: {final.low} to {final.high} was read",
        )  # fmt: skip


def _about(name: str, partition: Partition, one: Seen, text: str) -> Anomaly:
    return Anomaly(
        name=name,
        where=str(partition),
        text=text,
        values=(one.value,),
        offsets=(one.offset,),
        processes=(one.process,),
    )
