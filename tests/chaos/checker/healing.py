"""Whether a cluster is whole after healing: replicas, the controller, and clients that go on.

And whether it served during those faults that must not stop it.
"""

from collections.abc import Iterator

from tests.chaos.checker.anomalies import Anomaly, show_time
from tests.chaos.checker.history import (
    Assigned,
    Healed,
    History,
    Joined,
    Outcome,
    Partition,
    Replica,
)

__all__ = ["SETTLING_S", "check_healing"]

# Connections that break with a fault are made again by then, and elections under way are over.
SETTLING_S = 15.0


def check_healing(history: History) -> Iterator[Anomaly]:
    """Checks what holds when all faults have ended."""
    yield from _replicas(history)
    if history.controllers is not None and sum(history.controllers.values()) != 1:
        counts = ", ".join(f"{one}: {count}" for one, count in sorted(history.controllers.items()))
        yield Anomaly(name="split-control", where="cluster", text=f"ActiveControllerCount {counts}")
    yield from _service(history)
    yield from _in_sync(history)
    if history.healed is not None:
        yield from _producers(history, history.healed)
        yield from _partitions(history)
        yield from _readers(history)
        yield from _groups(history)


def _replicas(history: History) -> Iterator[Anomaly]:
    by_partition: dict[Partition, list[Replica]] = {}
    for replica in history.replicas:
        by_partition.setdefault(replica.partition, []).append(replica)
        yield from _epochs(replica)
    for replicas in by_partition.values():
        high = max(replica.high for replica in replicas)
        first = replicas[0]
        for replica in replicas:
            end = replica.batches[-1].last + 1 if replica.batches else 0
            if end < high:
                yield _about_replica(
                    replica, f"its log ends at {end}, below the high watermark {high}", (end, high)
                )
        for replica in replicas[1:]:
            # Batches follow one another, so the first pair that differs is where they part.
            for mine, other in zip(first.batches, replica.batches, strict=False):
                if mine.base >= high or other.base >= high:
                    break
                if mine != other:
                    yield _about_replica(
                        replica,
                        f"it has {tuple(other)}, broker-{first.broker} has {tuple(mine)}; the high"
                        f" watermark is {high}",
                        (mine.base, other.base),
                    )
                    break


def _epochs(replica: Replica) -> Iterator[Anomaly]:
    highest = -1
    for batch in replica.batches:
        base, epoch = batch.base, batch.leader_epoch
        if epoch < highest:
            yield Anomaly(
                name="epoch-regression",
                where=str(replica.partition),
                text=f"broker-{replica.broker} has epoch {epoch} at {base}, after {highest}",
                offsets=(base,),
                processes=(f"broker-{replica.broker}",),
            )
        highest = max(highest, epoch)


def _about_replica(replica: Replica, text: str, offsets: tuple[int, ...]) -> Anomaly:
    return Anomaly(
        name="divergent-replicas",
        where=str(replica.partition),
        text=f"broker-{replica.broker} {show_time(replica.t)}: {text}",
        offsets=offsets,
        processes=(f"broker-{replica.broker}",),
    )


def _in_sync(history: History) -> Iterator[Anomaly]:
    for one in history.in_sync:
        missing = [f"broker-{broker}" for broker in sorted(set(one.replicas) - set(one.in_sync))]
        if missing:
            yield Anomaly(
                name="stalled-replica",
                where=str(one.partition),
                text=f"{show_time(one.t)} {', '.join(missing)} did not return: of the replicas"
                f" {list(one.replicas)} only {list(one.in_sync)} are in sync",
                processes=tuple(missing),
            )


