"""What every engine owes the controller (14 sections 15.1 and 15.2), run over each, and the fakes.

An engine joins by an entry in ENGINES: a persistence, and a way to have it win leadership.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.controller.context import ControllerContext
from odradek.controller.folding import apply_committed
from odradek.coordination import CoordinationStore, EmbeddedEngine
from odradek.errors import ControllerMoved
from odradek.metadata.changes import (
    AssignmentChanged,
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.ports import (
    CommitOutcome,
    Committed,
    Conflict,
    FailedChange,
    Fence,
    Hint,
    HintKind,
    LeadershipLost,
    LeadershipWon,
    MetadataPersistence,
    PartitionRecord,
    PersistenceEvent,
    TopicRecord,
)
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.persistence import StorePersistence
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.testing import ManualClock
from tests.support.persistences import QuorumPersistence, VersionedPersistence
from tests.support.zookeeper_sessions import fresh_store

T0, T1 = (TopicPartition("t", partition) for partition in range(2))
ID = uuid.UUID(int=7)


class Engine(NamedTuple):
    persistence: MetadataPersistence
    elect: Callable[[], object]  # Lets this broker win, once its events are iterated.


@asynccontextmanager
async def versioned(_request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    fake = VersionedPersistence()
    yield Engine(fake, fake.elect)


@asynccontextmanager
async def quorum(_request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    fake = QuorumPersistence()
    yield Engine(fake, fake.elect)


@asynccontextmanager
async def over_the_embedded_store(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    directory: Path = request.getfixturevalue("tmp_path")
    async with EmbeddedEngine(str(directory)) as embedded:
        yield await over(embedded.connect())


@asynccontextmanager
async def over_zookeeper(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    async with fresh_store(request.getfixturevalue("zookeeper")) as store:
        yield await over(store)


async def over(store: CoordinationStore) -> Engine:
    await create_parents(store)
    sleep = asyncio.sleep
    persistence = StorePersistence(store, 0, clock=ManualClock(), sleep=lambda _seconds: sleep(0))
    return Engine(persistence, lambda: None)  # It is the only broker.


ENGINES = {
    "fake-store": versioned,
    "fake-quorum": quorum,
    "store-embedded": over_the_embedded_store,
    "store-zookeeper": over_zookeeper,
}
# Engines that compare each change with what is stored. The quorum's leader knows what is stored.
WITH_CONFLICTS = ["fake-store", "store-embedded", "store-zookeeper"]


class Controller:
    """A leader, and a context that its commits were folded into."""

    def __init__(self, engine: Engine, won: LeadershipWon, events: AsyncIterator[PersistenceEvent]):
        self.persistence = engine.persistence
        self.elect = engine.elect
        self.won = won
        self.events = events
        self.context = ControllerContext()

    async def commit(self, *changes: Change) -> CommitOutcome:
        outcome = await self.persistence.commit(changes, self.won.fence)
        for committed in outcome.committed:
            apply_committed(self.context, committed)
        outcomes: list[Committed | Conflict | FailedChange] = [
            *outcome.committed,
            *outcome.conflicts,
            *outcome.failed,
        ]
        assert sorted(map(id, changes)) == sorted(id(outcome.change) for outcome in outcomes)
        return outcome

    async def version_of(self, *changes: Change) -> int:
        """Commits; the version of the last change for the next one."""
        outcome = await self.commit(*changes)
        assert [committed.change for committed in outcome.committed] == list(changes)
        return outcome.committed[-1].version


Scenario = Callable[[Controller], Awaitable[None]]
Run = Callable[[Scenario], None]


def run_on(name: str, request: pytest.FixtureRequest, scenario: Scenario) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), ENGINES[name](request) as engine:
            events = engine.persistence.events()
            assert isinstance(events, AsyncGenerator)
            async with aclosing(events):
                engine.elect()
                won = await anext(events)
                assert isinstance(won, LeadershipWon)
                await scenario(Controller(engine, won, events))

    asyncio.run(main())


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest) -> Run:
    return lambda scenario: run_on(request.param, request, scenario)


def created(*replicas: int) -> TopicCreated:
    return TopicCreated(topic="t", topic_id=ID, assignment={0: ReplicaAssignment(replicas or (1,))})


def changed(
    tp: TopicPartition, leader: int, *, version: int | None, leader_epoch: int = 0
) -> PartitionChanged:
    """A first state where the version is None."""
    state = LeaderAndIsr(
        leader=leader, leader_epoch=leader_epoch, isr=(leader,), partition_version=version or 0
    )
    return PartitionChanged(
        tp=tp, topic_id=ID, state=state, controller_epoch=1, is_first=version is None
    )


def test_leadership_is_won_again_with_a_higher_epoch(run: Run) -> None:
    async def scenario(controller: Controller) -> None:
        await controller.persistence.resign(controller.won.fence)
        controller.elect()
        event = await anext(controller.events)
        if isinstance(event, LeadershipLost):
            event = await anext(controller.events)
        assert isinstance(event, LeadershipWon)
        assert event.controller_epoch > controller.won.controller_epoch
        assert event.fence != controller.won.fence

    run(scenario)


def test_a_topic_is_loaded_as_it_was_committed(run: Run) -> None:
    async def scenario(controller: Controller) -> None:
        version = await controller.version_of(created(1, 2))
        for hint in (None, Hint(HintKind.TOPICS), Hint(HintKind.TOPIC, topic="t")):
            record = (await controller.persistence.load(hint)).topics["t"]
            assert (record.topic_id, record.version) == (ID, version)
            assert record.assignment == {0: ReplicaAssignment((1, 2))}

    run(scenario)


def test_a_partition_is_loaded_as_it_was_committed(run: Run) -> None:
    async def scenario(controller: Controller) -> None:
        await controller.commit(created(1, 2))
        hint = Hint(HintKind.PARTITION, None, "t", 0)
        assert T0 not in (await controller.persistence.load(hint)).partitions
        first = await controller.version_of(changed(T0, 1, version=None))
        second = await controller.version_of(changed(T0, 2, version=first, leader_epoch=1))
        assert second != first
        expected = PartitionRecord(
            LeaderAndIsr(leader=2, leader_epoch=1, isr=(2,), partition_version=second), 1
        )
        assert (await controller.persistence.load(hint)).partitions[T0] == expected
        assert (await controller.persistence.load()).partitions == {T0: expected}

    run(scenario)


def test_marks_come_and_go_and_a_removed_topic_leaves_nothing(run: Run) -> None:
    async def scenario(controller: Controller) -> None:
        await controller.commit(created(), changed(T0, 1, version=None))
        await controller.commit(TopicDeletionRequested("t"))
        await controller.commit(TopicDeletionRequested("t"))
        assert (await controller.persistence.load(Hint(HintKind.DELETIONS))).deletions == {"t"}
        await controller.commit(TopicDeletionCancelled("t"))
        assert (await controller.persistence.load()).deletions == frozenset()
        await controller.commit(TopicDeletionRequested("t"))
        await controller.commit(TopicRemoved("t", ID))
        await controller.commit(TopicRemoved("t", ID))
        state = await controller.persistence.load()
        assert (state.topics, state.partitions, state.deletions) == ({}, {}, frozenset())
        assert await controller.version_of(created()) >= 0

    run(scenario)


def test_a_deposed_controller_changes_nothing(run: Run) -> None:
    """03b I2"""

    async def scenario(controller: Controller) -> None:
        with pytest.raises(ControllerMoved):
            await controller.persistence.commit([created()], Fence(controller.won.fence + 1))
        assert (await controller.persistence.load()).topics == {}

    run(scenario)


def test_folding_the_commits_gives_what_a_new_controller_loads(run: Run) -> None:
    """Apply needs no second way for a restart, nor for a controller that follows a log."""

    async def scenario(controller: Controller) -> None:
        version = await controller.version_of(created(1, 2))
        both = {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 1))}
        version = await controller.version_of(
            PartitionsAdded(
                topic="t", topic_id=ID, assignment=both, added=frozenset({1}), version=version
            )
        )
        moved = both | {1: ReplicaAssignment((2, 1, 3), adding=(3,))}
        await controller.commit(
            AssignmentChanged(topic="t", topic_id=ID, assignment=moved, version=version),
            changed(T0, 1, version=None),
            changed(T1, 2, version=None),
        )
        other = uuid.UUID(int=8)
        await controller.commit(
            TopicCreated(topic="u", topic_id=other, assignment={0: ReplicaAssignment((1,))}),
            TopicCreated(
                topic="v", topic_id=uuid.UUID(int=9), assignment={0: ReplicaAssignment((1,))}
            ),
        )
        await controller.commit(TopicDeletionRequested("u"), TopicDeletionRequested("v"))
        await controller.commit(TopicRemoved("v", uuid.UUID(int=9)), TopicDeletionCancelled("u"))
        assert controller.context.topics_to_be_deleted == set()
        assert (await controller.persistence.load()).deletions == set()
        await controller.commit(TopicDeletionRequested("u"))

        state, context = await controller.persistence.load(), controller.context

        assert context.all_topics == state.topics.keys() == {"t", "u"}
        for topic, record in state.topics.items():
            assert context.partition_assignments[topic] == record.assignment
            assert context.topic_ids[topic] == record.topic_id
            assert context.topic_versions[topic] == record.version
        assert context.partition_leadership == state.partitions
        assert context.topics_to_be_deleted == state.deletions == {"u"}
        assert context.partitions_being_reassigned == {T1}

    run(scenario)


@pytest.mark.parametrize("name", WITH_CONFLICTS)
def test_a_change_decided_on_another_version_is_a_conflict_that_brings_what_is_stored(
    name: str, request: pytest.FixtureRequest
) -> None:
    """14:SM-4: and its neighbours are committed."""

    async def scenario(controller: Controller) -> None:
        version = await controller.version_of(created())
        await controller.version_of(
            AssignmentChanged(
                topic="t", topic_id=ID, assignment=created().assignment, version=version
            )
        )
        known = await controller.version_of(changed(T0, 1, version=None))
        await controller.version_of(changed(T0, 1, version=known, leader_epoch=1))
        stale: list[Change] = [
            created(),
            AssignmentChanged(topic="t", topic_id=ID, assignment={}, version=version),
            changed(T0, 2, version=known),
            changed(T0, 2, version=None),
        ]
        outcome = await controller.commit(*stale, TopicDeletionRequested("t"))
        assert [conflict.change for conflict in outcome.conflicts] == stale
        topics = [c.found for c in outcome.conflicts[1:2]]
        assert all(isinstance(f, TopicRecord) and f.version != version for f in topics)
        partitions = [c.found for c in outcome.conflicts[2:]]
        assert all(
            isinstance(f, PartitionRecord) and f.leader_and_isr.leader_epoch == 1
            for f in partitions
        )
        assert len(outcome.committed) == 1

    run_on(name, request, scenario)
