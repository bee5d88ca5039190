"""The controller's context: counting, membership, derived questions."""

import uuid
from random import Random

import pytest

from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.stats import ControllerStats
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import PartitionRecord, RegisteredBroker, TopicRecord
from odradek.metrics import MetricRegistry
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.testing import ManualClock
from tests.support.controllers import broker

T0, T1 = TopicPartition("t0", 0), TopicPartition("t0", 1)
U0 = TopicPartition("t1", 0)


def record(**partitions: list[int]) -> TopicRecord:
    assignment = {int(p[1:]): ReplicaAssignment(tuple(r)) for p, r in partitions.items()}
    return TopicRecord(topic_id=uuid.uuid4(), assignment=assignment, version=0, incarnation=5)


def filled() -> ControllerContext:
    context = ControllerContext()
    context.put_topic("t0", record(p0=[1, 2], p1=[2, 3]))
    context.put_topic("t1", record(p0=[1]))
    return context


def test_a_new_context_is_empty() -> None:
    """03a:C-1: all fields but the first, the statistics, which belong to the driver."""
    context = ControllerContext()
    values = {name.lstrip("_"): getattr(context, name) for name in ControllerContext.__slots__}
    assert len(values) == 16 + 3  # The other 16 fields; ids, versions and incarnations of topics.
    assert not any(values.values())


def test_new_statistics_are_zero() -> None:
    """03a:C-1: field 1."""
    stats = ControllerStats(MetricRegistry(ManualClock(), Random(1)))
    assert stats.unclean_leader_elections.count == 0
    assert {timer.events.count for timer in stats.timers.values()} == {0}


@pytest.mark.parametrize(
    ("is_deleted", "counts"),
    [
        pytest.param(False, [0, 1, 1, 0], id="03a:C-2"),
        pytest.param(True, [0, 0, 0, 0], id="03a:C-3"),
    ],
)
def test_offline_partitions_are_counted(is_deleted: bool, counts: list[int]) -> None:
    """03b:T8.6"""
    context = filled()
    if is_deleted:
        context.queue_topic_deletion(["t0"])
        context.begin_topic_deletion(["t0"])
    seen = []
    for state in (
        PartitionStatus.ONLINE,
        PartitionStatus.OFFLINE,
        PartitionStatus.OFFLINE,
        PartitionStatus.ONLINE,
    ):
        context.put_partition_state(T0, state)
        seen.append(context.offline_partition_count)
    assert seen == counts


def test_an_offline_partition_that_is_forgotten_is_not_counted_for_ever() -> None:
    context = filled()
    context.put_partition_state_if_not_exists(T0, PartitionStatus.OFFLINE)
    context.put_partition_state_if_not_exists(T0, PartitionStatus.ONLINE)
    assert context.offline_partition_count == 1
    context.remove_topic("t0")
    assert context.offline_partition_count == 0


def test_brokers_that_shut_down_get_no_work_but_requests() -> None:
    """03a:C-4"""
    context = ControllerContext()
    context.add_live_brokers({b: RegisteredBroker(broker(b), b * 10) for b in (1, 2, 3)})
    context.shutting_down_broker_ids.add(2)
    assert context.live_broker_ids == {1, 3}
    assert context.live_or_shutting_down_broker_ids == {1, 2, 3}
    assert not context.is_replica_online(2, T0)
    assert context.is_replica_online(2, T0, include_shutting_down=True)
    context.replicas_on_offline_dirs[1] = {T0}
    assert not context.is_replica_online(1, T0)
    assert context.is_replica_online(1, T1)
    context.remove_live_brokers([1, 9])
    assert not context.is_replica_online(1, T1)


def test_derived_questions() -> None:
    """03a:C-5"""
    context = filled()
    assert context.partitions_on_broker(2) == {T0, T1}
    assert context.partitions_for_topic("t1") == [U0]
    assert context.partitions_for_topic("x") == []
    assert context.replicas_on_brokers({1}) == {
        PartitionAndReplica(T0, 1),
        PartitionAndReplica(U0, 1),
    }
    assert list(context.all_partitions()) == [T0, T1, U0]
    assert context.partition_replica_assignment(TopicPartition("x", 0)) == ()
    assert context.are_all_replicas_in_state("x", ReplicaStatus.ONLINE)  # Vacuously.
    assert not context.is_any_replica_in_state("t0", ReplicaStatus.ONLINE)
    context.replica_states[PartitionAndReplica(T0, 1)] = ReplicaStatus.ONLINE
    assert context.replicas_in_state("t0", ReplicaStatus.ONLINE) == [PartitionAndReplica(T0, 1)]
    assert context.partitions_in_states([PartitionStatus.NON_EXISTENT], "t0") == [T0, T1]


def test_a_removed_topic_is_gone_from_all_maps() -> None:
    """03a:C-6 (the part of the context), 03a:E-3"""
    context = filled()
    state = LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,))
    context.partition_leadership[T0] = PartitionRecord(state, 1)
    context.put_partition_state(T0, PartitionStatus.ONLINE)
    context.replica_states[PartitionAndReplica(T0, 1)] = ReplicaStatus.ONLINE
    context.replicas_on_offline_dirs[2] = {T0, U0}
    context.queue_topic_deletion(["t0"])
    context.remove_topic("t0")
    assert context.all_topics == {"t1"}
    assert (context.partition_leadership, context.partition_states, context.replica_states) == (
        {},
        {},
        {},
    )
    assert context.replicas_on_offline_dirs == {2: {U0}}
    assert set(context.topic_ids) == set(context.topic_versions) == {"t1"}
    assert context.topics_to_be_deleted == set()


def test_other_endpoints_keep_the_epoch() -> None:
    """03a:C-8, 03a:E-1"""
    context = ControllerContext()
    old, new = broker(1), broker(1, port=1234)
    context.add_live_brokers({1: RegisteredBroker(old, 10)})
    context.update_broker_metadata(old, new)
    assert context.live_or_shutting_down_brokers == [new]
    assert context.live_broker_epochs == {1: 10}


def test_reassignment_of_replicas() -> None:
    """03a:C-11"""
    moved = ReplicaAssignment((1, 2, 3)).reassign_to((2, 3, 4))
    assert moved == ReplicaAssignment((2, 3, 4, 1), adding=(4,), removing=(1,))
    context = ControllerContext()
    context.put_topic(
        "t0", TopicRecord(topic_id=uuid.uuid4(), assignment={0: moved}, version=0, incarnation=1)
    )
    assert context.partitions_being_reassigned == {T0}


def test_deletion_starts_only_for_queued_topics() -> None:
    context = filled()
    context.queue_topic_deletion(["t0"])
    assert context.is_topic_eligible_for_deletion("t0")
    context.topics_ineligible_for_deletion.add("t0")
    assert not context.is_topic_eligible_for_deletion("t0")
    with pytest.raises(AssertionError):
        context.begin_topic_deletion(["t1"])


def test_a_broker_has_a_listener_once() -> None:
    endpoint = broker(1).endpoints[0]
    with pytest.raises(ApiError) as twice:
        LiveBroker(1, (endpoint, endpoint))
    assert twice.value.code is ErrorCode.INVALID_REQUEST
