"""Controllers on the embedded store: from a request, a death or a foreign write to the brokers.

Several brokers of one process share the engine, each with its own session; what they are told is
written down by recorders.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random

import pytest

from odradek.controller import ControllerConfig, NewPartitions, NewTopic
from odradek.controller.context import PartitionAndReplica, PartitionStatus, ReplicaStatus
from odradek.controller.events import TopicChange
from odradek.coordination import EmbeddedEngine, EmbeddedStore
from odradek.coordination.nodes import ControllerNode, PartitionStateNode, TopicNode
from odradek.coordination.paths import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ConfigNodeType,
    broker_path,
    config_path,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Create, Delete
from odradek.errors import ApiError, ControllerMoved, ErrorCode
from odradek.metadata.changes import Change, TopicRemoved
from odradek.metadata.ports import (
    CommitOutcome,
    ControllerState,
    Fence,
    Hint,
    MetadataPersistence,
)
from odradek.metadata_store.bootstrap import create_parents
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.protocol.messages.stop_replica import StopReplicaRequest
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.controllers import (
    Cluster,
    Member,
    RecordingBroker,
    broker,
    running_cluster,
    tree,
)
from tests.support.network import eventually

T0 = TopicPartition("t", 0)


def run(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_cluster(tmp_path) as cluster:
            await scenario(cluster)

    asyncio.run(main())


async def state_of(store: CoordinationStore, tp: TopicPartition = T0) -> LeaderAndIsr:
    data, stat = await store.get(partition_state_path(tp))
    return PartitionStateNode.parse(data, stat.version).leader_and_isr


async def create(member: Member, name: str = "t", **options: object) -> uuid.UUID:
    [result] = await member.controller.create_topics([NewTopic(name=name, **options)])  # type: ignore[arg-type]
    assert result.error is ErrorCode.NONE, result
    assert result.topic_id is not None
    return result.topic_id


def foreign(cluster: Cluster) -> EmbeddedStore:
    """A session of somebody else."""
    return cluster.engine.connect()


def is_deleting(member: Member, replica: PartitionAndReplica) -> bool:
    """Whether the broker was told to delete it and has not answered."""
    return member.controller.context.replica_state(replica) is ReplicaStatus.DELETION_STARTED


class RecordedCommits:
    """Persistence that writes down the kinds of the changes it is given."""

    def __init__(self, inner: MetadataPersistence, kinds: list[str]) -> None:
        self._inner = inner
        self._kinds = kinds
        self.raises_leader_epoch_on_isr_change = True
        self.events = inner.events
        self.load = inner.load
        self.resign = inner.resign

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        self._kinds += [type(change).__name__ for change in changes]
        return await self._inner.commit(changes, fence)


# One broker: the path of a topic


def test_creation_goes_from_the_request_to_the_broker(tmp_path: Path) -> None:
    """14:SM-1, 03b:T5.1: two kinds of change, two requests; the hints that follow do nothing."""
    commits: list[str] = []

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0, wrap=lambda inner: RecordedCommits(inner, commits))
        recorder = cluster.recorder(0)
        assert recorder.names() == ["UpdateMetadata"]  # Who is there, before any partition.
        recorder.take()
        topic_id = await create(member, partition_count=3)
        await cluster.settle()
        assert commits == ["TopicCreated", *["PartitionChanged"] * 3]
        zxid = cluster.engine.last_zxid
        [leader_and_isr, update] = recorder.take()
        assert isinstance(leader_and_isr, LeaderAndIsrRequest)
        assert isinstance(update, UpdateMetadataRequest)
        [topic] = leader_and_isr.topic_states
        assert topic.topic_id == topic_id.bytes
        assert [p.partition_index for p in topic.partition_states] == [0, 1, 2]
        assert all(p.is_new and p.leader == 0 for p in topic.partition_states)
        assert [p.leader for p in update.topic_states[0].partition_states] == [0, 0, 0]
        await cluster.settle()
        assert (recorder.take(), cluster.engine.last_zxid) == ([], zxid)
        context = member.controller.context
        assert set(context.partition_states.values()) == {PartitionStatus.ONLINE}
        assert set(context.replica_states.values()) == {ReplicaStatus.ONLINE}
        assert await state_of(member.store) == LeaderAndIsr(leader=0, leader_epoch=0, isr=(0,))

    run(tmp_path, scenario)


def test_configs_are_stored_with_the_topic_and_not_notified(tmp_path: Path) -> None:
    """14:SM-6: whoever makes the log finds them, although nobody is notified."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member, configs={"cleanup.policy": "compact"})
        data, _ = await member.store.get(config_path(ConfigNodeType.TOPIC, "t"))
        assert data == b'{"version":1,"config":{"cleanup.policy":"compact"}}'
        assert (await member.store.children("/config/changes"))[0] == []

    run(tmp_path, scenario)


