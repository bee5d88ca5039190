"""ISR changes on their way to the cluster (05 section 10, Persist and Propagate)."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.errors import ConnectionLost
from odradek.metadata.ports import (
    NO_EPOCHS,
    AlterIsrOutcome,
    IsrAltered,
    IsrConflict,
    IsrNotAsked,
    IsrOutcomeUnknown,
    IsrRefused,
)
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.replication import IsrUpdates, isr_updates
from odradek.replication.partition import ISR_RETRY_MS
from tests.support.kept_tasks import KeptTasks
from tests.support.logs import batch
from tests.support.replicas import MAX_LAG_MS, ReplicaFixture, tp


class FakePort:
    """Answers as scripted, and writes down what it was asked."""

    def __init__(self) -> None:
        self.outcomes: list[AlterIsrOutcome | Exception] = []
        self.asked: list[tuple[TopicPartition, LeaderAndIsr, int]] = []
        self.broker_epochs: Mapping[int, int] = NO_EPOCHS

    async def alter_isr(
        self,
        tp: TopicPartition,
        state: LeaderAndIsr,
        *,
        controller_epoch: int,
        broker_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> AlterIsrOutcome:
        self.asked.append((tp, state, controller_epoch))
        self.broker_epochs = broker_epochs
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Scene:
    """A leader whose follower is to be taken in or dropped."""

    def __init__(self, root: Path) -> None:
        self.fixture = ReplicaFixture(root)
        self.port = FakePort()
        tasks = KeptTasks()
        self.work = tasks.started
        self.announced: list[tuple[TopicPartition, ...]] = []
        self.announce_error: Exception | None = None
        self.sleeps = tasks.sleeps
        self.updates = IsrUpdates(
            self.fixture.replicas,
            self.port,  # type: ignore[arg-type]  # only what is asked of it
            clock=self.fixture.clock,
            tasks=tasks,
            announce=self._announce,
        )

    async def _announce(self, partitions: tuple[TopicPartition, ...]) -> None:
        if self.announce_error is not None:
            raise self.announce_error
        self.announced.append(partitions)

    def run(self) -> None:
        """Runs what was spawned to its end."""
        while self.work:
            asyncio.run(self.work.pop(0))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    with scene.fixture:
        yield scene


def test_a_follower_that_caught_up_is_taken_in(scene: Scene) -> None:
    partition = scene.fixture.lead(
        tp(), replicas=(1, 2), isr=(1,), controller_epoch=6, partition_version=3
    )
    scene.port.outcomes = [IsrAltered(4)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    [(asked, state, controller_epoch)] = scene.port.asked
    assert (asked, state.isr, state.partition_version, controller_epoch) == (tp(), (1, 2), 3, 6)
    assert (partition.isr, partition.partition_version) == ((1, 2), 4)
    assert len(scene.updates.notifications) == 1


@pytest.mark.parametrize(
    "unknown", [IsrOutcomeUnknown(), ConnectionLost("/brokers")], ids=["answer", "error"]
)
def test_an_unknown_outcome_is_asked_again(
    scene: Scene, unknown: AlterIsrOutcome | Exception
) -> None:
    """05 section 10, In flight: taking it for failed could lose acknowledged records."""
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [unknown, unknown, IsrAltered(2)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert len({state for _, state, _ in scene.port.asked}) == 1
    assert len(scene.port.asked) == 3
    assert scene.sleeps == [0.1, 0.1]
    assert partition.isr == (1, 2)


def test_asking_ends_when_the_controller_has_spoken(scene: Scene) -> None:
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [IsrAltered(9)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,), leader_epoch=1, partition_version=5)
    scene.run()
    assert scene.port.asked == []
    assert partition.partition_version == 5


def test_a_refusal_restores_the_old_isr(scene: Scene) -> None:
    """15:KAFKA-13916: the follower shuts down; the leader does not wait for it, and asks later."""
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [IsrRefused(), IsrAltered(2)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert (partition.isr, partition.isr_change) == ((1,), None)
    assert partition.maximal_isr == {1}
    scene.fixture.clock.advance(ISR_RETRY_MS)
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert partition.isr == (1, 2)


def test_a_refusal_after_an_unknown_outcome_proves_nothing(scene: Scene) -> None:
    """05 section 10, In flight: the first request may be on its way still, and be stored."""
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [IsrOutcomeUnknown(), IsrRefused(), IsrAltered(2)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert len(scene.port.asked) == 3
    assert partition.isr == (1, 2)


@pytest.mark.parametrize(
    ("before", "refusal"),
    [
        pytest.param(IsrOutcomeUnknown(), IsrRefused(is_by_registration=True), id="final"),
        pytest.param(IsrNotAsked(), IsrRefused(), id="never-asked-before"),
    ],
)
def test_a_refusal_ends_a_change_that_cannot_be_stored_any_more(
    scene: Scene, before: AlterIsrOutcome, refusal: AlterIsrOutcome
) -> None:
    """The controller stopped as the follower joined; the follower returns as another life.

    The change that names its former life would be refused for ever, and the follower never join.
    """
    # The registration of 3, which has not fetched from this leader, is not known to it.
    partition = scene.fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3))
    scene.port.outcomes = [before, before, refusal]
    scene.fixture.fetch_as(2, tp(), 0, broker_epoch=40)
    scene.run()
    assert partition.isr_change is None
    assert set(partition.maximal_isr) == {1, 3}
    scene.fixture.clock.advance(ISR_RETRY_MS)
    scene.port.outcomes = [IsrAltered(4)]
    scene.fixture.fetch_as(2, tp(), 0, broker_epoch=41)
    scene.run()
    assert (set(partition.isr), scene.port.broker_epochs) == ({1, 2, 3}, {2: 41})


def test_a_refusal_of_a_member_without_a_registration_proves_nothing(scene: Scene) -> None:
    """A follower of an older protocol: the first request may be stored when it has returned."""
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    refusal = IsrRefused(is_by_registration=True)
    scene.port.outcomes = [IsrOutcomeUnknown(), refusal, IsrAltered(2)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert partition.isr == (1, 2)


def test_a_refused_change_is_not_announced(scene: Scene) -> None:
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [IsrConflict()]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert partition.isr == (1,)
    assert len(scene.updates.notifications) == 0


def test_a_refused_follower_is_proposed_again_later(scene: Scene) -> None:
    """15:KAFKA-13916: it fetches on while it shuts down; the controller is not asked each time."""
    partition = scene.fixture.lead(tp(), replicas=(1, 2), isr=(1,))
    scene.port.outcomes = [IsrRefused()]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    scene.fixture.clock.advance(ISR_RETRY_MS - 1)
    scene.fixture.fetch_as(2, tp(), 0)
    assert scene.work == []
    scene.fixture.clock.advance(1)
    scene.port.outcomes = [IsrAltered(4)]
    scene.fixture.fetch_as(2, tp(), 0)
    scene.run()
    assert set(partition.isr) == {1, 2}


def test_epochs_of_the_members_are_passed_on(scene: Scene) -> None:
    """15:KAFKA-15221: the controller compares the epoch that the follower fetched with."""
    scene.fixture.lead(tp(), replicas=(1, 2, 3), isr=(1, 3))
    scene.port.outcomes = [IsrAltered(4)]
    scene.fixture.fetch_as(2, tp(), 0, broker_epoch=40)
    scene.run()
    assert scene.port.broker_epochs == {2: 40}


def test_the_periodic_check_drops_who_lags(scene: Scene) -> None:
    partition = scene.fixture.lead(tp(), replicas=(1, 2))
    scene.fixture.produce({tp(): batch(2)}, acks=1)
    scene.fixture.clock.advance(MAX_LAG_MS + 1)
    scene.port.outcomes = [IsrAltered(1)]
    asyncio.run(scene.updates.shrink())
    scene.run()
    assert partition.isr == (1,)
    assert scene.fixture.high_watermark(tp()) == 2


def test_the_periodic_check_lets_others_run(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """02 section 12: a broker may lead thousands of partitions."""
    monkeypatch.setattr(isr_updates, "_PARTITIONS_PER_TURN", 1)
    for number in range(3):
        partition = tp(partition=number)
        scene.fixture.lead(partition, replicas=(1, 2))
        scene.fixture.produce({partition: batch(1)}, acks=1)
    scene.fixture.clock.advance(MAX_LAG_MS + 1)
    turns = 0

    async def check() -> None:
        nonlocal turns
        checking = asyncio.create_task(scene.updates.shrink())
        while not checking.done():
            await asyncio.sleep(0)
            turns += 1

    asyncio.run(check())
    assert turns > 3
    assert len(scene.work) == 3
    scene.port.outcomes = [IsrAltered(1)] * 3
    scene.run()


def test_announcing(scene: Scene) -> None:
    scene.updates.notifications.record(tp(), scene.fixture.clock.monotonic_ms())
    scene.fixture.clock.advance(5_000)
    asyncio.run(scene.updates.announce_due())
    assert scene.announced == []
    scene.fixture.clock.advance(1)
    scene.announce_error = ConnectionLost("/isr_change_notification")
    asyncio.run(scene.updates.announce_due())
    assert len(scene.updates.notifications) == 1
    scene.announce_error = None
    asyncio.run(scene.updates.announce_due())
    assert scene.announced == [(tp(),)]
    assert len(scene.updates.notifications) == 0
