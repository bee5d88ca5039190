"""Both machines: every pair of states, and their way through decide, commit and apply."""

import asyncio
import itertools
import uuid
from random import Random

import pytest

from odradek.controller import partition_machine, replica_machine
from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.election import Strategy
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.partition_machine import StateChangeFailed
from odradek.controller.request_batch import OutgoingRequest, RequestBatch
from odradek.controller.stats import ControllerStats
from odradek.errors import ControllerMoved, InvariantViolation
from odradek.metadata.ports import (
    PartitionRecord,
    RegisteredBroker,
    TopicRecord,
)
from odradek.metrics import MetricRegistry
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.testing import ManualClock
from tests.support.controllers import broker
from tests.support.persistences import VersionedPersistence

P = [TopicPartition("t", partition) for partition in range(3)]
EPOCH = 5


class Setup:
    """Brokers 1 to 3, a topic with three partitions on all of them."""

    def __init__(self, *, unclean_default: bool = False) -> None:
        self.context = context = ControllerContext()
        context.controller_epoch = EPOCH
        context.add_live_brokers({b: RegisteredBroker(broker(b), b) for b in (1, 2, 3)})
        assignment = {tp.partition: ReplicaAssignment((1, 2, 3)) for tp in P}
        context.put_topic(
            "t",
            TopicRecord(topic_id=uuid.UUID(int=1), assignment=assignment, version=0, incarnation=0),
        )
        self.nodes = VersionedPersistence()
        self.sent: list[OutgoingRequest] = []
        metrics = MetricRegistry(ManualClock(), Random(1))
        self.stats = ControllerStats(metrics)
        self.changes = MachineDriver(
            context,
            self.nodes,
            new_batch=lambda: RequestBatch(context, controller_id=1, leader_listener="PLAINTEXT"),
            send=self.sent.extend,
            stats=self.stats,
            unclean_default=lambda: unclean_default,
        )

    def put(
        self, tp: TopicPartition, leader: int, isr: list[int], *, epoch: int = 1, version: int = 0
    ) -> None:
        """A partition as the store holds it and the controller knows it."""
        state = LeaderAndIsr(
            leader=leader, leader_epoch=epoch, isr=tuple(isr), partition_version=version
        )
        self.nodes.partitions[tp] = self.context.partition_leadership[tp] = PartitionRecord(
            state, EPOCH
        )
        self.context.put_partition_state(tp, PartitionStatus.ONLINE)
        for replica in (1, 2, 3):
            self.context.replica_states[PartitionAndReplica(tp, replica)] = ReplicaStatus.ONLINE

    def lose(self, *broker_ids: int) -> None:
        self.context.remove_live_brokers(broker_ids)

    def stored(self, tp: TopicPartition) -> LeaderAndIsr:
        return self.nodes.partitions[tp].leader_and_isr

    def led(self) -> list[tuple[int, TopicPartition]]:
        """(broker, partition) of all LeaderAndIsr requests."""
        return [
            (o.broker_id, TopicPartition(topic.topic_name, p.partition_index))
            for o in self.sent
            if isinstance(o.request, LeaderAndIsrRequest)
            for topic in o.request.topic_states
            for p in topic.partition_states
        ]


@pytest.mark.parametrize(
    ("current", "target"), list(itertools.product(PartitionStatus, PartitionStatus))
)
def test_every_pair_of_partition_states(current: PartitionStatus, target: PartitionStatus) -> None:
    """03b:T8.1"""
    new, online, offline, gone = PartitionStatus
    legal = {
        (gone, new),
        (new, online),
        (online, online),
        (offline, online),
        (new, offline),
        (online, offline),
        (offline, offline),
        (offline, gone),
    }
    context = ControllerContext()
    context.partition_states[P[0]] = current
    split = partition_machine.split_partitions(context, P[:1], target)
    assert bool(split.valid) == ((current, target) in legal)
    if split.valid:
        partition_machine.move_partition(context, P[0], target)
        assert context.partition_state(P[0]) is target
    else:
        with pytest.raises(InvariantViolation, match=f"{current.name} to {target.name}"):
            partition_machine.move_partition(context, P[0], target)


@pytest.mark.parametrize(
    ("current", "target"), list(itertools.product(ReplicaStatus, ReplicaStatus))
)
def test_every_pair_of_replica_states(current: ReplicaStatus, target: ReplicaStatus) -> None:
    """03b:T7.2"""
    new, online, offline, started, done, ineligible, gone = ReplicaStatus
    legal = {
        (gone, new),
        *((state, online) for state in (new, online, offline, ineligible)),
        *((state, offline) for state in (new, online, offline, ineligible)),
        (offline, started),
        (started, done),
        (offline, ineligible),
        (started, ineligible),
        (done, gone),
    }
    replica = PartitionAndReplica(P[0], 1)
    context = ControllerContext()
    context.replica_states[replica] = current
    split = replica_machine.split_replicas(context, [replica], target)
    assert bool(split.valid) == ((current, target) in legal)
    if split.valid:
        replica_machine.move_replica(context, replica, target)
        assert context.replica_state(replica) is target
    else:
        with pytest.raises(InvariantViolation, match=f"{current.name} to {target.name}"):
            replica_machine.move_replica(context, replica, target)