def test_a_left_over_config_is_overwritten(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await member.store.create(config_path(ConfigNodeType.TOPIC, "t"), b"old")
        await create(member)
        data, _ = await member.store.get(config_path(ConfigNodeType.TOPIC, "t"))
        assert data == b'{"version":1,"config":{}}'

    run(tmp_path, scenario)


def test_a_foreign_topic_node_becomes_a_topic_with_an_id(tmp_path: Path) -> None:
    """14:SM-2, 03a:C-6: written without id and config; the id is written back first."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        recorder.take()
        await foreign(cluster).create(topic_path("t"), b'{"version":2,"partitions":{"0":[0]}}')
        await cluster.settle()
        data, _ = await member.store.get(topic_path("t"))
        node = TopicNode.parse(data)
        assert node.topic_id is not None
        assert recorder.names() == ["LeaderAndIsr", "UpdateMetadata"]
        assert member.controller.context.topic_ids == {"t": node.topic_id}
        assert (await state_of(member.store)).leader == 0
        # And away again, by the same hand.
        store = foreign(cluster)
        for path in (
            partition_state_path(T0),
            "/brokers/topics/t/partitions/0",
            "/brokers/topics/t/partitions",
            topic_path("t"),
        ):
            await store.delete(path, ANY_VERSION)
        await cluster.settle()
        context = member.controller.context
        assert (context.all_topics, context.partition_states) == (set(), {})

    run(tmp_path, scenario)


def test_a_topic_that_was_recreated_between_two_reads_is_another_one(tmp_path: Path) -> None:
    """14:SM-10: deleted and new, however alike the two are."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        old_id = await create(member)
        await cluster.settle()
        recorder.take()
        store = foreign(cluster)
        for path in (
            partition_state_path(T0),
            "/brokers/topics/t/partitions/0",
            "/brokers/topics/t/partitions",
            topic_path("t"),
        ):
            await store.delete(path, ANY_VERSION)
        await store.create(topic_path("t"), b'{"version":2,"partitions":{"0":[0]}}')
        await cluster.settle()
        new_id = member.controller.context.topic_ids["t"]
        assert new_id != old_id
        assert (await state_of(member.store)).leader == 0
        # If the deletion alone was seen first, nothing is left to stop by that name.
        requests = recorder.take()
        [leader_and_isr] = [r for r in requests if isinstance(r, LeaderAndIsrRequest)]
        assert leader_and_isr.topic_states[0].topic_id == new_id.bytes
        assert leader_and_isr.topic_states[0].partition_states[0].is_new

    run(tmp_path, scenario)


def test_a_topic_found_recreated_has_its_old_replicas_deleted_first(tmp_path: Path) -> None:
    """14:SM-10, 03b §5.1: one read sees the other czxid."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        await create(member)
        await cluster.settle()
        recorder.take()
        # Nothing can be read between deletion and creation.
        gone = (
            partition_state_path(T0),
            "/brokers/topics/t/partitions/0",
            "/brokers/topics/t/partitions",
            topic_path("t"),
        )
        await foreign(cluster).multi(
            [
                *(Delete(path, ANY_VERSION) for path in gone),
                Create(topic_path("t"), b'{"version":2,"partitions":{"0":[0]}}'),
            ]
        )
        await cluster.settle()
        assert recorder.names()[0] == "StopReplica"
        assert recorder.names()[1:] == ["LeaderAndIsr", "UpdateMetadata"]
        assert (await state_of(member.store)).leader == 0

    run(tmp_path, scenario)


def test_an_id_lost_in_a_rewrite_is_written_back(tmp_path: Path) -> None:
    """14:SM-10, second half: same czxid, so it is the same topic, and no log is touched."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        topic_id = await create(member)
        await cluster.settle()
        cluster.recorder(0).take()
        await foreign(cluster).set(
            topic_path("t"), b'{"version":1,"partitions":{"0":[0]}}', ANY_VERSION
        )
        await cluster.settle()
        data, _ = await member.store.get(topic_path("t"))
        assert TopicNode.parse(data).topic_id == topic_id
        assert cluster.recorder(0).take() == []

    run(tmp_path, scenario)


def test_partitions_are_added_by_request_and_by_a_foreign_hand(tmp_path: Path) -> None:
    """03b:T5.2: only the new ones are created."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        topic_id = await create(member)
        await cluster.settle()
        recorder.take()
        controller = member.controller
        results = await controller.create_partitions(
            [
                NewPartitions(name="t", total_count=2),
                NewPartitions(name="t", total_count=2),
                NewPartitions(name="x", total_count=2),
            ]
        )
        assert [r.error for r in results] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await cluster.settle()
        [leader_and_isr, _] = recorder.take()
        assert isinstance(leader_and_isr, LeaderAndIsrRequest)
        states = leader_and_isr.topic_states[0].partition_states
        assert [p.partition_index for p in states] == [1]
        await foreign(cluster).set(
            topic_path("t"),
            TopicNode(
                topic_id=topic_id, assignment={p: ReplicaAssignment((0,)) for p in range(3)}
            ).encode(),
            ANY_VERSION,
        )
        await cluster.settle()
        assert controller.context.partition_state(TopicPartition("t", 2)) is PartitionStatus.ONLINE
        # The version that was found is the one the next change needs.
        [result] = await controller.create_partitions([NewPartitions(name="t", total_count=4)])
        assert result.error is ErrorCode.NONE

    run(tmp_path, scenario)


def test_deletion_cleans_logs_metadata_and_store(tmp_path: Path) -> None:
    """03b:T6.1: the brokers see leader -2, delete, and only then does the store forget."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await cluster.add(1)
        active = member.controller
        await create(member, assignment={0: [0, 1]})
        await cluster.settle()
        seen: list[ReplicaStatus] = []
        for recorder in cluster.recorders.values():
            recorder.take()
            recorder.answers_deletions.clear()
        [deleted] = await active.delete_topics(["t"])
        assert (deleted.error, deleted.topic_id) == (
            ErrorCode.NONE,
            active.context.topic_ids["t"],
        )

        def stops_of(broker_id: int) -> list[StopReplicaRequest]:
            requests = cluster.recorder(broker_id).requests
            return [one for one in requests if isinstance(one, StopReplicaRequest)]

        await eventually(lambda: len(stops_of(0)) == len(stops_of(1)) == 2)
        replica = PartitionAndReplica(T0, 1)
        seen.append(active.context.replica_state(replica))
        assert active.context.partition_state(T0) is PartitionStatus.NON_EXISTENT
        assert cluster.recorder(1).announced() == {T0: -2}
        stops = stops_of(1)
        assert [s.topic_states[0].partition_states[0].delete_partition for s in stops] == [
            False,
            True,
        ]
        assert {s.topic_states[0].partition_states[0].leader_epoch for s in stops} == {-2}
        assert (member.gauge("TopicsToDeleteCount"), member.gauge("ReplicasToDeleteCount")) == (
            1,
            2,
        )
        assert await member.store.exists(topic_path("t")) is not None
        for recorder in cluster.recorders.values():
            recorder.answers_deletions.set()
        await cluster.settle()
        assert seen == [ReplicaStatus.DELETION_STARTED]
        for path in (
            topic_path("t"),
            config_path(ConfigNodeType.TOPIC, "t"),
            delete_topic_path("t"),
        ):
            assert await member.store.exists(path) is None, path
        context = active.context
        assert (context.all_topics, context.replica_states, context.partition_states) == (
            set(),
            {},
            {},
        )
        assert context.offline_partition_count == 0
        await create(member)  # The name is free again.

    run(tmp_path, scenario)


def test_partitions_added_to_a_topic_being_deleted_are_taken_back(tmp_path: Path) -> None:
    """03b:T5.3"""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        topic_id = await create(member)
        recorder.answers_deletions.clear()
        await member.controller.delete_topics(["t"])
        await eventually(lambda: is_deleting(member, PartitionAndReplica(T0, 0)))
        both = {p: ReplicaAssignment((0,)) for p in range(2)}
        node = TopicNode(topic_id=topic_id, assignment=both)
        await foreign(cluster).set(topic_path("t"), node.encode(), ANY_VERSION)
        for _ in range(60_000):
            data, _ = await member.store.get(topic_path("t"))
            if sorted(TopicNode.parse(data).assignment) == [0]:
                break
            await asyncio.sleep(0.001)
        else:
            raise AssertionError("the added partition is not taken back")
        assert member.controller.context.partitions_for_topic("t") == [T0]
        recorder.answers_deletions.set()

    run(tmp_path, scenario)


def test_a_topic_named_by_id_is_not_confused_with_its_successor(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member, assignment={0: [0]})
        controller = member.controller
        first = controller.context.topic_ids["t"]
        await controller.delete_topics(["t"], {"t": first})
        await cluster.settle()
        await create(member, assignment={0: [0]})
        [result] = await controller.delete_topics(["t"], {"t": first})
        assert result.error is ErrorCode.UNKNOWN_TOPIC_ID
        await cluster.settle()
        assert "t" in controller.context.all_topics

    run(tmp_path, scenario)


def test_marks_of_unknown_topics_are_removed(tmp_path: Path) -> None:
    """03b:T5.4"""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await foreign(cluster).create(delete_topic_path("ghost"))
        await cluster.settle()
        assert await member.store.exists(delete_topic_path("ghost")) is None
        [result] = await member.controller.delete_topics(["ghost"])
        assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_without_deletion_marks_are_removed_and_topics_stay(tmp_path: Path) -> None:
    """03b:T5.5"""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0, config=ControllerConfig(delete_topic_enable=False))
        await create(member)
        await foreign(cluster).create(delete_topic_path("t"))
        await cluster.settle()
        assert await member.store.exists(delete_topic_path("t")) is None
        assert (await state_of(member.store)).leader == 0
        [result] = await member.controller.delete_topics(["t"])
        assert result.error is ErrorCode.TOPIC_DELETION_DISABLED

    run(tmp_path, scenario)


