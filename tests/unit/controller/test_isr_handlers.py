"""ISR changes that leaders request: accepted, refused, recognized."""

import asyncio
import uuid
from collections.abc import Mapping
from random import Random

import pytest

from odradek.controller.context import ControllerContext
from odradek.controller.isr_handlers import IsrHandlers
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.request_batch import OutgoingRequest, RequestBatch
from odradek.controller.stats import ControllerStats
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.metadata.ports import PartitionRecord, RegisteredBroker, TopicRecord
from odradek.metrics import MetricRegistry
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from odradek.testing import ManualClock
from tests.support.controllers import broker
from tests.support.persistences import VersionedPersistence

TP = TopicPartition("t", 0)
ID = uuid.UUID(int=1)
EPOCH = 5
LEADER = 1


class Scene:
    """Brokers 1 to 4, in epochs 11 to 14; a partition on the first three, led by the first."""

    def __init__(self) -> None:
        self.context = context = ControllerContext()
        context.controller_epoch = EPOCH
        context.add_live_brokers({b: RegisteredBroker(broker(b), 10 + b) for b in (1, 2, 3, 4)})
        context.put_topic(
            "t",
            TopicRecord(
                topic_id=ID,
                assignment={0: ReplicaAssignment((1, 2, 3))},
                version=0,
                incarnation=0,
            ),
        )
        self.nodes = VersionedPersistence()
        self.nodes.partitions[TP] = context.partition_leadership[TP] = PartitionRecord(
            LeaderAndIsr(leader=LEADER, leader_epoch=7, isr=(1, 2), partition_version=4), EPOCH
        )
        self.sent: list[OutgoingRequest] = []
        self.handlers = IsrHandlers(
            MachineDriver(
                context,
                self.nodes,
                new_batch=lambda: RequestBatch(
                    context, controller_id=1, leader_listener="PLAINTEXT"
                ),
                send=self.sent.extend,
                stats=ControllerStats(MetricRegistry(ManualClock(), Random(1))),
                unclean_default=lambda: False,
            )
        )

    def alter(
        self, *wanted: WantedIsr, broker_id: int = LEADER, epoch: int = 11
    ) -> list[IsrResult]:
        return asyncio.run(self.handlers.alter(broker_id, epoch, wanted))

    @property
    def stored(self) -> LeaderAndIsr:
        return self.nodes.partitions[TP].leader_and_isr


def wanted(
    isr: tuple[int, ...],
    *,
    leader_epoch: int = 7,
    version: int = 4,
    topic: str = "t",
    topic_id: uuid.UUID | None = None,
    partition: int = 0,
    broker_epochs: Mapping[int, int] | None = None,
) -> WantedIsr:
    return WantedIsr(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        leader_epoch=leader_epoch,
        isr=isr,
        partition_version=version,
        broker_epochs=broker_epochs or {},
    )


@pytest.mark.parametrize("isr", [(1,), (1, 2, 3)], ids=["shrunk", "expanded"])
@pytest.mark.parametrize("by_id", [False, True])
def test_an_isr_is_stored_and_announced_in_the_same_leader_epoch(
    isr: tuple[int, ...], by_id: bool
) -> None:
    """08:K-3: the controller stores it; the leader learns the version, all brokers the ISR."""
    scene = Scene()
    [result] = scene.alter(wanted(isr, topic="" if by_id else "t", topic_id=ID if by_id else None))
    after = LeaderAndIsr(leader=1, leader_epoch=7, isr=isr, partition_version=5)
    assert result == IsrResult(ErrorCode.NONE, after)
    assert scene.stored == scene.context.partition_leadership[TP].leader_and_isr == after
    assert [item.broker_id for item in scene.sent] == [1, 2, 3, 4]
    for _, request in scene.sent:
        assert isinstance(request, UpdateMetadataRequest)
        [topic] = request.topic_states
        assert [tuple(p.isr) for p in topic.partition_states] == [isr]


