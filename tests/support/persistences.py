"""Durable metadata in memory: as a store keeps it, and as a quorum does.

Both pass tests/contract/test_metadata_persistence.py. Leadership comes by command: `elect`, `told`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from odradek.controller.folding import committed_record
from odradek.errors import ControllerMoved
from odradek.metadata.changes import (
    AssignmentChanged,
    Change,
    PartitionChanged,
    PartitionsAdded,
    StoredReassignmentsChanged,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.ports import (
    CommitOutcome,
    Committed,
    Conflict,
    ControllerState,
    Fence,
    Hint,
    LeadershipLost,
    LeadershipWon,
    PartitionRecord,
    PersistenceEvent,
    RegisteredBroker,
    TopicRecord,
)
from odradek.model import TopicPartition


class _InMemory:
    """State, leadership and fence."""

    def __init__(self) -> None:
        self.brokers: dict[int, RegisteredBroker] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.partitions: dict[TopicPartition, PartitionRecord] = {}
        self.deletions: set[str] = set()
        self.reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        self.position: int | None = None
        self.failure: Exception | None = None
        self.told: asyncio.Queue[PersistenceEvent] = asyncio.Queue()
        self.resigned = 0
        self._epoch = 0
        self._fence: Fence | None = Fence(0)  # None: no leader.

    def elect(self) -> None:
        """Makes this broker controller, in the next epoch."""
        self.told.put_nowait(LeadershipWon(self._epoch + 1, Fence(self._epoch + 1)))

    def topic_configs(self) -> Mapping[str, Mapping[str, str]]:
        return {topic: {} for topic in self.topics}

    async def events(self) -> AsyncIterator[PersistenceEvent]:
        while True:
            event = await self.told.get()
            if isinstance(event, LeadershipWon):
                self._epoch, self._fence = event
            elif isinstance(event, LeadershipLost):
                self._fence = None
            yield event

    async def load(self, hint: Hint | None = None) -> ControllerState:
        if self.failure is not None:
            raise self.failure
        return ControllerState(
            brokers=dict(self.brokers),
            topics=dict(self.topics),
            partitions=dict(self.partitions),
            topic_configs=self.topic_configs(),
            deletions=frozenset(self.deletions),
            reassignments=dict(self.reassignments),
            position=self.position,
        )

    async def resign(self, fence: Fence) -> None:
        self.resigned += 1
        self._fence = None

    def check(self, fence: Fence) -> None:
        if self.failure is not None:
            raise self.failure
        if fence != self._fence:
            raise ControllerMoved(f"fence {fence}, {self._fence} is the leader's")

    def make(self, change: Change) -> int:
        """Makes a change; returns the version for the next one of the same thing."""
        match change:
            case (
                TopicCreated(topic=topic)
                | PartitionsAdded(topic=topic)
                | AssignmentChanged(topic=topic)
            ):
                old = self.topics.get(topic)
                version = 0 if old is None else old.version + 1
                self.topics[topic] = TopicRecord(
                    topic_id=change.topic_id,
                    assignment=change.assignment,
                    version=version,
                    incarnation=0,
                )
                return version
            case PartitionChanged(tp=tp):
                record = self.partitions.get(tp)
                version = 0 if record is None else record.leader_and_isr.partition_version + 1
                self.partitions[tp] = committed_record(change, version)
                return version
            case StoredReassignmentsChanged(reassignments=left):
                self.reassignments = dict(left)
            case TopicDeletionRequested(topic=topic):
                self.deletions.add(topic)
            case TopicDeletionCancelled(topic=topic):
                self.deletions.discard(topic)
            case TopicRemoved(topic=topic):
                self.topics.pop(topic, None)
                self.deletions.discard(topic)
                for tp in [tp for tp in self.partitions if tp.topic == topic]:
                    del self.partitions[tp]
            case _:
                raise AssertionError(change)
        return 0


class VersionedPersistence(_InMemory):
    """As a store behaves: each change has its own outcome, by the version it was decided on."""

    raises_leader_epoch_on_isr_change = True

    def __init__(self) -> None:
        super().__init__()
        self.configs: dict[str, dict[str, str]] = {}
        self.is_deposed = False
        self.commits: list[list[TopicPartition]] = []  # Partitions of each commit.

    def topic_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.configs

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        if self.is_deposed:
            raise ControllerMoved("deposed")
        self.check(fence)
        committed: list[Committed] = []
        conflicts: list[Conflict] = []
        self.commits.append([c.tp for c in changes if isinstance(c, PartitionChanged)])
        for change in changes:
            is_stale, found = self._compare(change)
            if is_stale:
                conflicts.append(Conflict(change, found))
            else:
                committed.append(Committed(change, self.make(change)))
        return CommitOutcome(committed=tuple(committed), conflicts=tuple(conflicts))

    def _compare(self, change: Change) -> tuple[bool, TopicRecord | PartitionRecord | None]:
        """Whether something else is stored than the change was decided on, and that."""
        match change:
            case TopicCreated(topic=topic):
                return topic in self.topics, self.topics.get(topic)
            case PartitionsAdded(topic=topic) | AssignmentChanged(topic=topic):
                found = self.topics.get(topic)
                return found is None or found.version != change.version, found
            case PartitionChanged(tp=tp):
                record = self.partitions.get(tp)
                if record is None or change.is_first:
                    return (record is None) is not change.is_first, record
                expected = change.state.partition_version
                return record.leader_and_isr.partition_version != expected, record
            case _:
                return False, None


class QuorumPersistence(_InMemory):
    """As a quorum behaves: a commit changes all or nothing, and finds no conflicts."""

    raises_leader_epoch_on_isr_change = False

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.commits: list[Change] = []
        self.committed: list[Committed] = []

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        await asyncio.sleep(0)
        self.check(fence)
        assert self.position is not None
        self.position += len(changes)
        committed = tuple(Committed(change, self.make(change)) for change in changes)
        self.commits += changes
        self.committed += committed
        return CommitOutcome(committed=committed, position=self.position)