def test_replicas_are_grouped_by_broker() -> None:
    """03b:T7.1"""
    p0, p1 = TopicPartition("test", 0), TopicPartition("test", 1)
    replicas = [PartitionAndReplica(tp, b) for tp in (p0, p1) for b in (0, 1)]
    assert replica_machine.by_broker(replicas) == {
        0: [PartitionAndReplica(p0, 0), PartitionAndReplica(p1, 0)],
        1: [PartitionAndReplica(p0, 1), PartitionAndReplica(p1, 1)],
    }


def test_a_leader_that_goes_offline_leaves_the_isr() -> None:
    """03b:T7.3"""

    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1, 2, 3])
        await setup.changes.move_replicas([PartitionAndReplica(P[0], 1)], ReplicaStatus.OFFLINE)
        assert setup.stored(P[0]) == LeaderAndIsr(
            leader=-1, leader_epoch=2, isr=(2, 3), partition_version=1
        )
        assert setup.led() == [(2, P[0]), (3, P[0])]
        assert setup.sent[-1].broker_id == 1  # StopReplica comes last.

    asyncio.run(main())


def test_the_last_member_stays_in_the_isr() -> None:
    """03b:T7.4"""

    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1])
        await setup.changes.move_replicas([PartitionAndReplica(P[0], 1)], ReplicaStatus.OFFLINE)
        assert setup.stored(P[0]) == LeaderAndIsr(
            leader=-1, leader_epoch=2, isr=(1,), partition_version=1
        )

    asyncio.run(main())


def test_a_concurrent_isr_change_is_merged() -> None:
    """03b:T7.5"""

    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1, 2, 3])
        # The leader has dropped 3 meanwhile.
        state = LeaderAndIsr(leader=1, leader_epoch=1, isr=(1, 2), partition_version=4)
        setup.nodes.partitions[P[0]] = PartitionRecord(state, EPOCH)
        await setup.changes.move_replicas([PartitionAndReplica(P[0], 2)], ReplicaStatus.OFFLINE)
        assert setup.stored(P[0]) == LeaderAndIsr(
            leader=1, leader_epoch=2, isr=(1,), partition_version=5
        )
        assert setup.nodes.commits == [[P[0]], [P[0]]]
        state_of = setup.context.replica_state
        assert state_of(PartitionAndReplica(P[0], 2)) is ReplicaStatus.OFFLINE

    asyncio.run(main())


def test_an_election_without_strategy_fails_for_all() -> None:
    """03b:T8.2: and leaves no requests behind."""

    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1, 2])
        setup.context.put_partition_state(P[1], PartitionStatus.NEW)
        results = await setup.changes.move_partitions(P[:2], PartitionStatus.ONLINE)
        assert sorted(results) == P[:2]
        assert all(isinstance(result, ValueError) for result in results.values())
        assert (setup.nodes.commits, setup.sent) == ([], [])
        await setup.changes.move_partitions(P[:1], PartitionStatus.ONLINE, Strategy.OFFLINE)

    asyncio.run(main())


def test_a_newer_controller_is_not_overwritten() -> None:
    """03b:T8.3"""

    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1, 2])
        newer = LeaderAndIsr(leader=2, leader_epoch=9, isr=(2,), partition_version=7)
        setup.nodes.partitions[P[0]] = PartitionRecord(newer, EPOCH + 1)
        for strategy in (Strategy.OFFLINE, Strategy.PREFERRED):
            results = await setup.changes.move_partitions(P[:1], PartitionStatus.ONLINE, strategy)
            assert isinstance(results[P[0]], StateChangeFailed)
        assert setup.stored(P[0]) == newer
        assert setup.led() == []
        # Nor where there is nothing to write because nobody could lead.
        setup.lose(1, 2)
        results = await setup.changes.move_partitions(
            P[:1], PartitionStatus.ONLINE, Strategy.OFFLINE
        )
        assert isinstance(results[P[0]], StateChangeFailed)

    asyncio.run(main())


def test_only_the_conflict_is_decided_again() -> None:
    """03b:T8.4, 14:SM-4: two are committed and announced, one is read and decided again."""

    async def main() -> None:
        setup = Setup()
        for tp in P:
            setup.put(tp, 1, [1, 2, 3])
        changed = LeaderAndIsr(leader=1, leader_epoch=1, isr=(1, 3), partition_version=1)
        setup.nodes.partitions[P[1]] = PartitionRecord(changed, EPOCH)
        setup.lose(1)
        results = await setup.changes.move_partitions(P, PartitionStatus.ONLINE, Strategy.OFFLINE)
        assert setup.nodes.commits == [P, [P[1]]]
        leaders = {tp: r.leader for tp, r in results.items() if isinstance(r, LeaderAndIsr)}
        assert leaders == {P[0]: 2, P[1]: 3, P[2]: 2}  # 2 had left the ISR of P1.
        assert setup.stored(P[1]) == LeaderAndIsr(
            leader=3, leader_epoch=2, isr=(3,), partition_version=2
        )
        assert {tp for _, tp in setup.led()} == set(P)

    asyncio.run(main())


