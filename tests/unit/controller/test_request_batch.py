"""What a batch makes of a state change."""

import uuid

import pytest

from odradek.controller.context import ControllerContext
from odradek.controller.request_batch import (
    RequestBatch,
)
from odradek.errors import InvariantViolation
from odradek.metadata.ports import PartitionRecord, RegisteredBroker, TopicRecord
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.codec import encode_message
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.protocol.messages.stop_replica import StopReplicaRequest
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.support.controllers import broker

T0 = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=7)
RECORD = PartitionRecord(LeaderAndIsr(leader=1, leader_epoch=3, isr=(1, 2), partition_version=4), 5)


def make() -> tuple[ControllerContext, RequestBatch]:
    context = ControllerContext()
    context.add_live_brokers({b: RegisteredBroker(broker(b), b * 10) for b in (1, 2)})
    assignment = {0: ReplicaAssignment((1, 2, 3)), 1: ReplicaAssignment((1,))}
    context.put_topic(
        "t", TopicRecord(topic_id=TOPIC_ID, assignment=assignment, version=0, incarnation=0)
    )
    context.partition_leadership[T0] = RECORD
    return context, RequestBatch(context, controller_id=1, leader_listener="PLAINTEXT")


def test_new_stays_new() -> None:
    """03b:T2.1"""
    _, batch = make()
    batch.add_leader_and_isr([1], T0, RECORD, is_new=True)
    batch.add_leader_and_isr([1], T0, RECORD, is_new=False)
    request = batch.build(6)[0].request
    assert isinstance(request, LeaderAndIsrRequest)
    [topic] = request.topic_states
    [state] = topic.partition_states
    assert state.is_new
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 3, 4)
    assert (state.controller_epoch, request.controller_epoch, request.broker_epoch) == (5, 6, 10)
    assert (topic.topic_id, [b.port for b in request.live_leaders]) == (TOPIC_ID.bytes, [9093])
    encode_message(request, 7)


def test_leftovers_are_an_error() -> None:
    """03b:T2.2"""
    _, batch = make()
    batch.begin()
    batch.add_stop_replica([1], T0, deletes=False)
    with pytest.raises(InvariantViolation, match="StopReplica"):
        batch.begin()
    batch.clear()
    batch.begin()


def test_every_broker_hears_of_a_new_leader() -> None:
    """03b:T2.3"""
    _, batch = make()
    batch.add_leader_and_isr([2, -1], T0, RECORD, is_new=False)
    told = [(o.broker_id, type(o.request)) for o in batch.build(1)]
    assert told == [
        (2, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
    ]


def test_order_of_requests_and_dead_targets() -> None:
    """03b:T2.4: deletions and stops are two requests; broker 3 is dead."""
    _, batch = make()
    t1 = TopicPartition("t", 1)
    batch.add_stop_replica([1, 3], T0, deletes=True)
    batch.add_stop_replica([1], t1, deletes=False)
    batch.add_leader_and_isr([1, 3], T0, RECORD, is_new=False)
    built = batch.build(1)
    assert [(o.broker_id, type(o.request)) for o in built] == [
        (1, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (1, StopReplicaRequest),
        (1, StopReplicaRequest),
    ]
    stops = [o.request for o in built if isinstance(o.request, StopReplicaRequest)]
    states = [stop.topic_states[0].partition_states[0] for stop in stops]
    assert [(s.partition_index, s.delete_partition, s.leader_epoch) for s in states] == [
        (1, False, -1),
        (0, True, 3),
    ]
    encode_message(stops[0], 4)
    assert batch.is_empty


def test_partitions_on_their_way_out_are_announced_as_deleted() -> None:
    """03b:T2.5"""
    context, batch = make()
    context.queue_topic_deletion(["t"])
    batch.add_update_metadata([1], [T0])
    batch.add_stop_replica([1], T0, deletes=True)
    update, stop = (o.request for o in batch.build(1))
    assert isinstance(update, UpdateMetadataRequest)
    assert update.topic_states[0].partition_states[0].leader == -2
    assert isinstance(stop, StopReplicaRequest)
    assert stop.topic_states[0].partition_states[0].leader_epoch == -2


def test_a_partition_without_a_leader_is_left_out() -> None:
    """03b:T2.6: but the brokers are announced."""
    _, batch = make()
    batch.add_update_metadata([1], [TopicPartition("t", 1)])
    [(_, update)] = batch.build(1)
    assert isinstance(update, UpdateMetadataRequest)
    assert list(update.topic_states) == []
    assert [b.id for b in update.live_brokers] == [1, 2]


def test_offline_replicas_are_announced() -> None:
    context, batch = make()
    context.shutting_down_broker_ids.add(2)
    context.replicas_on_offline_dirs[1] = {T0}
    batch.add_update_metadata([1], [T0])
    [(_, update)] = batch.build(1)
    assert isinstance(update, UpdateMetadataRequest)
    [state] = update.topic_states[0].partition_states
    # 1: failed directory, 3: dead; 2 shuts down, but still serves.
    assert (list(state.offline_replicas), list(state.replicas)) == ([1, 3], [1, 2, 3])
    encode_message(update, 8)
