"""Folding committed changes into the context, apart from announcing them."""

import uuid

import pytest

from odradek.controller import partition_machine, replica_machine
from odradek.controller.context import ControllerContext, PartitionAndReplica, ReplicaStatus
from odradek.controller.election import Election
from odradek.controller.folding import apply_committed
from odradek.controller.request_batch import RequestBatch
from odradek.metadata.changes import (
    AssignmentChanged,
    Atomic,
    Change,
    ConfigSet,
    PartitionChanged,
    SingleChange,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.image import ConfigResource
from odradek.metadata.ports import Committed, RegisteredBroker, TopicRecord
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from tests.support.controllers import broker

T0 = TopicPartition("t", 0)
ID = uuid.UUID(int=1)
CREATED = TopicCreated(topic="t", topic_id=ID, assignment={0: ReplicaAssignment((1, 2))})
CHANGED = PartitionChanged(
    tp=T0,
    topic_id=ID,
    state=LeaderAndIsr(leader=1, leader_epoch=3, isr=(1, 2), partition_version=8),
    controller_epoch=5,
    is_first=False,
)


def contents(context: ControllerContext) -> dict[str, object]:
    return {name: repr(getattr(context, name)) for name in ControllerContext.__slots__}


def folded(*changes: Change) -> ControllerContext:
    context = ControllerContext()
    context.add_live_brokers({b: RegisteredBroker(broker(b), b) for b in (1, 2)})
    for version, change in enumerate(changes, 1):
        apply_committed(context, Committed(change, version))
    return context


@pytest.mark.parametrize(
    "change",
    [
        CREATED,
        CHANGED,
        AssignmentChanged(
            topic="t", topic_id=ID, assignment={0: ReplicaAssignment((2, 1))}, version=1
        ),
        TopicDeletionRequested("t"),
        TopicDeletionCancelled("t"),
        TopicRemoved("t", ID),
        ConfigSet(ConfigResource(ConfigResourceType.TOPIC, "t"), {"a": "b"}),
    ],
    ids=lambda change: type(change).__name__,
)
def test_folding_a_change_twice_is_folding_it_once(change: Change) -> None:
    context = folded(CREATED, CHANGED)
    apply_committed(context, Committed(change, 9))
    once = contents(context)
    apply_committed(context, Committed(change, 9))
    assert contents(context) == once


def test_a_group_is_folded_in_its_order() -> None:
    parts: tuple[SingleChange, ...] = (CREATED, CHANGED, TopicDeletionRequested("t"))
    context = folded(Atomic(parts))
    assert context.all_topics == context.topics_to_be_deleted == {"t"}
    assert context.partition_leadership[T0].leader_and_isr.partition_version == 1


def test_the_incarnation_stays_with_the_topic_it_is_of() -> None:
    context = folded(CREATED)
    assert context.topic_incarnations == {"t": None}
    context.put_topic(
        "t",
        TopicRecord(topic_id=ID, assignment=CREATED.assignment, version=1, incarnation=77),
    )
    moved = AssignmentChanged(topic="t", topic_id=ID, assignment=CREATED.assignment, version=1)
    apply_committed(context, Committed(moved, 2))
    assert (context.topic_incarnations, context.topic_versions) == ({"t": 77}, {"t": 2})
    other = AssignmentChanged(
        topic="t", topic_id=uuid.UUID(int=2), assignment=CREATED.assignment, version=2
    )
    apply_committed(context, Committed(other, 3))
    assert context.topic_incarnations == {"t": None}


def test_announcing_changes_nothing_and_folding_announces_nothing() -> None:
    context = folded(CREATED, CHANGED)
    batch = RequestBatch(context, controller_id=1, leader_listener="PLAINTEXT")
    assert batch.is_empty
    before = contents(context)
    replicas = [PartitionAndReplica(T0, 2)]

    partition_machine.announce_online(
        context, batch, {T0: Election(1, (1, 2), (1, 2))}, [Committed(CHANGED, 2)]
    )
    replica_machine.announce_moves(context, batch, replicas, ReplicaStatus.ONLINE)
    replica_machine.announce_stops(batch, replicas)
    replica_machine.announce_isr_removal(context, batch, 2, [T0])
    replica_machine.announce_without_state(context, batch, [T0])

    assert contents(context) == before
    names = [type(outgoing.request).__name__ for outgoing in batch.build(5)]
    assert names == [
        "LeaderAndIsrRequest",
        "LeaderAndIsrRequest",
        "UpdateMetadataRequest",
        "UpdateMetadataRequest",
        "StopReplicaRequest",
    ]
