"""Placement: which brokers get the replicas of new partitions.

Goals, in order: replicas of a partition on different brokers; on different racks, as long as there
are racks left; every broker leads as many partitions as the others; every broker follows as many.

Without racks, brokers form a circle. Partition p's first replica is at position `start_index + p`;
the others follow at a distance of 1 + (shift + j) mod (n - 1) from it. The shift grows by one each
time p has passed the whole circle, so the followers of one leader spread over all others. Ten
partitions with three replicas on brokers 0 to 4, start index and shift 0::

    broker 0  broker 1  broker 2  broker 3  broker 4
    p0        p1        p2        p3        p4        first replica
    p5        p6        p7        p8        p9        first replica
    p4        p0        p1        p2        p3        second replica
    p8        p9        p5        p6        p7        second replica
    p3        p4        p0        p1        p2        third replica
    p7        p8        p9        p5        p6        third replica

When every broker has a rack, the circle is ordered so that neighbours are on different racks, and a
broker is skipped while its rack has a replica and another rack has none. Brokers 0 to 5 on racks
a, c, c, b, b, a are ordered as 0, 3, 1, 5, 4, 2, and three replicas of p0 are placed on 0, 3, 1:
one on each rack.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, Protocol

from odradek.errors import ApiError, ErrorCode
from odradek.model import ReplicaAssignment

__all__ = [
    "BrokerRack",
    "RandomSource",
    "assign_replicas",
    "check_assignment",
    "extend_assignment",
]


class BrokerRack(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None = None


class RandomSource(Protocol):
    """The part of `random.Random` that placement draws from."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to `stop` - 1."""
        ...


class _Spread(NamedTuple):
    """The start of the circle, and the distance of the second replica from the first."""

    start_index: int
    shift: int


def assign_replicas(
    brokers: Sequence[BrokerRack],
    *,
    partition_count: int,
    replication_factor: int,
    random: RandomSource,
) -> dict[int, ReplicaAssignment]:
    """Places all partitions of a new topic, starting at a random broker.

    Raises:
        ApiError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    circle, racks = _circle(brokers)
    _check_counts(partition_count, replication_factor, len(circle))
    spread = _Spread(random.randrange(len(circle)), random.randrange(len(circle)))
    return _place(circle, racks, range(partition_count), replication_factor, spread)


def extend_assignment(
    existing: Mapping[int, ReplicaAssignment],
    brokers: Sequence[BrokerRack],
    *,
    partition_count: int,
) -> dict[int, ReplicaAssignment]:
    """Places additional partitions of a topic, continuing the circle of its first partition.

    Args:
        existing: The topic's partitions, numbered from 0.
        brokers: The brokers that may get replicas.
        partition_count: The number of partitions afterwards.

    Raises:
        ApiError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    if partition_count <= len(existing):
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {len(existing)} partitions, expected a larger number, found"
            f" {partition_count}",
        )
    first = existing[0].replicas
    circle, racks = _circle(brokers)
    _check_counts(partition_count, len(first), len(circle))
    # The broker of partition 0's first replica, or the next one if that broker is gone.
    start = circle.index(min((b for b in circle if b >= first[0]), default=min(circle)))
    added = range(len(existing), partition_count)
    return _place(circle, racks, added, len(first), _Spread(start, start))


def check_assignment(
    assignment: Mapping[int, Sequence[int]],
    live_brokers: frozenset[int],
    *,
    first_partition: int = 0,
    replication_factor: int | None = None,
) -> dict[int, ReplicaAssignment]:
    """Checks a placement that a request prescribes.

    Args:
        assignment: Partition number to replicas.
        live_brokers: The brokers that may get replicas.
        first_partition: The number the first partition must have.
        replication_factor: The number of replicas of every partition; None: that of the first.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT; the message names the partition and the rule.
    """
    numbers = range(first_partition, first_partition + len(assignment))
    if not assignment or sorted(assignment) != list(numbers):
        raise _bad_assignment(
            f"expected partitions numbered from {first_partition} without a gap, "
            f"found {sorted(assignment)}"
        )
    expected = replication_factor or len(assignment[first_partition])
    for number in numbers:
        replicas = assignment[number]
        if not replicas:
            raise _bad_assignment(f"partition {number}: no replica")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"partition {number}: a replica comes twice in {list(replicas)}")
        if len(replicas) != expected:
            raise _bad_assignment(
                f"partition {number}: expected {expected} replicas, found {len(replicas)}"
            )
        unknown = sorted(set(replicas) - live_brokers)
        if unknown:
            raise _bad_assignment(f"partition {number}: brokers {unknown} are not there")
    return {number: ReplicaAssignment(tuple(assignment[number])) for number in numbers}


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_counts(partition_count: int, replication_factor: int, broker_count: int) -> None:
    if partition_count <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"expected at least 1 partition, found {partition_count}"
        )
    if not 0 < replication_factor <= broker_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor}: there are {broker_count} brokers to use",
        )


def _circle(brokers: Sequence[BrokerRack]) -> tuple[list[int], dict[int, str] | None]:
    """The order of brokers in the circle, and their racks if every broker has one."""
    racks = {broker.id: broker.rack for broker in brokers if broker.rack is not None}
    if len(racks) < len(brokers):
        return sorted(broker.id for broker in brokers), None
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for one in rounds for broker_id in one if broker_id is not None], racks


def _place(
    circle: Sequence[int],
    racks: Mapping[int, str] | None,
    partitions: range,
    replication_factor: int,
    spread: _Spread,
) -> dict[int, ReplicaAssignment]:
    size = len(circle)
    shift = spread.shift
    # By the number of racks, so that the second replica's rack changes, too.
    shift_step = 1 if racks is None else len(set(racks.values()))
    assignment = {}
    for partition in partitions:
        if partition > 0 and partition % size == 0:
            shift += 1
        first = (spread.start_index + partition) % size
        order = [first, *(first + d for d in _distances(size, shift * shift_step))]
        candidates = [circle[index % size] for index in order]
        if racks is not None:
            candidates = _spread_racks(candidates, racks, replication_factor)
        assignment[partition] = ReplicaAssignment(tuple(candidates[:replication_factor]))
    return assignment


def _distances(size: int, shift: int) -> list[int]:
    """Distances of the other replicas from the first, in the order they are tried."""
    return [1 + (shift + index) % (size - 1) for index in range(size - 1)]


def _spread_racks(
    candidates: Sequence[int], racks: Mapping[int, str], replication_factor: int
) -> list[int]:
    """Picks candidates in order, skipping a used rack while another has no replica.

    `candidates` has every broker once. A skipped one is tried again in a later round.
    """
    rack_count = len(set(racks.values()))
    chosen: list[int] = []
    used_racks: set[str] = set()
    waiting = list(candidates)
    while len(chosen) < replication_factor:
        for broker in waiting:
            if racks[broker] not in used_racks or len(used_racks) == rack_count:
                chosen.append(broker)
                used_racks.add(racks[broker])
                if len(chosen) == replication_factor:
                    break
        waiting = [broker for broker in waiting if broker not in chosen]
    return chosen