REFUSALS = {
    "another topic": (wanted((1,), topic="x"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "another partition": (wanted((1,), partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "another id": (
        wanted((1,), topic="", topic_id=uuid.UUID(int=9)),
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
    "an old leader": (wanted((1,), leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
    "15:KAFKA-14154, a leader we do not know yet": (
        wanted((1,), leader_epoch=8),
        ErrorCode.NOT_CONTROLLER,
    ),
    "an old version": (wanted((1,), version=3), ErrorCode.INVALID_UPDATE_VERSION),
    "15:KAFKA-14154, a version we do not know yet": (
        wanted((1,), version=5),
        ErrorCode.NOT_CONTROLLER,
    ),
    "a foreign replica": (wanted((1, 4)), ErrorCode.INVALID_REQUEST),
    "no leader in it": (wanted((2, 3)), ErrorCode.INVALID_REQUEST),
    "a member twice": (wanted((1, 3, 3)), ErrorCode.INVALID_REQUEST),
    "15:KAFKA-14154, a registration we do not know yet": (
        wanted((1, 2, 3), broker_epochs={1: 11, 2: 12, 3: 99}),
        ErrorCode.NOT_CONTROLLER,
    ),
    "a former life": (
        wanted((1, 2, 3), broker_epochs={1: 11, 2: 12, 3: 9}),
        ErrorCode.INELIGIBLE_REPLICA,
    ),
}


@pytest.mark.parametrize(("request_", "error"), REFUSALS.values(), ids=REFUSALS)
def test_a_wrong_isr_is_refused_without_effect(request_: WantedIsr, error: ErrorCode) -> None:
    scene = Scene()
    before = scene.stored
    assert scene.alter(request_) == [IsrResult(error)]
    assert (scene.stored, scene.sent) == (before, [])


def test_a_broker_of_another_life_does_not_join() -> None:
    """15:KAFKA-15221: it restarted after its last fetch, perhaps with an emptied disk."""
    scene = Scene()
    scene.context.remove_live_brokers([3])
    scene.context.add_live_brokers({3: RegisteredBroker(broker(3), 20)})
    stale = wanted((1, 2, 3), broker_epochs={3: 13})
    assert scene.alter(stale) == [IsrResult(ErrorCode.INELIGIBLE_REPLICA)]
    [result] = scene.alter(wanted((1, 2, 3), broker_epochs={3: 20}))
    assert result.error is ErrorCode.NONE


@pytest.mark.parametrize("is_dead", [False, True], ids=["shutting down", "dead"])
def test_a_broker_that_leaves_does_not_join(is_dead: bool) -> None:
    """15:KAFKA-13916: it was taken out for its shutdown, and must not return by its last fetch."""
    scene = Scene()
    if is_dead:
        scene.context.remove_live_brokers([3])
    else:
        scene.context.shutting_down_broker_ids.add(3)
    assert scene.alter(wanted((1, 2, 3))) == [IsrResult(ErrorCode.INELIGIBLE_REPLICA)]


def test_only_the_leader_asks() -> None:
    scene = Scene()
    assert scene.alter(wanted((1, 2, 3)), broker_id=2, epoch=12) == [
        IsrResult(ErrorCode.INVALID_REQUEST)
    ]


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 10), (1, 12), (9, 1)])
def test_a_request_of_another_registration_is_refused_as_a_whole(
    broker_id: int, epoch: int
) -> None:
    with pytest.raises(ApiError) as refusal:
        Scene().alter(wanted((1,)), broker_id=broker_id, epoch=epoch)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_whose_answer_was_lost_is_recognized() -> None:
    """05 section 10, In flight: the leader repeats it with the version it knows."""
    scene = Scene()
    first = scene.alter(wanted((1, 2, 3)))
    scene.sent.clear()
    assert scene.alter(wanted((1, 2, 3))) == first
    assert scene.sent == []


def test_each_partition_has_its_own_result() -> None:
    scene = Scene()
    results = scene.alter(wanted((1,)), wanted((1,), topic="x"), wanted((1, 2, 3)))
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,  # The same partition for the second time.
    ]


def test_a_state_that_another_hand_wrote_is_adopted() -> None:
    scene = Scene()
    other = PartitionRecord(
        LeaderAndIsr(leader=1, leader_epoch=7, isr=(1,), partition_version=6), EPOCH
    )
    scene.nodes.partitions[TP] = other
    assert scene.alter(wanted((1, 2, 3))) == [IsrResult(ErrorCode.INVALID_UPDATE_VERSION)]
    assert scene.context.partition_leadership[TP] == other
