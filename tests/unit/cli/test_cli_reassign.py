"""Plans of reassignments: their files, and how they spread replicas over brokers and racks."""

import asyncio
import dataclasses
import json
from typing import cast

import pytest

from odradek.cli.connecting import CommandError
from odradek.cli.reassign.commands import propose
from odradek.cli.reassign.progress import COMPLETE, NOT_THERE, wait_for_moves
from odradek.client import PartitionView, TopicView
from odradek.client.admin import ClusterDescription, Reassignment
from odradek.client.admin.admin import Admin
from odradek.client.admin.reassignment_plans import (
    ReassignmentFileError,
    ReassignmentPlan,
    encode_reassignments,
    parse_reassignments,
)
from odradek.client.cluster import Node
from odradek.errors import ApiError
from odradek.model import ReplicaId, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_plan_is_read_as_it_was_written() -> None:
    targets = {T1: (2, 1), T0: (1, 2)}
    document = encode_reassignments(targets)
    assert document["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [1, 2]}
    assert parse_reassignments(json.dumps(document)) == (targets, {})
    directories = {ReplicaId(T0, 2): "/d"}
    document = encode_reassignments(targets, directories)
    assert [row.get("log_dirs") for row in document["partitions"]] == [["any", "/d"], None]
    assert parse_reassignments(json.dumps(document)) == (targets, directories)


def test_a_plan_of_kafkas_tool_is_read() -> None:
    text = (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],'
        '"log_dirs":["any","/data/two"]}]}'
    )
    assert parse_reassignments(text) == ({T0: (1, 2)}, {ReplicaId(T0, 2): "/data/two"})


ROW = {"topic": "t", "partition": 0, "replicas": [1]}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "expected JSON like"),
        ("[" * 100_000, "expected JSON like"),
        ([], "expected an object like"),
        ({"version": 1}, "expected an object like"),
        ({"version": 2, "partitions": []}, "expected version 1, found 2"),
        ({"partitions": []}, "expected at least one partition"),
        ({"partitions": [1]}, r"partitions\[0\]: expected an object, found 1"),
        ({"partitions": [ROW | {"topic": 5}]}, "topic: expected a name, found 5"),
        ({"partitions": [ROW | {"topic": ""}]}, "topic: expected a name"),
        ({"partitions": [ROW | {"partition": "0"}]}, "partition: expected a number, found '0'"),
        ({"partitions": [ROW | {"partition": True}]}, "partition: expected a number, found True"),
        ({"partitions": [ROW | {"partition": -1}]}, "partition: expected a number, found -1"),
        ({"partitions": [ROW | {"replicas": None}]}, "replicas: expected a list of broker ids"),
        ({"partitions": [ROW | {"replicas": [1, -2]}]}, "replicas: expected a list of broker ids"),
        ({"partitions": [ROW | {"replicas": ["1"]}]}, "replicas: expected a list of broker ids"),
        ({"partitions": [ROW | {"log_dirs": ["d"]}]}, "log_dirs: expected .* absolute path"),
        ({"partitions": [ROW | {"log_dirs": ["/d", "/e"]}]}, "log_dirs: expected .* each replica"),
        ({"partitions": [ROW | {"log_dirs": "/d"}]}, "log_dirs: expected .* each replica"),
        ({"partitions": [ROW, ROW | {"replicas": [2]}]}, "partition t-0 is there twice"),
    ],
)
def test_a_file_of_another_form_says_what_is_wrong(document: object, problem: str) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(ReassignmentFileError, match=problem):
        parse_reassignments(text)


def topic(partition_count: int, replica_count: int) -> TopicView:
    return TopicView(
        name="t",
        topic_id=bytes(16),
        is_internal=False,
        partitions=tuple(
            PartitionView(
                partition=number,
                leader=1,
                leader_epoch=0,
                replicas=tuple(range(1, replica_count + 1)),
                isr=(1,),
                offline_replicas=(),
            )
            for number in range(partition_count)
        ),
    )


def cluster(*racks: str | None) -> ClusterDescription:
    nodes = tuple(Node(n, "h", 9092, rack) for n, rack in enumerate(racks, start=1))
    return ClusterDescription("c", nodes[0], nodes)


def test_a_plan_spreads_replicas_over_brokers_and_racks() -> None:
    proposed = propose(
        [topic(8, 2)],
        cluster("a", "a", "b", "b", "c"),
        [1, 2, 3, 4],
        replication_factor=None,
        is_rack_aware=True,
    )
    assert sorted(proposed) == [TopicPartition("t", n) for n in range(8)]
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    assert all({racks[b] for b in replicas} == {"a", "b"} for replicas in proposed.values())
    leaders = [replicas[0] for replicas in proposed.values()]
    assert {leaders.count(broker) for broker in racks} == {2}


def test_a_plan_may_change_the_number_of_replicas_and_ignore_racks() -> None:
    proposed = propose(
        [topic(4, 1)],
        cluster("a", "a", None),
        [1, 2, 3],
        replication_factor=3,
        is_rack_aware=False,
    )
    assert all(sorted(replicas) == [1, 2, 3] for replicas in proposed.values())


def test_brokers_with_and_without_racks_are_not_mixed() -> None:
    with pytest.raises(CommandError, match=r"brokers 2 have no rack.*--disable-rack-aware"):
        propose(
            [topic(1, 1)],
            cluster("a", None),
            [1, 2],
            replication_factor=None,
            is_rack_aware=True,
        )


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(ApiError, match="there are 1 brokers to use"):
        propose(
            [topic(1, 2)],
            cluster(None, None),
            [2],
            replication_factor=None,
            is_rack_aware=True,
        )


class LateBrokers:
    """A cluster whose brokers learn of the end of a move after the controller."""

    def __init__(self, *told: tuple[int, ...]) -> None:
        self._told = list(told)  # The replicas of t-0, look by look; the last stays.

    async def list_partition_reassignments(self, _: object) -> dict[TopicPartition, Reassignment]:
        return {}

    async def describe_topics(self, _: object) -> dict[str, TopicView]:
        replicas = self._told.pop(0) if len(self._told) > 1 else self._told[0]
        one = dataclasses.replace(topic(1, 1).partitions[0], replicas=replicas)
        return {"t": dataclasses.replace(topic(1, 1), partitions=(one,))}


PLAN = ReassignmentPlan({T0: (1, 2)}, {})


def test_the_end_of_a_move_is_waited_for_on_all_brokers() -> None:
    admin = cast("Admin", LateBrokers((1, 3), (1, 3), (1, 2)))
    states, _ = asyncio.run(wait_for_moves(admin, PLAN))
    assert states == {T0: COMPLETE}


def test_a_move_that_ended_elsewhere_is_not_waited_for_any_longer() -> None:
    states, _ = asyncio.run(wait_for_moves(cast("Admin", LateBrokers((1, 3))), PLAN, lag_s=0.3))
    assert states == {T0: NOT_THERE}