def test_a_topic_marked_by_a_foreign_hand_is_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        await foreign(cluster).create(delete_topic_path("t"))
        await cluster.settle()
        assert await member.store.exists(topic_path("t")) is None
        assert member.controller.context.all_topics == set()

    run(tmp_path, scenario)


def test_a_restarted_broker_finds_its_partitions(tmp_path: Path) -> None:
    """The next controller announces who is there, then every partition, without an election."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member, partition_count=2)
        await cluster.remove(member)
        cluster.recorder(0).take()
        member = await cluster.add(0)
        [who, leader_and_isr, update] = cluster.recorder(0).take()
        assert isinstance(who, UpdateMetadataRequest)
        assert (list(who.topic_states), len(who.live_brokers)) == ([], 1)
        assert isinstance(leader_and_isr, LeaderAndIsrRequest)
        assert leader_and_isr.controller_epoch == 2
        states = leader_and_isr.topic_states[0].partition_states
        assert [(p.leader, p.leader_epoch, p.is_new) for p in states] == [(0, 0, False)] * 2
        assert isinstance(update, UpdateMetadataRequest)

    run(tmp_path, scenario)


def test_elections_by_request(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        other = await cluster.add(1)
        await create(member, assignment={0: [1, 0]})
        await cluster.settle()
        controller = member.controller
        missing = TopicPartition("x", 0)
        outcome = await controller.elect_leaders([T0, missing], ElectionType.PREFERRED)
        assert outcome[T0].error is ErrorCode.ELECTION_NOT_NEEDED
        assert outcome[missing].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await controller.elect_leaders(None, ElectionType.PREFERRED) == {}
        await cluster.remove(other)
        assert await state_of(member.store) == LeaderAndIsr(
            leader=0, leader_epoch=1, isr=(0,), partition_version=1
        )
        outcome = await controller.elect_leaders([T0], ElectionType.PREFERRED)
        assert outcome[T0].error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        outcome = await controller.elect_leaders([T0], ElectionType.UNCLEAN)
        assert outcome[T0].error is ErrorCode.ELECTION_NOT_NEEDED
        # Back, and in sync again: its leader has written that.
        await cluster.add(1)
        state = await state_of(member.store)
        await member.port.alter_isr(
            T0,
            LeaderAndIsr(
                leader=0,
                leader_epoch=state.leader_epoch,
                isr=(0, 1),
                partition_version=state.partition_version,
            ),
            controller_epoch=1,
        )
        outcome = await controller.elect_leaders(None, ElectionType.PREFERRED)
        # Nobody could lead by the ISR it knew; it looked, and decided again.
        assert outcome[T0].error is ErrorCode.NONE
        assert outcome[T0].leader == 1
        assert await controller.list_reassignments() == {}

    run(tmp_path, scenario)


def test_unclean_election_by_request(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        other = await cluster.add(1)
        await create(member, assignment={0: [1, 0]})
        await cluster.settle()
        await cluster.remove(other)
        state = await state_of(member.store)
        shrunk = LeaderAndIsr(leader=-1, leader_epoch=9, isr=(1,))
        node = PartitionStateNode(shrunk, 1)
        await member.store.set(partition_state_path(T0), node.encode(), state.partition_version)
        await member.port.notify_isr_changes([T0])
        await cluster.settle()
        controller = member.controller
        assert cluster.recorder(0).announced()[T0] == -1
        outcome = await controller.elect_leaders([T0], ElectionType.UNCLEAN)
        assert outcome[T0].error is ErrorCode.NONE
        assert await state_of(member.store) == LeaderAndIsr(
            leader=0, leader_epoch=10, isr=(0,), partition_version=state.partition_version + 2
        )
        assert controller._machines._stats.unclean_leader_elections.count == 1

    run(tmp_path, scenario)


def test_a_preferred_election_can_be_asked_for_by_a_node(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        path = "/admin/preferred_replica_election"
        await foreign(cluster).create(
            path, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        )
        await cluster.settle()
        assert await member.store.exists(path) is None

    run(tmp_path, scenario)


# Election


def test_of_two_brokers_one_is_controller(tmp_path: Path) -> None:
    """03b:T3.2, 03b:I5, 03a:C-7, 03b:T4.5: the other one reacts to nothing."""

    async def scenario(cluster: Cluster) -> None:
        members = [Member(cluster, i, cluster.engine.connect()) for i in (0, 1)]
        cluster.members += members
        await asyncio.gather(*(member.start() for member in members))
        await cluster.settle()
        active = cluster.active
        [idle] = [member for member in members if member is not active]
        data, stat = await active.store.get(CONTROLLER)
        assert ControllerNode.parse(data).broker_id == active.broker_id
        assert stat.ephemeral_owner == active.store.session.id
        assert (await active.store.get(CONTROLLER_EPOCH))[0] == b"1"
        assert (active.gauge("ActiveControllerCount"), idle.gauge("ActiveControllerCount")) == (
            1,
            0,
        )
        await create(active)
        await cluster.settle()
        assert idle.controller.context.all_topics == set()
        assert idle.controller.context.live_broker_ids == set()
        assert idle.controller._senders.channels is None
        with pytest.raises(ApiError) as refusal:
            await idle.controller.create_topics([NewTopic(name="u")])
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        outcome = await idle.controller.elect_leaders([T0], ElectionType.PREFERRED)
        assert outcome[T0].error is ErrorCode.NOT_CONTROLLER
        with pytest.raises(ControllerMoved):
            await idle.controller.controlled_shutdown(0, -1)

    run(tmp_path, scenario)


def test_the_death_of_the_controller_makes_another_one(tmp_path: Path) -> None:
    """03b:T3.3"""

    async def scenario(cluster: Cluster) -> None:
        first = await cluster.add(0)
        second = await cluster.add(1)
        await create(first, assignment={0: [0, 1]})
        await cluster.remove(first)
        assert cluster.active is second
        assert second.controller.context.controller_epoch == 2
        assert await state_of(second.store) == LeaderAndIsr(
            leader=1, leader_epoch=2, isr=(1,), partition_version=2
        )
        assert cluster.recorder(1).announced()[T0] == 1

    run(tmp_path, scenario)


def test_deleting_the_controller_node_heals_a_stuck_partition(tmp_path: Path) -> None:
    """03b:T3.4, 03a:C-10"""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        await cluster.settle()
        # What the controller believes and what is stored have come apart.
        stuck = PartitionStateNode(LeaderAndIsr(leader=-1, leader_epoch=4, isr=(0,)), 1)
        await member.store.set(partition_state_path(T0), stuck.encode(), ANY_VERSION)
        cluster.recorder(0).take()
        await foreign(cluster).delete(CONTROLLER, ANY_VERSION)
        await cluster.settle()
        assert member.controller.is_active
        assert member.controller.context.controller_epoch == 2
        assert (await state_of(member.store)).leader == 0
        assert cluster.recorder(0).announced() == {T0: 0}

    run(tmp_path, scenario)


def test_overwriting_the_controller_node_deposes_without_election(tmp_path: Path) -> None:
    """03b:T3.5, 03b:T3.8: resigned, everything is empty and zero."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        assert member.gauge("GlobalTopicCount") == 1
        assert member.gauge("GlobalPartitionCount") == 1
        await foreign(cluster).set(CONTROLLER, ControllerNode(7, 0).encode(), ANY_VERSION)
        await cluster.settle()
        controller = member.controller
        assert not controller.is_active
        assert controller.controller_id == -1
        assert (await member.store.get(CONTROLLER_EPOCH))[0] == b"1"
        for name in (
            "ActiveControllerCount",
            "OfflinePartitionsCount",
            "PreferredReplicaImbalanceCount",
            "ControllerState",
            "GlobalTopicCount",
            "GlobalPartitionCount",
            "TopicsToDeleteCount",
            "ReplicasToDeleteCount",
            "TopicsIneligibleToDeleteCount",
            "ReplicasIneligibleToDeleteCount",
        ):
            assert member.gauge(name) == 0, name
        context = controller.context
        assert (context.all_topics, context.live_broker_ids, context.controller_epoch) == (
            set(),
            set(),
            0,
        )
        assert controller._leadership._rebalance_timer is None
        assert controller._senders.channels is None

    run(tmp_path, scenario)


