"""Replica placement: worked examples, borders, refusals."""

from collections.abc import Sequence

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.placement import (
    BrokerRack,
    assign_replicas,
    check_assignment,
    extend_assignment,
)
from odradek.model import ReplicaAssignment


class Scripted:
    """Gives the numbers it was told."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def randrange(self, stop: int, /) -> int:
        number = self._numbers.pop(0)
        assert 0 <= number < stop
        return number


def replicas(assignment: dict[int, ReplicaAssignment]) -> list[tuple[int, ...]]:
    assert list(assignment) == sorted(assignment)
    return [assignment[partition].replicas for partition in assignment]


def brokers(count: int) -> list[BrokerRack]:
    return [BrokerRack(broker_id) for broker_id in range(count)]


RACKED = [BrokerRack(broker_id, rack) for broker_id, rack in enumerate("accbba")]


def test_ten_partitions_on_five_brokers() -> None:
    assignment = assign_replicas(
        brokers(5), partition_count=10, replication_factor=3, random=Scripted(0, 0)
    )
    assert replicas(assignment) == [
        *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1)),
        *((0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2)),
    ]


def test_start_and_shift_are_drawn() -> None:
    assignment = assign_replicas(
        brokers(3), partition_count=4, replication_factor=2, random=Scripted(1, 1)
    )
    assert replicas(assignment) == [(1, 0), (2, 1), (0, 2), (1, 2)]


def test_racks_alternate() -> None:
    assignment = assign_replicas(
        RACKED, partition_count=7, replication_factor=3, random=Scripted(0, 0)
    )
    assert replicas(assignment) == [
        *((0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)),
        (0, 4, 2),
    ]


def test_more_replicas_than_racks() -> None:
    assignment = assign_replicas(
        RACKED, partition_count=6, replication_factor=6, random=Scripted(2, 4)
    )
    for row in replicas(assignment):
        assert sorted(row) == [0, 1, 2, 3, 4, 5]
        assert len({RACKED[broker].rack for broker in row[:3]}) == 3


def test_racks_are_ignored_unless_every_broker_has_one() -> None:
    some = [BrokerRack(0, "a"), BrokerRack(1, "a"), BrokerRack(2)]
    assignment = assign_replicas(
        some, partition_count=1, replication_factor=2, random=Scripted(0, 0)
    )
    assert replicas(assignment) == [(0, 1)]


def test_one_broker_gets_everything() -> None:
    assignment = assign_replicas(
        [BrokerRack(7, "r")], partition_count=3, replication_factor=1, random=Scripted(0, 0)
    )
    assert replicas(assignment) == [(7,), (7,), (7,)]


@pytest.mark.parametrize(
    ("partition_count", "replication_factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -1, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(
    partition_count: int, replication_factor: int, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        assign_replicas(
            brokers(3),
            partition_count=partition_count,
            replication_factor=replication_factor,
            random=Scripted(),
        )
    assert caught.value.code is code


def test_added_partitions_go_on_in_the_circle() -> None:
    whole = assign_replicas(
        brokers(5), partition_count=8, replication_factor=3, random=Scripted(2, 2)
    )
    first = {partition: whole[partition] for partition in range(3)}
    added = extend_assignment(first, brokers(5), partition_count=8)
    assert added == {partition: whole[partition] for partition in range(3, 8)}


def test_added_partitions_start_behind_a_broker_that_is_gone() -> None:
    left = [broker for broker in brokers(4) if broker.id != 1]
    added = extend_assignment({0: ReplicaAssignment((1,))}, left, partition_count=3)
    assert replicas(added) == [(3,), (0,)]
    added = extend_assignment({0: ReplicaAssignment((9,))}, left, partition_count=2)
    assert replicas(added) == [(2,)]


@pytest.mark.parametrize("partition_count", [1, 0])
def test_a_topic_does_not_shrink(partition_count: int) -> None:
    with pytest.raises(ApiError) as caught:
        extend_assignment({0: ReplicaAssignment((0,))}, brokers(1), partition_count=partition_count)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS


def test_a_placement_by_hand_is_taken_as_it_is() -> None:
    assert check_assignment({1: [2, 0], 0: [0, 1]}, frozenset({0, 1, 2})) == {
        0: ReplicaAssignment((0, 1)),
        1: ReplicaAssignment((2, 0)),
    }
    added = check_assignment({3: [1]}, frozenset({1}), first_partition=3, replication_factor=1)
    assert added == {3: ReplicaAssignment((1,))}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ({}, "without a gap"),
        ({1: [0]}, "numbered from 0 without a gap, found [1]"),
        ({0: [0], 2: [0]}, "without a gap, found [0, 2]"),
        ({0: []}, "partition 0: no replica"),
        ({0: [1, 1]}, "partition 0: a replica comes twice in [1, 1]"),
        ({0: [0], 1: [0, 1]}, "partition 1: expected 1 replicas, found 2"),
        ({0: [0, 9]}, "partition 0: brokers [9] are not there"),
    ],
)
def test_a_wrong_placement_by_hand_is_refused(
    assignment: dict[int, Sequence[int]], message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        check_assignment(assignment, frozenset({0, 1, 2}))
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message in str(caught.value)


@pytest.mark.parametrize("factor", [1, 2, 3], ids="08:F-14-{}".format)
def test_as_many_replicas_as_the_replication_factor_says(factor: int) -> None:
    """What is assigned when a topic is made, the leader-to-be among them."""
    assignment = assign_replicas(
        brokers(3), partition_count=4, replication_factor=factor, random=Scripted(0, 0)
    )
    assert [len(set(one)) for one in replicas(assignment)] == [factor] * 4
