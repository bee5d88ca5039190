"""The driver on a persistence shaped like the metadata quorum: all or nothing, no hints."""

import asyncio
import uuid
from random import Random

import pytest

from odradek.controller import (
    ControlChannel,
    Controller,
    ControllerConfig,
    LeaderBalanceConfig,
    LocalChannel,
    NewPartitions,
    NewTopic,
)
from odradek.controller.events import BrokerChange, ControllerActivity
from odradek.errors import ApiError, ConnectionLost, ControllerMoved, ErrorCode
from odradek.metadata.changes import (
    PartitionChanged,
    TopicCreated,
)
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import (
    Fence,
    Hint,
    HintKind,
    LeadershipLost,
    LeadershipWon,
    PartitionRecord,
    PersistenceEvent,
    RegisteredBroker,
)
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint, LeaderAndIsr, SecurityProtocol, TopicPartition
from odradek.protocol.enums import ElectionType
from odradek.testing import ManualClock
from tests.support.controllers import RecordingBroker, broker
from tests.support.persistences import QuorumPersistence

T0 = TopicPartition("t", 0)


class Setup:
    def __init__(self, config: ControllerConfig | None = None) -> None:
        self.quorum = QuorumPersistence()
        self.recorders = {b: RecordingBroker(b) for b in range(5)}
        self.clock = ManualClock()
        self.opened: list[Endpoint | None] = []
        self.pauses: list[float] = []
        self.time_passes = asyncio.Event()
        self.time_passes.set()
        self.controller = Controller(
            0,
            self.quorum,
            self._open,
            clock=self.clock,
            metrics=MetricRegistry(self.clock, Random(1)),
            random=Random(3),
            config=config,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.time_passes.wait()

    def _open(self, target: LiveBroker, endpoint: Endpoint | None) -> ControlChannel:
        self.opened.append(endpoint)
        return LocalChannel(self.recorders[target.id].handle)

    def register(self, *broker_ids: int, epoch: int = 1) -> None:
        for broker_id in broker_ids:
            self.quorum.brokers[broker_id] = RegisteredBroker(broker(broker_id), epoch)

    async def tell(self, event: PersistenceEvent) -> None:
        self.quorum.told.put_nowait(event)
        await self.settle()

    async def settle(self) -> None:
        quiet = 0
        while quiet < 20:
            await asyncio.sleep(0)
            controller = self.controller
            channels = controller._senders.channels
            senders = channels._senders.values() if channels else ()
            is_busy = (
                not self.quorum.told.empty()
                or controller._events.size
                or controller.state is not ControllerActivity.IDLE
                or any(sender.is_busy for sender in senders)
            )
            quiet = 0 if is_busy else quiet + 1


def test_an_event_that_meets_a_broken_link_is_handled_again() -> None:
    """The change it is about would be missed otherwise, until the next one."""

    async def main() -> None:
        setup = Setup()
        setup.register(0)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            setup.register(1)
            setup.quorum.failure = ConnectionLost("/brokers/ids")
            setup.time_passes.clear()
            await setup.tell(Hint(HintKind.BROKERS))
            assert controller.context.live_broker_ids == {0}
            assert setup.pauses == [0.1]
            setup.quorum.failure = None
            setup.time_passes.set()
            await setup.settle()
            assert controller.context.live_broker_ids == {0, 1}

    asyncio.run(main())


def test_the_same_script_runs_on_a_quorum() -> None:
    """14:SM-9: only the leader epoch after an ISR change differs."""

    async def main() -> None:
        setup = Setup()
        setup.register(0, 1)
        quorum = setup.quorum
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            topics = [
                NewTopic(name="t", assignment={0: [0, 1]}),
                NewTopic(name="u", partition_count=2),
                NewTopic(name="t"),
                NewTopic(name="u_"),
                NewTopic(name="u."),
            ]
            checked = await controller.create_topics(topics, validate_only=True)
            assert (quorum.commits, checked[0].topic_id) == ([], None)
            results = await controller.create_topics(topics)
            assert [r.error for r in results] == [r.error for r in checked]
            assert [r.error for r in results] == [
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.NONE,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ]
            assert [type(change) for change in quorum.commits] == [
                *[TopicCreated] * 3,
                *[PartitionChanged] * 4,
            ]
            assert len({result.topic_id for result in results}) == 4  # Three, and None.
            [grown] = await controller.create_partitions([NewPartitions(name="u", total_count=3)])
            assert grown.error is ErrorCode.NONE
            await setup.settle()
            # A follower dies: it leaves the ISR, and the leader stays.
            setup.recorders[0].take()
            del quorum.brokers[1]
            await setup.tell(Hint(HintKind.BROKERS))
            assert quorum.partitions[T0].leader_and_isr == LeaderAndIsr(
                leader=0, leader_epoch=0, isr=(0,), partition_version=1
            )
            assert setup.recorders[0].announced()[T0] == 0
            setup.register(1, epoch=2)
            await setup.tell(Hint(HintKind.BROKERS))
            outcome = await controller.elect_leaders([T0], ElectionType.PREFERRED)
            assert outcome[T0].error is ErrorCode.ELECTION_NOT_NEEDED
            await controller.delete_topics(["t", "u", "u_"])
            await setup.settle()
            assert (quorum.topics, quorum.partitions, quorum.deletions) == ({}, {}, set())
            assert controller.context.all_topics == set()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("control_plane", "expected_port"),
    [
        pytest.param("CONTROL", 9090, id="03a:C-17-control"),
        pytest.param(None, 9092, id="03a:C-17-inter-broker"),
        pytest.param("ELSEWHERE", None, id="03a:C-17-unknown"),
    ],
)
def test_where_the_controller_connects_to(
    control_plane: str | None, expected_port: int | None
) -> None:
    """03a:C-17: to its own listener if there is one, else where brokers reach each other."""

    async def main() -> None:
        config = ControllerConfig(
            inter_broker_listener="INTERNAL", control_plane_listener=control_plane
        )
        setup = Setup(config)
        ports = {"CLIENTS": 9091, "CONTROL": 9090, "INTERNAL": 9092}
        endpoints = tuple(
            Endpoint("h", port, name, SecurityProtocol.PLAINTEXT) for name, port in ports.items()
        )
        setup.quorum.brokers[1] = RegisteredBroker(LiveBroker(1, endpoints), 1)
        async with setup.controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            [endpoint] = setup.opened
            assert (endpoint and endpoint.port) == expected_port

    asyncio.run(main())