class FailingLoad:
    """Persistence whose first complete load fails."""

    def __init__(self, inner: MetadataPersistence) -> None:
        self._inner = inner
        self.failures = 1
        self.raises_leader_epoch_on_isr_change = True
        self.events = inner.events
        self.commit = inner.commit
        self.resign = inner.resign

    async def load(self, hint: Hint | None = None) -> ControllerState:
        if hint is None and self.failures:
            self.failures -= 1
            raise RuntimeError("planted")
        return await self._inner.load(hint)


def test_a_failure_on_the_way_to_office_starts_another_election(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """03b:T3.6"""

    async def scenario(cluster: Cluster) -> None:
        member = Member(cluster, 0, cluster.engine.connect(), wrap=FailingLoad)
        cluster.members.append(member)
        await member.start()
        await cluster.settle()
        assert member.controller.is_active
        assert member.controller.context.controller_epoch == 2

    run(tmp_path, scenario)
    assert "could not become controller" in caplog.text


def test_a_lost_session_deposes_first_and_registers_anew(tmp_path: Path) -> None:
    """03b:T3.7: what is queued is discarded, and the broker epoch grows."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        await cluster.settle()
        epoch = member.port.broker_epoch
        store = member.store
        assert isinstance(store, EmbeddedStore)
        states: list[tuple[str, bool, int]] = []
        store.session.on_state(
            lambda state: states.append(
                (
                    state.value,
                    member.controller.is_active,
                    len(member.controller.context.all_topics),
                )
            )
        )
        # The event at hand takes its time; what waits behind it is discarded.
        go_on = asyncio.Event()

        async def process_topic_change() -> None:
            await go_on.wait()

        member.controller._topics.process_topic_change = (  # type: ignore[method-assign]  # blocks
            process_topic_change
        )
        await member.controller._events.put(TopicChange()).await_processing()
        queued = asyncio.ensure_future(
            member.controller.elect_leaders([T0], ElectionType.PREFERRED)
        )
        await asyncio.sleep(0)
        await store.session.expire()
        outcome = await queued
        assert outcome[T0].error is ErrorCode.NOT_CONTROLLER
        assert states == [("lost", True, 1)]  # No new session before the resignation.
        go_on.set()
        await cluster.settle()
        assert states == [("lost", True, 1), ("connected", False, 0)]
        assert member.port.broker_epoch > epoch
        assert member.controller.is_active
        assert member.controller.context.controller_epoch == 2
        assert member.controller.context.live_broker_epochs == {0: member.port.broker_epoch}

    run(tmp_path, scenario)


# Brokers


def test_a_broker_joins_and_dies(tmp_path: Path) -> None:
    """03b:T4.2, 03b:T4.3, 03a:C-9, 03a:E-4: in the order of §5.3."""

    async def scenario(cluster: Cluster) -> None:
        first = await cluster.add(0)
        await create(first)
        await cluster.settle()
        cluster.recorder(0).take()
        second = await cluster.add(1)
        [joined] = cluster.recorder(0).take()
        assert isinstance(joined, UpdateMetadataRequest)
        assert [b.id for b in joined.live_brokers] == [0, 1]
        assert cluster.recorder(1).announced() == {T0: 0}
        await create(first, name="u", assignment={0: [1, 0]})
        await cluster.settle()
        u0 = TopicPartition("u", 0)
        assert (await state_of(first.store, u0)).leader == 1
        context = first.controller.context
        context.shutting_down_broker_ids.add(1)
        context.replicas_on_offline_dirs[1] = {u0}
        go_offline = first.controller._brokers.on_replicas_become_offline
        seen: list[bool] = []

        async def on_replicas_become_offline(replicas: Iterable[PartitionAndReplica]) -> None:
            seen.append(bool(context.shutting_down_broker_ids or context.replicas_on_offline_dirs))
            await go_offline(replicas)

        first.controller._brokers.on_replicas_become_offline = (  # type: ignore[method-assign]  # looks
            on_replicas_become_offline
        )
        await cluster.remove(second)
        assert seen == [False]
        assert context.replica_state(PartitionAndReplica(u0, 1)) is ReplicaStatus.OFFLINE
        assert (await state_of(first.store, u0)).leader == 0
        assert cluster.recorder(0).announced()[u0] == 0
        assert first.controller._senders.active().broker_ids == [0]
        last = [r for r in cluster.recorder(0).requests if isinstance(r, UpdateMetadataRequest)][-1]
        assert [b.id for b in last.live_brokers] == [0]

    run(tmp_path, scenario)


def test_a_change_of_endpoints_is_broadcast(tmp_path: Path) -> None:
    """03b:T4.4: a rewrite that changes nothing is not."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        recorder = cluster.recorder(0)
        recorder.take()
        path = broker_path(0)
        data, _ = await member.store.get(path)
        assert data is not None
        await foreign(cluster).set(path, data, ANY_VERSION)
        await cluster.settle()
        assert recorder.take() == []
        await foreign(cluster).set(path, data.replace(b"9092", b"9999"), ANY_VERSION)
        await cluster.settle()
        [update] = recorder.take()
        assert isinstance(update, UpdateMetadataRequest)
        assert update.live_brokers[0].endpoints[0].port == 9999
        assert member.controller.context.live_broker_epochs == {0: member.port.broker_epoch}

    run(tmp_path, scenario)


def test_a_failed_directory_takes_replicas_offline_until_they_answer(tmp_path: Path) -> None:
    """03b §9: the notification probes, the answer tells, another probe brings them back."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await cluster.add(1)
        await create(member, assignment={0: [1, 0]})
        await cluster.settle()
        cluster.recorder(1).leader_errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.members[1].port.report_log_dir_failure()
        await cluster.settle()
        context = member.controller.context
        assert context.replicas_on_offline_dirs == {1: {T0}}
        assert (await state_of(member.store)).leader == 0
        assert (await member.store.children("/log_dir_event_notification"))[0] == []
        cluster.recorder(1).leader_errors.clear()
        await cluster.members[1].port.report_log_dir_failure()
        await cluster.settle()
        assert context.replicas_on_offline_dirs == {}

    run(tmp_path, scenario)


def test_controlled_shutdown_moves_leaders_away(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        second = await cluster.add(1)
        await create(member, assignment={0: [1, 0], 1: [0, 1]})
        await create(member, name="alone", assignment={0: [1]})
        await cluster.settle()
        with pytest.raises(ApiError) as stale:
            await second.port.controlled_shutdown(second.port.broker_epoch - 1)
        assert stale.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert await second.port.controlled_shutdown(second.port.broker_epoch) == frozenset()
        assert (await state_of(member.store)).leader == 0
        assert (await state_of(member.store, TopicPartition("t", 1))).isr == (0,)
        assert member.controller.context.live_broker_ids == {0}
        with pytest.raises(ApiError) as unknown:
            await member.controller.controlled_shutdown(5, -1)
        assert unknown.value.code is ErrorCode.BROKER_NOT_AVAILABLE

    run(tmp_path, scenario)


def test_a_new_topic_without_live_replicas_waits_for_one(tmp_path: Path) -> None:
    """03b:T8.5"""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await foreign(cluster).create(topic_path("t"), b'{"version":1,"partitions":{"0":[1]}}')
        await cluster.settle()
        context = member.controller.context
        assert context.partition_state(T0) is PartitionStatus.NEW
        await cluster.add(1)
        assert context.partition_state(T0) is PartitionStatus.ONLINE
        assert (await state_of(member.store)).leader == 1

    run(tmp_path, scenario)


@pytest.mark.parametrize("controller_id", [2, 1])
def test_a_partition_that_lost_all_replicas_has_no_leader(
    tmp_path: Path, controller_id: int
) -> None:
    """03b:T7.6: whether or not the controller died with the last replica."""

    async def scenario(cluster: Cluster) -> None:
        order = [controller_id, *(b for b in (0, 1, 2) if b != controller_id)]
        members = {b: await cluster.add(b) for b in order}
        await create(cluster.active, assignment={0: [0, 1]})
        await cluster.settle()
        await cluster.remove(members[0])
        await cluster.remove(members[1])
        assert cluster.active is members[2]
        assert (await state_of(members[2].store)).leader == -1

    run(tmp_path, scenario)


# Deletion with obstacles


def test_deletion_waits_for_a_broker_that_is_away(tmp_path: Path) -> None:
    """03b:T6.2: and only the replica that is left gets the request when it returns."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        second = await cluster.add(1)
        await create(member, assignment={0: [0, 1]})
        await cluster.settle()
        await cluster.remove(second)
        await member.controller.delete_topics(["t"])
        await cluster.settle()
        context = member.controller.context
        assert context.topics_ineligible_for_deletion == {"t"}
        states = {r.replica: s for r, s in context.replica_states.items()}
        assert states[0] is ReplicaStatus.DELETION_SUCCESSFUL
        assert states[1] in (ReplicaStatus.DELETION_INELIGIBLE, ReplicaStatus.OFFLINE)
        assert member.gauge("TopicsIneligibleToDeleteCount") == 1
        for recorder in cluster.recorders.values():
            recorder.take()
        await cluster.add(1)
        assert await member.store.exists(topic_path("t")) is None
        assert not any(isinstance(r, StopReplicaRequest) for r in cluster.recorder(0).requests)
        assert any(isinstance(r, StopReplicaRequest) for r in cluster.recorder(1).requests)

    run(tmp_path, scenario)


def test_a_replica_that_could_not_be_deleted_is_tried_again(tmp_path: Path) -> None:
    """03b:T6.3: alone; its neighbour is done, and is not told again."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        second = await cluster.add(1)
        await create(member, assignment={0: [0, 1]})
        await cluster.settle()
        cluster.recorder(1).delete_errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        await member.controller.delete_topics(["t"])
        await cluster.settle()
        context = member.controller.context
        assert context.topics_ineligible_for_deletion == {"t"}
        states = {r.replica: state for r, state in context.replica_states.items()}
        assert states[0] is ReplicaStatus.DELETION_SUCCESSFUL
        assert states[1] in (ReplicaStatus.DELETION_INELIGIBLE, ReplicaStatus.OFFLINE)
        assert await member.store.exists(topic_path("t")) is not None

        # The broker comes back with a disk that works.
        cluster.recorder(1).delete_errors.clear()
        await cluster.remove(second)
        for recorder in cluster.recorders.values():
            recorder.take()
        await cluster.add(1)
        assert deletions(cluster.recorder(0)) == []
        assert deletions(cluster.recorder(1)) == [T0]
        assert await member.store.exists(topic_path("t")) is None

    run(tmp_path, scenario)


def deletions(recorder: RecordingBroker) -> list[TopicPartition]:
    """Which replicas a broker was told to delete."""
    return [
        TopicPartition(topic.topic_name, row.partition_index)
        for request in recorder.requests
        if isinstance(request, StopReplicaRequest)
        for topic in request.topic_states
        for row in topic.partition_states
        if row.delete_partition
    ]


def test_a_lone_replica_that_could_not_be_deleted_is_tried_again(tmp_path: Path) -> None:
    """03b:T6.3, if the broker that failed is the controller."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        await create(member)
        recorder = cluster.recorder(0)
        recorder.delete_errors[T0] = ErrorCode.KAFKA_STORAGE_ERROR
        await member.controller.delete_topics(["t"])
        await cluster.settle()
        context = member.controller.context
        assert context.topics_ineligible_for_deletion == {"t"}
        assert await member.store.exists(topic_path("t")) is not None
        recorder.delete_errors.clear()
        # The broker comes back, and with it the controller.
        await cluster.remove(member)
        again = await cluster.add(0)
        assert await again.store.exists(topic_path("t")) is None
        assert again.controller.context.topics_to_be_deleted == set()

    run(tmp_path, scenario)


def test_a_broker_that_dies_while_it_deletes_does_not_block_for_ever(tmp_path: Path) -> None:
    """03b:T6.4, 03b:T6.5: nor does a controller that dies."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        second = await cluster.add(1)
        await create(member, assignment={0: [1]})
        await cluster.settle()
        cluster.recorder(1).answers_deletions.clear()
        await member.controller.delete_topics(["t"])
        replica = PartitionAndReplica(T0, 1)
        context = member.controller.context
        await eventually(lambda: is_deleting(member, replica))
        cluster.members.remove(second)
        await second.stop()
        await cluster.settle()
        assert context.replica_state(replica) is ReplicaStatus.OFFLINE
        assert context.topics_ineligible_for_deletion == {"t"}
        # The next controller finds the mark.
        await cluster.remove(member)
        cluster.recorder(1).answers_deletions.set()
        third = await cluster.add(1)
        assert await third.store.exists(topic_path("t")) is None
        assert await third.store.exists(delete_topic_path("t")) is None

    run(tmp_path, scenario)


def test_deletion_waits_for_the_end_of_a_reassignment(tmp_path: Path) -> None:
    """03b:T5.6: queued, but not begun while replicas are being moved.

    No broker here can move replicas, so the end of the move is set by hand.
    """

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        topic_id = await create(member)
        await cluster.settle()
        moving = TopicNode(topic_id=topic_id, assignment={0: ReplicaAssignment((1, 0), (1,), (0,))})
        await member.store.set(topic_path("t"), moving.encode(), ANY_VERSION)
        await foreign(cluster).delete(CONTROLLER, ANY_VERSION)
        await cluster.settle()
        controller = member.controller
        assert list(await controller.list_reassignments()) == [T0]
        assert await controller.list_reassignments([TopicPartition("t", 9)]) == {}
        await controller.delete_topics(["t"])
        await cluster.settle()
        context = controller.context
        assert context.topics_ineligible_for_deletion == {"t"}
        assert context.partition_state(T0) is PartitionStatus.ONLINE
        context.update_partition_assignment(T0, ReplicaAssignment((0,)))
        context.partitions_being_reassigned.clear()
        await controller._deletion.resume_topics(["t"])
        await cluster.settle()
        assert await member.store.exists(topic_path("t")) is None

    run(tmp_path, scenario)


def test_a_deposed_controller_removes_nothing(tmp_path: Path) -> None:
    """03b:T6.6, 03b:I7, 03a:E-2: the version of the epoch node fences it."""

    async def scenario(cluster: Cluster) -> None:
        member = await cluster.add(0)
        topic_id = await create(member)
        await cluster.settle()
        before = await tree(member.store, "/brokers/topics")
        await foreign(cluster).set(CONTROLLER_EPOCH, b"2", ANY_VERSION)
        with pytest.raises(ControllerMoved):
            await member.persistence.commit(
                [TopicRemoved("t", topic_id)], member.controller.context.fence
            )
        assert await tree(member.store, "/brokers/topics") == before
        # The next event finds out, too, and resigns.
        with pytest.raises(ApiError) as refusal:
            await member.controller.create_topics([NewTopic(name="u")])
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert not member.controller.is_active

    run(tmp_path, scenario)


# Crashes


async def life(directory: Path, disk: SimDisk, script: Callable[[Member], Awaitable[None]]) -> None:
    """One life of a process that ends, at the latest, when the disk stops."""
    async with EmbeddedEngine(str(directory), disk=disk) as engine:
        store = engine.connect()
        await create_parents(store)
        cluster = Cluster(engine)
        member = Member(cluster, 0, engine.connect())
        cluster.members.append(member)
        try:
            await member.start()
            await cluster.settle()
            async with asyncio.timeout(60):
                await script(member)
                await cluster.settle()
        finally:
            await member.controller.stop()


async def create_topic(member: Member) -> None:
    if "t" not in member.controller.context.all_topics:
        await member.controller.create_topics([NewTopic(name="t", partition_count=2)])


async def delete_topic(member: Member) -> None:
    await member.controller.delete_topics(["t"])


async def check(member: Member, *, may_be_absent: bool) -> None:
    """Complete and online, or absent without a trace."""
    context = member.controller.context
    nodes = await tree(member.store)
    traces = [path for path in nodes if path.endswith("/t") or "/t/" in path]
    if "t" not in context.all_topics:
        assert may_be_absent
        assert traces == []
        return
    assert context.topics_to_be_deleted == set()
    assert {context.partition_state(tp) for tp in context.partitions_for_topic("t")} == {
        PartitionStatus.ONLINE
    }
    assert len(context.partitions_for_topic("t")) == 2
    node = json.loads(nodes["/brokers/topics/t"] or b"")
    assert node["topic_id"]
    assert "/config/topics/t" in nodes


@pytest.mark.slow
@pytest.mark.parametrize("deletes", [False, True], ids=["creation", "deletion"])
@pytest.mark.parametrize("loss", ["keep", "drop", "torn-1", "torn-2", "torn-3"])
def test_a_kill_at_any_write_leaves_something_to_go_on_from(
    tmp_path: Path, loss: str, deletes: bool
) -> None:
    """14:SM-3: every write of a creation and of a deletion.

    What was not synced is there afterwards, or gone, or there in parts.
    """
    mode, _, seed = loss.partition("-")
    for point in count():
        directory = tmp_path / str(point)
        directory.mkdir()
        disk = SimDisk(directory)
        finished: list[bool] = []

        async def script(member: Member, disk: SimDisk = disk, point: int = point) -> None:
            if deletes:
                await create_topic(member)
            disk.crash_at(point)
            await (delete_topic if deletes else create_topic)(member)

        async def whole(
            directory: Path = directory, disk: SimDisk = disk, finished: list[bool] = finished
        ) -> None:
            await life(directory, disk, script)
            finished.append(True)

        with contextlib.suppress(SimulatedCrash, BaseExceptionGroup, ApiError, TimeoutError):
            asyncio.run(whole())
        if mode == "torn":
            disk.crash(Random(f"{seed}-{point}"), mode="torn")
        else:
            disk.crash(mode="keep" if mode == "keep" else "drop")
        asyncio.run(life(directory, disk, lambda member: check(member, may_be_absent=True)))
        # And whatever was found, the same request leads to the same end.
        asyncio.run(life(directory, disk, create_topic))
        asyncio.run(life(directory, disk, lambda member: check(member, may_be_absent=False)))
        if finished:
            assert point > 3
            break


def test_registration_waits_for_the_former_life(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        old = foreign(cluster)
        await old.create(broker_path(0), b"{}", ephemeral=True)
        member = Member(cluster, 0, cluster.engine.connect())
        registering = asyncio.ensure_future(member.port.register(broker(0)))
        await asyncio.sleep(0.01)
        assert not registering.done()
        await old.session.close()
        assert await registering == member.port.broker_epoch
        assert await member.port.register(broker(0)) == member.port.broker_epoch
        await member.store.session.close()

    run(tmp_path, scenario)