def _service(history: History) -> Iterator[Anomaly]:
    ends = {fault.n: fault.t for fault in history.faults if fault.phase == "end"}
    live = {one.partition for one in history.sends if one.partition.topic not in history.deleted}
    for fault in history.faults:
        if fault.phase != "begin" or not fault.serves or fault.n not in ends:
            continue
        start, end = fault.t + SETTLING_S, ends[fault.n]
        served = {
            send.partition
            for send in history.sends
            if send.outcome is Outcome.OK and send.began >= start and send.ended <= end
        }
        tried = {send.partition for send in history.sends if start <= send.began < end}
        for partition in sorted((live & tried) - served):
            yield Anomaly(
                name="stalled-service",
                where=str(partition),
                text=f"{fault.name} of {', '.join(fault.targets)} lasted from"
                f" {show_time(fault.t)} to {show_time(end)}; no record that was sent after"
                f" {show_time(start)} was acknowledged in that time",
                processes=fault.targets,
            )


def _producers(history: History, healed: Healed) -> Iterator[Anomaly]:
    """Each producer is acknowledged again, in each partition that it writes to."""
    writes: dict[tuple[str, Partition], float] = {}
    # One that was fenced, or whose transaction was aborted, is replaced by another process; whether
    # pipelines go on shows in what they process.
    fenced = {one.process for one in history.transactions} & history.ended.keys()
    for send in history.sends:
        key = (send.process, send.partition)
        if send.partition.topic in history.deleted or send.process in fenced:
            continue
        if history.ended.get(send.process, healed.t) < healed.t:
            continue
        writes.setdefault(key, float("inf"))
        if send.outcome is Outcome.OK and send.began >= healed.t:
            writes[key] = min(writes[key], send.ended)
    for (process, partition), ended in sorted(writes.items()):
        if ended > healed.t + healed.bound_s:
            how = "never" if ended == float("inf") else f"only {show_time(ended)}"
            yield Anomaly(
                name="stalled-producer",
                where=str(partition),
                text=f"all faults had ended {show_time(healed.t)}; what {process} sent since was"
                f" acknowledged {how}, expected within {healed.bound_s} s",
                processes=(process,),
            )


def _partitions(history: History) -> Iterator[Anomaly]:
    written = {send.partition for send in history.sends}
    for partition in sorted(written - history.final_reads.keys()):
        if partition.topic not in history.deleted:
            yield Anomaly(
                name="unread-partition", where=str(partition), text="there is no final read of it"
            )


def _readers(history: History) -> Iterator[Anomaly]:
    read: dict[tuple[str, Partition], int] = {}
    for event in history.reading:
        if isinstance(event, Assigned):
            for partition, offset in event.positions.items():
                read.setdefault((event.process, partition), offset - 1)
    for poll in history.polls:
        for record in poll.records:
            key = (poll.process, record.partition)
            if key in read:
                read[key] = max(read[key], record.offset)
    for (process, partition), last in sorted(read.items()):
        end = _last_offset(history, partition)
        if last < end:
            yield Anomaly(
                name="stalled-reader",
                where=str(partition),
                text=f"{process} read up to {last}, the last record is at {end}",
                offsets=(last, end),
                processes=(process,),
            )


def _groups(history: History) -> Iterator[Anomaly]:
    groups: dict[str, str] = {}  # Of a process.
    owned: set[tuple[str, Partition]] = set()
    for event in history.reading:
        if isinstance(event, Joined):
            groups[event.process] = event.group
            owned |= {(event.group, partition) for partition in event.partitions}
    read: dict[tuple[str, Partition], int] = {}
    for poll in history.polls:
        group = groups.get(poll.process)
        if group is not None:
            for record in poll.records:
                key = (group, record.partition)
                read[key] = max(read.get(key, -1), record.offset)
    for group, partition in sorted(owned):
        last, end = read.get((group, partition), -1), _last_offset(history, partition)
        if last < end:
            members = tuple(sorted(one for one, its in groups.items() if its == group))
            yield Anomaly(
                name="stalled-group",
                where=f"group {group} {partition}",
                text=f"{', '.join(members)} read up to {last}, the last record is at {end}",
                offsets=(last, end),
                processes=members,
            )


def _last_offset(history: History, partition: Partition) -> int:
    final = history.final_reads.get(partition)
    return final.records[-1].offset if final is not None and final.records else -1
