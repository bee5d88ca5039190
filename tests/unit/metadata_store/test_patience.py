"""A controller whose link to the store breaks: the event waits and goes on, nothing is dropped."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.controller import NewTopic
from odradek.coordination import EmbeddedEngine
from odradek.coordination.nodes import PartitionStateNode
from odradek.coordination.paths import partition_state_path
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Stat, Watch
from odradek.errors import ConnectionLost, ErrorCode, NoNode, StoreUnreachable
from odradek.metadata_store.patience import MAX_ATTEMPTS, PatientStore
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.testing.store import FaultyStore
from tests.support.controllers import Cluster, Member, running_cluster

T0 = TopicPartition("t", 0)


class BreakingStore(PatientStore):
    """Loses the link before `breaks` more reads, and then before a delete, applied or not."""

    def __init__(self, store: CoordinationStore) -> None:
        super().__init__(store)
        self.breaks = 0
        self.delete_applied: bool | None = None

    def _break(self) -> None:
        if self.breaks:
            self.breaks -= 1
            raise ConnectionLost("cut")

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        self._break()
        return await self._store.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._break()
        return await self._store.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        self._break()
        return await self._store.children(path, watch)

    async def sync(self) -> None:
        self._break()

    async def delete(self, path: str, version: int, *, fence: int | None = None) -> None:
        self._break()
        applied, self.delete_applied = self.delete_applied, None
        if applied is not False:
            await self._store.delete(path, version, fence=fence)
        if applied is not None:
            raise ConnectionLost("cut")


def run(directory: Path, scenario: Callable[[BreakingStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(directory)) as engine:
            await scenario(BreakingStore(engine.connect()))

    asyncio.run(main())


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("applied", [True, False])
def test_a_deletion_whose_link_broke_is_done_once(tmp_path: Path, applied: bool) -> None:
    """03b:ST-8: a node that is gone at the second attempt was deleted by the first."""

    async def scenario(breaking: BreakingStore) -> None:
        patient = PatientStore(breaking, sleep=no_pause)
        await patient.create("/a")
        breaking.delete_applied = applied
        await patient.delete("/a", ANY_VERSION)
        assert await patient.exists("/a") is None
        with pytest.raises(NoNode):
            await patient.delete("/a", ANY_VERSION)

    run(tmp_path, scenario)


def test_a_store_that_never_answers_ends_the_wait(tmp_path: Path) -> None:
    async def scenario(breaking: BreakingStore) -> None:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        breaking.breaks = MAX_ATTEMPTS + 1
        with pytest.raises(StoreUnreachable):
            await PatientStore(breaking, sleep=sleep).get("/")
        assert len(waits) == MAX_ATTEMPTS

    run(tmp_path, scenario)


async def broken_member(cluster: Cluster) -> tuple[Member, BreakingStore]:
    store = BreakingStore(cluster.engine.connect())
    member = Member(cluster, 0, store)
    cluster.members.append(member)
    await member.start()
    await cluster.settle()
    return member, store


@pytest.mark.parametrize("applied", [True, False])
def test_a_notification_whose_deletion_lost_its_link_is_acted_on(
    tmp_path: Path, applied: bool
) -> None:
    """An event that meets a broken link is finished, not dropped."""

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            member, store = await broken_member(cluster)
            await member.controller.create_topics([NewTopic(name="t")])
            await cluster.settle()
            before = LeaderAndIsr(leader=0, leader_epoch=7, isr=(0,))
            plain = cluster.engine.connect()
            node = PartitionStateNode(before, 1)
            await plain.set(partition_state_path(T0), node.encode(), ANY_VERSION)
            store.delete_applied = applied
            await member.port.notify_isr_changes([T0])
            await cluster.settle()
            known = member.controller.context.partition_leadership[T0].leader_and_isr
            assert known.leader_epoch == 7
            assert (await plain.children("/isr_change_notification"))[0] == []
            await plain.session.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("breaks", [1, 2, 5, 40])
def test_a_broker_that_dies_while_the_link_is_broken_is_noticed(
    tmp_path: Path, breaks: int
) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            member, store = await broken_member(cluster)
            other = await cluster.add(1)
            await member.controller.create_topics([NewTopic(name="t", assignment={0: [1, 0]})])
            await cluster.settle()
            store.breaks = breaks
            await cluster.remove(other)
            assert store.breaks == 0
            found = member.controller.context.partition_leadership[T0].leader_and_isr
            assert (found.leader, found.isr) == (0, (0,))

    asyncio.run(scenario())


@pytest.mark.parametrize("applied", [True, False])
def test_the_outcome_of_a_write_is_found_out_behind_a_broken_link(
    tmp_path: Path, applied: bool
) -> None:
    """14:SM-5: reading back fails, too, and is repeated until the outcome is known."""

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            breaking = BreakingStore(cluster.engine.connect())
            store = FaultyStore(breaking)
            member = Member(cluster, 0, store)
            cluster.members.append(member)
            await member.start()
            await cluster.settle()
            controller = member.controller
            task = asyncio.ensure_future(controller.create_topics([NewTopic(name="t")]))
            store.cut_next_write(applied=applied)
            breaking.breaks = 7
            [result] = await task
            assert result.error is ErrorCode.NONE
            await cluster.settle()
            assert controller.context.partition_leadership[T0].leader_and_isr.leader == 0

    asyncio.run(scenario())


def test_a_controller_whose_store_is_gone_gives_leadership_up(tmp_path: Path) -> None:
    """Another broker can be elected although the session of the first one lives on."""

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            member, store = await broken_member(cluster)
            other = await cluster.add(1)
            store.breaks = MAX_ATTEMPTS + 20
            await cluster.remove(other)
            assert member.controller.is_active  # It was elected again, in a later epoch.
            assert member.controller.context.controller_epoch == 2
            assert set(member.controller.context.live_broker_epochs) == {0}

    asyncio.run(scenario())