def test_a_deposed_controller_resigns_once() -> None:
    """03b:T1.6: the event that finds out fails with NOT_CONTROLLER, the next one, too."""

    async def main() -> None:
        setup = Setup()
        setup.register(0)
        resignations: list[bool] = []
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            assert controller.is_active
            resign = controller._leadership._on_resignation

            async def counted() -> None:
                resignations.append(True)
                await resign()

            controller._leadership._on_resignation = counted  # type: ignore[method-assign]  # counts calls
            setup.quorum.failure = ControllerMoved("a newer controller")
            for _ in range(2):
                with pytest.raises(ApiError) as refusal:
                    await controller.create_topics([NewTopic(name="t")])
                assert refusal.value.code is ErrorCode.NOT_CONTROLLER
            assert (controller.is_active, resignations) == (False, [True])
            controller._leadership._on_resignation = resign  # type: ignore[method-assign]  # as it was

    asyncio.run(main())


def test_channels_follow_the_brokers() -> None:
    """03b:T4.1: add 4, remove 2, add 2, remove 3, in this order."""

    async def main() -> None:
        setup = Setup()
        for broker_id, epoch in {1: 5, 2: 7, 3: 2}.items():
            setup.register(broker_id, epoch=epoch)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            channels = controller._senders.active()
            operations: list[tuple[str, int]] = []
            add, remove = channels.add_broker, channels.remove_broker

            def add_broker(broker: LiveBroker) -> None:
                operations.append(("add", broker.id))
                add(broker)

            async def remove_broker(broker_id: int) -> None:
                operations.append(("remove", broker_id))
                await remove(broker_id)

            channels.add_broker = add_broker  # type: ignore[method-assign]  # notes the order
            channels.remove_broker = remove_broker  # type: ignore[method-assign]  # as above
            del setup.quorum.brokers[3]
            setup.register(2, epoch=9)
            setup.register(4, epoch=1)
            await setup.tell(Hint(HintKind.BROKERS))
            assert operations == [("add", 4), ("remove", 2), ("add", 2), ("remove", 3)]
            assert controller.context.live_broker_epochs == {1: 5, 2: 9, 4: 1}

    asyncio.run(main())