def test_a_wider_isr_is_found_before_giving_up() -> None:
    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1])
        wider = LeaderAndIsr(leader=1, leader_epoch=1, isr=(1, 2), partition_version=1)
        setup.nodes.partitions[P[0]] = PartitionRecord(wider, EPOCH)
        setup.lose(1)
        results = await setup.changes.move_partitions(
            P[:1], PartitionStatus.ONLINE, Strategy.OFFLINE
        )
        assert isinstance(results[P[0]], LeaderAndIsr)
        assert setup.stored(P[0]).leader == 2

    asyncio.run(main())


def test_a_first_state_that_exists_leaves_the_partition_new() -> None:
    async def main() -> None:
        setup = Setup()
        setup.nodes.partitions[P[0]] = PartitionRecord(
            LeaderAndIsr(leader=1, leader_epoch=0, isr=(1,)), EPOCH
        )
        await setup.changes.move_partitions(P[:1], PartitionStatus.NEW)
        results = await setup.changes.move_partitions(
            P[:1], PartitionStatus.ONLINE, Strategy.OFFLINE
        )
        assert results == {}  # Initialisations are not elections.
        assert setup.context.partition_state(P[0]) is PartitionStatus.NEW

    asyncio.run(main())


@pytest.mark.parametrize(
    ("default", "override", "leader"),
    [(False, None, None), (True, None, 2), (False, "true", 2), (True, "false", None)],
)
def test_unclean_elections_need_permission(
    default: bool, override: str | None, leader: int | None
) -> None:
    """03b:E2, 03b:E3 by configuration; the meter counts those that happened."""

    async def main() -> None:
        setup = Setup(unclean_default=default)
        configs = {} if override is None else {"unclean.leader.election.enable": override}
        setup.nodes.configs = {"t": configs}
        setup.put(P[0], 1, [1])
        setup.lose(1)
        await setup.changes.move_partitions(P[:1], PartitionStatus.OFFLINE)
        await setup.changes.trigger_online()
        assert setup.stored(P[0]).leader == (leader or 1)
        assert setup.stats.unclean_leader_elections.count == (leader is not None)
        # Unreadable configuration: no leader rather than one that loses records.
        setup.nodes.configs = {}
        setup.put(P[1], 1, [1])
        await setup.changes.move_partitions(P[1:2], PartitionStatus.OFFLINE)
        await setup.changes.trigger_online("t")
        assert setup.stored(P[1]).leader == 1

    asyncio.run(main())


def test_a_new_replica_cannot_be_one_that_leads(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1])
        for replica in (1, 2):
            del setup.context.replica_states[PartitionAndReplica(P[0], replica)]
        await setup.changes.move_replicas(
            [PartitionAndReplica(P[0], b) for b in (1, 2)], ReplicaStatus.NEW
        )
        assert setup.led() == [(2, P[0])]
        states = setup.context.replica_states
        assert PartitionAndReplica(P[0], 1) not in states
        assert states[PartitionAndReplica(P[0], 2)] is ReplicaStatus.NEW

    asyncio.run(main())
    assert "cannot be NEW while it is to lead" in caplog.text


def test_illegal_transitions_are_reported_and_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1])
        await setup.changes.move_partitions(P[:1], PartitionStatus.NON_EXISTENT)
        await setup.changes.move_replicas(
            [PartitionAndReplica(P[0], 1)], ReplicaStatus.DELETION_STARTED
        )
        assert setup.context.partition_state(P[0]) is PartitionStatus.ONLINE

    asyncio.run(main())
    assert "partition t-0 cannot go from ONLINE to NON_EXISTENT" in caplog.text
    assert "replica t-0 on 1 cannot go from ONLINE to DELETION_STARTED" in caplog.text


def test_a_deposed_controller_hears_of_it() -> None:
    async def main() -> None:
        setup = Setup()
        setup.put(P[0], 1, [1, 2])
        setup.nodes.is_deposed = True
        with pytest.raises(ControllerMoved):
            await setup.changes.move_partitions(P[:1], PartitionStatus.ONLINE, Strategy.OFFLINE)
        with pytest.raises(ControllerMoved):
            await setup.changes.move_replicas([PartitionAndReplica(P[0], 2)], ReplicaStatus.OFFLINE)
        assert setup.sent == []

    asyncio.run(main())


def test_the_quorum_raises_the_leader_epoch_for_leaders_only() -> None:
    """14:SM-9: the policy is the engine's."""
    setup = Setup()
    setup.put(P[0], 1, [1, 2])
    decided = {
        (raises, broker_id): replica_machine.decide_isr_removal(
            setup.context, broker_id, P[:1], raises_leader_epoch=raises
        )
        .changes[0]
        .state.leader_epoch
        for raises in (True, False)
        for broker_id in (1, 2)
    }
    assert decided == {(True, 1): 2, (True, 2): 2, (False, 1): 2, (False, 2): 1}
