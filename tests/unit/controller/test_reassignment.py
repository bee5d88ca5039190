"""Decisions on reassignments, and their steps on stored state that others change meanwhile."""

import asyncio
import uuid
from pathlib import Path

import pytest

from odradek.controller import NewTopic
from odradek.controller.context import ControllerContext
from odradek.controller.reassignment import (
    decide_assignments,
    decide_epoch_bump,
    decide_reassignment,
    is_complete,
    plan_leader_move,
)
from odradek.coordination.nodes import (
    PartitionStateNode,
    TopicNode,
    encode_reassignments,
    parse_reassignments,
)
from odradek.coordination.paths import (
    REASSIGN_PARTITIONS,
    partition_state_path,
    topic_path,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.ports import PartitionRecord, RegisteredBroker, TopicRecord
from odradek.metadata_store.writes import read_partition, read_topic
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from tests.support.controllers import Cluster, broker, running_cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def make_context(
    assignment: ReplicaAssignment, *, isr: tuple[int, ...] = (1, 2), leader: int = 1
) -> ControllerContext:
    context = ControllerContext()
    context.controller_epoch = 3
    context.add_live_brokers({b: RegisteredBroker(broker(b), 1) for b in (1, 2, 3, 4)})
    context.put_topic(
        "t",
        TopicRecord(
            topic_id=uuid.UUID(int=1),
            assignment={0: assignment, 1: ReplicaAssignment((1, 2))},
            version=5,
            incarnation=1,
        ),
    )
    state = LeaderAndIsr(leader=leader, leader_epoch=7, isr=isr, partition_version=9)
    context.partition_leadership[T0] = PartitionRecord(state, 3)
    return context


@pytest.mark.parametrize(
    ("now", "target", "expected"),
    [
        ([(1, 2)], (2, 3), [(2, 3, 1), (3,), (1,)]),
        ([(1, 2)], (2, 1), [(2, 1)]),
        ([(1, 2)], (1, 2), [(1, 2)]),
        ([(1, 2)], (1,), [(1, 2), (), (2,)]),
        # Overridden: what the first one was adding is no replica from before.
        ([(3, 4, 1, 2), (3, 4), (1, 2)], (4, 1), [(4, 1, 2), (4,), (2,)]),
        # Cancelled.
        ([(3, 4, 1, 2), (3, 4), (1, 2)], None, [(1, 2)]),
    ],
)
def test_the_assignment_a_move_begins_with(
    now: list[tuple[int, ...]], target: tuple[int, ...] | None, expected: list[tuple[int, ...]]
) -> None:
    """03a:C-11 and 03b section 9."""
    context = make_context(ReplicaAssignment(*now))
    assert decide_reassignment(context, T0, target) == ReplicaAssignment(*expected)
    assert context.partition_full_assignment(T0) == ReplicaAssignment(*now)


@pytest.mark.parametrize(
    ("tp", "target", "code"),
    [
        (T0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (2, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (TopicPartition("t", 9), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("u", 0), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("u", 0), None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_is_refused(
    tp: TopicPartition, target: tuple[int, ...] | None, code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_reassignment(make_context(ReplicaAssignment((1, 2))), tp, target)
    assert refused.value.code is code
    assert str(tp) in str(refused.value)


def test_the_number_of_replicas_may_be_kept() -> None:
    """KIP-860; during a move the number from before counts."""
    context = make_context(ReplicaAssignment((3, 1, 2), adding=(3,), removing=(1, 2)))
    assert decide_reassignment(context, T0, (3, 4), allows_other_count=False).target == (3, 4)
    with pytest.raises(ApiError) as refused:
        decide_reassignment(context, T0, (3, 4, 1), allows_other_count=False)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_replica_in_sync_is_left() -> None:
    """A cancelled or overridden move drops what it added at once, and never all of the ISR."""
    moving = ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    context = make_context(moving, isr=(3,), leader=3)
    for target in (None, (1, 4)):
        with pytest.raises(ApiError, match="none of the replicas in sync"):
            decide_reassignment(context, T0, target)
    assert decide_reassignment(context, T0, (3,)).replicas == (3, 1, 2)


def test_partitions_of_a_topic_are_written_together() -> None:
    context = make_context(ReplicaAssignment((1, 2)))
    moved = ReplicaAssignment((3,))
    [change] = decide_assignments(context, {T0: moved, T1: moved, TopicPartition("gone", 0): moved})
    assert (change.assignment, change.version) == ({0: moved, 1: moved}, 5)


def test_only_the_epoch_is_raised() -> None:
    context = make_context(ReplicaAssignment((1, 2)))
    [change] = decide_epoch_bump(context, [T0, T1])  # The second one has no state yet.
    assert change.state == LeaderAndIsr(leader=1, leader_epoch=8, isr=(1, 2), partition_version=9)
    assert not change.is_first


def test_when_a_move_is_complete_and_what_becomes_of_the_leader() -> None:
    moving = ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,))
    assert not is_complete(make_context(moving, isr=(1, 2)), T0)
    context = make_context(moving, isr=(1, 2, 3))
    assert is_complete(context, T0)
    assert plan_leader_move(context, [T0]).elect == [T0]  # 1 is to be removed.
    context = make_context(moving, isr=(1, 2, 3), leader=2)
    assert plan_leader_move(context, [T0]).keep == [T0]
    context.remove_live_brokers([2])
    assert plan_leader_move(context, [T0]).elect == [T0]


# On an embedded store


def run(directory: Path, scenario: object) -> None:
    async def main() -> None:
        async with running_cluster(directory) as cluster:
            await scenario(cluster)  # type: ignore[operator]  # a coroutine function

    asyncio.run(main())


async def change_isr(store: CoordinationStore, tp: TopicPartition, *isr: int) -> None:
    """As a leader that writes to the store itself, without a notification."""
    record = await read_partition(store, tp)
    assert record is not None
    old = record.leader_and_isr
    state = LeaderAndIsr(leader=old.leader, leader_epoch=old.leader_epoch, isr=isr)
    node = PartitionStateNode(state, record.controller_epoch)
    await store.set(partition_state_path(tp), node.encode(), old.partition_version)


def test_a_tool_moves_replicas_by_a_node(tmp_path: Path) -> None:
    """The watch on the partition's state suffices; the node goes with its last partition."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await cluster.add(1)
        await member.controller.create_topics([NewTopic(name="t", assignment={0: [0], 1: [0]})])
        data = encode_reassignments({T0: [1], T1: [1], TopicPartition("gone", 0): [1]})
        await member.store.create(REASSIGN_PARTITIONS, data)
        await cluster.settle()
        assert set(await member.controller.list_reassignments()) == {T0, T1}
        left, _ = await member.store.get(REASSIGN_PARTITIONS)
        assert parse_reassignments(left) == {T0: (1,), T1: (1,)}
        await change_isr(member.store, T0, 0, 1)
        await cluster.settle()
        left, _ = await member.store.get(REASSIGN_PARTITIONS)
        assert parse_reassignments(left) == {T1: (1,)}
        await change_isr(member.store, T1, 0, 1)
        await cluster.settle()
        assert await member.store.exists(REASSIGN_PARTITIONS) is None
        record = await read_topic(member.store, "t")
        assert record is not None
        assert record.assignment == {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((1,))}

    run(tmp_path, scenario)


def test_the_epoch_in_memory_is_the_stored_one(tmp_path: Path) -> None:
    """15:KAFKA-9212: otherwise clients of a moved partition are fenced for ever."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await cluster.add(1)
        controller = member.controller
        await controller.create_topics([NewTopic(name="t", assignment={0: [0]})])
        await controller.alter_reassignments({T0: (0, 1)})
        assert await read_partition(member.store, T0) == controller.context.partition_leadership[T0]
        await change_isr(member.store, T0, 0, 1)
        await cluster.settle()
        stored = await read_partition(member.store, T0)
        assert stored == controller.context.partition_leadership[T0]
        assert stored is not None
        assert stored.leader_and_isr.leader_epoch == 2

    run(tmp_path, scenario)


def test_a_topic_that_others_rewrote_is_read_and_moved(tmp_path: Path) -> None:
    """A partition that a tool added at the same moment is made, and none is lost."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await cluster.add(1)
        controller = member.controller
        [created] = await controller.create_topics([NewTopic(name="t", assignment={0: [0]})])
        await cluster.settle()
        node = TopicNode(
            topic_id=created.topic_id,
            assignment={0: ReplicaAssignment((0,)), 1: ReplicaAssignment((1,))},
        )
        plain = cluster.engine.connect()
        moving = asyncio.ensure_future(controller.alter_reassignments({T0: (1, 0)}))
        await plain.set(topic_path("t"), node.encode(), ANY_VERSION)
        assert (await moving)[T0].error is ErrorCode.NONE
        await cluster.settle()
        record = await read_topic(plain, "t")
        assert record is not None
        assert record.assignment == {
            0: ReplicaAssignment((1, 0), adding=(1,)),
            1: ReplicaAssignment((1,)),
        }
        assert controller.context.partition_leadership[T1].leader_and_isr.leader == 1
        await plain.session.close()

    run(tmp_path, scenario)


def test_a_broken_request_by_node_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await member.store.create(REASSIGN_PARTITIONS, b'{"partitions":[{"topic":1}]}')
        await cluster.settle()
        [line] = [r.getMessage() for r in caplog.records if REASSIGN_PARTITIONS in r.getMessage()]
        assert "is ignored" in line
        [result] = await member.controller.create_topics([NewTopic(name="t")])
        assert result.error is ErrorCode.NONE

    run(tmp_path, scenario)
