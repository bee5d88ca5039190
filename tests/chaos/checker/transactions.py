"""Whether transactions are seen whole or never, and each record is processed once.

What became of a transaction is what its producer was told; one whose commit was never asked for is
aborted, whatever its producer was told, or whether it died. What is there is what the final read of
committed records found.

A pipeline reads records, writes a result of each, and commits its positions in the transaction of
the results. So at the end the committed offset of a group divides its input: each record before it
has one result that is there, none behind it has one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.history import (
    History,
    Outcome,
    Partition,
    Send,
    Transaction,
    TransactionFate,
    Watermarks,
)

__all__ = ["check_transactions"]


def check_transactions(history: History) -> Iterator[Anomaly]:
    """Checks all transactions, and the stable offsets."""
    there = _Contents.of(history)
    yield from _reads(history)
    yield from _transactions(history, there)
    yield from _dirty_updates(history, there)
    yield from _results(history, there)
    yield from _stable_offsets(history)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What final reads of committed records found."""

    values: dict[Partition, frozenset[str]]
    at: float

    @classmethod
    def of(cls, history: History) -> "_Contents":
        reads = [one for one in history.final_reads.values() if one.is_committed]
        return cls(
            {one.partition: frozenset(record.value for record in one.records) for one in reads},
            max((one.t for one in reads), default=0.0),
        )

    def has(self, send: Send) -> bool:
        return send.value in self.values[send.partition]

    def is_known(self, send: Send) -> bool:
        return send.partition in self.values


# Reading


def _reads(history: History) -> Iterator[Anomaly]:
    sends = {
        (send.partition, send.value): send for send in history.sends if send.transaction is not None
    }
    told: set[tuple[str, Partition, str]] = set()
    reads = [
        (poll.process, poll.t, poll.records)
        for poll in history.polls
        if poll.process in history.committed_readers
    ] + [
        (one.process, one.t, one.records)
        for one in history.final_reads.values()
        if one.is_committed
    ]
    for process, t, records in reads:
        for record in records:
            send = sends.get((record.partition, record.value))
            key = (process, record.partition, record.value)
            if send is None or key in told:
                continue
            transaction = send.transaction
            assert transaction is not None
            if transaction.fate is TransactionFate.ABORTED:
                how = (
                    f"which was aborted {show_time(transaction.ended)}"
                    if transaction.outcome is TransactionFate.ABORTED
                    else "whose commit was never asked for"
                )
                name, text = "aborted-read", f"it is of {transaction}, {how}"
            elif t < transaction.ending:
                name = "uncommitted-read"
                text = f"it is of {transaction}, commit asked for {show_time(transaction.ending)}"
            else:
                continue
            told.add(key)
            yield Anomaly(
                name=name,
                where=str(record.partition),
                text=f"{process} read {record.value!r} at {record.offset} {show_time(t)}; {text}",
                values=(record.value,),
                offsets=(record.offset,),
                processes=(process, transaction.process),
            )


# Wholeness


def _transactions(history: History, there: _Contents) -> Iterator[Anomaly]:
    sends: dict[tuple[str, int], list[Send]] = {}
    for send in history.sends:
        # One that never came into the producer's buffer is no part of it.
        if send.transaction is not None and send.outcome is not Outcome.FAIL:
            key = (send.transaction.process, send.transaction.n)
            sends.setdefault(key, []).append(send)
    for transaction in history.transactions:
        parts = [
            send
            for send in sends.get((transaction.process, transaction.n), [])
            if there.is_known(send)
        ]
        missing = [send for send in parts if not there.has(send)]
        if not missing or transaction.fate is TransactionFate.ABORTED:
            continue
        if len(missing) < len(parts):
            present = next(send for send in parts if there.has(send))
            yield _about_parts(
                "torn-transaction", transaction, present, missing,
                f"{present.value!r} is in {present.partition}, {missing[0].value!r} is not in"
                f" {missing[0].partition}, read {show_time(there.at)}: {len(missing)} of"
                f" {len(parts)} records are missing",
            )  # fmt: skip
        elif transaction.fate is TransactionFate.COMMITTED:
            yield _about_parts(
                "lost-transaction", transaction, missing[0], missing,
                f"its commit was acknowledged {show_time(transaction.ended)}; none of its"
                f" {len(parts)} records is there, read {show_time(there.at)}, such as"
                f" {missing[0].value!r}",
            )  # fmt: skip


def _about_parts(
    name: str, transaction: Transaction, present: Send, missing: list[Send], text: str
) -> Anomaly:
    return Anomaly(
        name=name,
        where=str(missing[0].partition),
        text=f"{transaction}: {text}",
        values=(present.value, *(send.value for send in missing)),
        processes=(transaction.process,),
    )


# Processing