def test_whoever_waits_is_answered_when_the_controller_stops() -> None:
    """03b §1.3: events that are preempted answer."""

    async def main() -> None:
        setup = Setup()
        setup.register(0)
        controller = setup.controller
        await controller.start()
        await setup.tell(LeadershipWon(1, Fence(1)))
        waiting = [
            asyncio.ensure_future(controller.elect_leaders([T0], ElectionType.PREFERRED)),
            asyncio.ensure_future(controller.elect_leaders(None, ElectionType.PREFERRED)),
        ]
        shutdown = asyncio.ensure_future(controller.controlled_shutdown(0, -1))
        creation = asyncio.ensure_future(controller.create_topics([NewTopic(name="t")]))
        await asyncio.sleep(0)
        controller._events.clear_and_put(BrokerChange())
        outcomes = [await answer for answer in waiting]
        assert outcomes[0][T0].error is ErrorCode.NOT_CONTROLLER
        assert outcomes[1] == {}
        with pytest.raises(ControllerMoved):
            await shutdown
        with pytest.raises(ApiError):
            await creation
        await controller.stop()
        await controller.stop()
        with pytest.raises(ApiError) as refusal:
            await controller.list_reassignments()
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(main())


def test_an_unexpected_failure_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        setup = Setup()
        setup.register(0)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            setup.quorum.failure = RuntimeError("planted")
            with pytest.raises(ApiError) as refusal:
                await controller.delete_topics(["t"]) and await controller.create_topics(
                    [NewTopic(name="t")]
                )
            assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            setup.quorum.failure = None
            assert controller.is_active
            [result] = await controller.create_topics([NewTopic(name="t")])
            assert result.error is ErrorCode.NONE

    asyncio.run(main())
    assert "planted" in caplog.text


def test_a_contradiction_in_its_own_books_makes_it_resign(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """03b §2.2: leftovers in the controller's own batch; the next controller starts clean."""

    async def main() -> None:
        setup = Setup()
        setup.register(0)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            controller._machines._own_batch.add_stop_replica([0], T0, deletes=False)
            setup.register(1)
            await setup.tell(Hint(HintKind.BROKERS))
            assert (controller.is_active, setup.quorum.resigned) == (False, 1)
            await setup.tell(LeadershipLost())
            await setup.tell(LeadershipWon(2, Fence(2)))
            assert controller.context.live_broker_ids == {0, 1}

    asyncio.run(main())
    assert "requests of the batch before were not sent" in caplog.text


def test_losing_leadership_clears_everything() -> None:
    async def main() -> None:
        setup = Setup()
        setup.register(0)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            await controller.create_topics([NewTopic(name="t")])
            controller.enable_unclean_election()
            controller.enable_unclean_election("t")
            await setup.tell(LeadershipLost())
            assert (controller.is_active, controller.context.all_topics) == (False, set())
            await setup.tell(LeadershipWon(2, Fence(2)))
            assert controller.context.all_topics == {"t"}
            assert controller.context.controller_epoch == 2
            assert setup.quorum.resigned == 0

    asyncio.run(main())


def test_leadership_goes_back_to_preferred_replicas_by_itself() -> None:
    async def main() -> None:
        balance = LeaderBalanceConfig(imbalance_percentage=0)
        setup = Setup(ControllerConfig(leader_balance=balance))
        setup.register(0, 1)
        topic_id = uuid.UUID(int=1)
        async with setup.controller as controller:
            await setup.tell(LeadershipWon(1, Fence(1)))
            [result] = await controller.create_topics([NewTopic(name="t", assignment={0: [1, 0]})])
            assert result.topic_id not in (None, topic_id)
            astray = LeaderAndIsr(leader=0, leader_epoch=4, isr=(0, 1), partition_version=0)
            controller.context.partition_leadership[T0] = PartitionRecord(astray, 1)
            setup.quorum.partitions[T0] = PartitionRecord(astray, 1)
            timer = controller._leadership._rebalance_timer
            assert timer is not None
            timer._callback(*timer._args)  # type: ignore[attr-defined]  # its time has come
            await setup.settle()
            assert setup.quorum.partitions[T0].leader_and_isr.leader == 1
            assert controller._leadership._rebalance_timer is not timer
            timer.cancel()

    asyncio.run(main())