def _dirty_updates(history: History, there: _Contents) -> Iterator[Anomaly]:
    for send in history.sends:
        source = send.source
        if source is None or source.partition not in there.values:
            continue
        if not there.is_known(send) or not there.has(send):
            continue
        if source.value not in there.values[source.partition]:
            yield Anomaly(
                name="dirty-update",
                where=str(send.partition),
                text=f"{send.value!r} of {send.process} {show_time(send.began)} is there; it is the"
                f" result of {source}, which is not, read {show_time(there.at)}",
                values=(send.value, source.value),
                offsets=(source.offset,),
                processes=(send.process,),
            )


def _results(history: History, there: _Contents) -> Iterator[Anomaly]:
    results: dict[tuple[Partition, int], list[Send]] = {}
    for send in history.sends:
        if send.source is not None and there.is_known(send) and there.has(send):
            results.setdefault((send.source.partition, send.source.offset), []).append(send)
    for (partition, offset), sends in sorted(results.items()):
        if len(sends) > 1:
            yield Anomaly(
                name="duplicate-result",
                where=str(partition),
                text=f"the results of {sends[0].source}: "
                + "; ".join(_place(send) for send in sends),
                values=tuple(send.value for send in sends),
                offsets=(offset,),
                processes=tuple(send.process for send in sends),
            )
    yield from _divided(history, there, results)


def _divided(
    history: History, there: _Contents, results: dict[tuple[Partition, int], list[Send]]
) -> Iterator[Anomaly]:
    """Each record before the committed offset has a result, and none behind it."""
    groups = {commit.group for commit in history.commits if commit.transaction is not None}
    inputs = {partition for partition, _ in results}
    last: dict[tuple[str, Partition], tuple[int, float]] = {}
    for look in history.looks:
        if look.group in groups:
            for partition, offset in look.offsets.items():
                last[look.group, partition] = (offset or 0, look.t)
    for (group, partition), (end, t) in sorted(last.items()):
        final = history.final_reads.get(partition)
        if final is None or not any(one.topic == partition.topic for one in inputs):
            continue
        for record in final.records:
            found = results.get((partition, record.offset))
            place = f"{record.value!r} at {record.offset}"
            committed = f"{group} has committed {end} {show_time(t)}"
            if record.offset < end and not found:
                yield Anomaly(
                    name="lost-result",
                    where=str(partition),
                    text=f"{committed}; no result of {place} is there, read {show_time(there.at)}",
                    values=(record.value,),
                    offsets=(record.offset, end),
                )
            elif record.offset >= end and not found and history.healed is not None:
                yield Anomaly(
                    name="stalled-group",
                    where=f"group {group} {partition}",
                    text=f"{committed}, {place} is behind it, and no pipeline has processed it",
                    values=(record.value,),
                    offsets=(record.offset, end),
                )
            elif record.offset >= end and found:
                yield Anomaly(
                    name="torn-transaction",
                    where=str(partition),
                    text=f"{committed}, and the result of {place} is there: {_place(found[0])}",
                    values=(record.value, found[0].value),
                    offsets=(record.offset, end),
                    processes=(found[0].process,),
                )


def _place(send: Send) -> str:
    owner = send.transaction or send.process
    return f"{send.value!r} in {send.partition}, sent {show_time(send.began)} by {owner}"


# Stable offsets


def _stable_offsets(history: History) -> Iterator[Anomaly]:
    """Each end that was told after healing becomes stable in time; the last one is stable."""
    looks: dict[Partition, list[Watermarks]] = {}
    for look in history.watermarks:
        if look.stable is not None and look.partition.topic not in history.deleted:
            looks.setdefault(look.partition, []).append(look)
    for partition, told in sorted(looks.items()):
        last = told[-1]
        late = _late(history, told)
        if late is not None:
            yield _stalled(partition, late, f"and not {late.high} in time")
        elif last.stable is not None and last.stable < last.high:
            yield _stalled(partition, last, f"the end is {last.high}, and no producer is left")


def _late(history: History, told: list[Watermarks]) -> Watermarks | None:
    """A look whose end was not stable when the time for that was over."""
    if history.healed is None:
        return None
    bound_s = history.healed.bound_s
    for index, look in enumerate(told):
        if look.t < history.healed.t or told[-1].since <= look.t + bound_s:
            continue
        in_time = [one.stable or 0 for one in told[index:] if one.since <= look.t + bound_s]
        if max(in_time) < look.high:
            return look
    return None


def _stalled(partition: Partition, look: Watermarks, text: str) -> Anomaly:
    return Anomaly(
        name="stalled-stable-offset",
        where=str(partition),
        text=f"{look.process} was told {show_time(look.t)} that {look.stable} is stable; {text}",
        offsets=(look.stable or 0, look.high),
        processes=(look.process,),
    )
