"""Producer ids from blocks (10 section 8.6)."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from odradek.broker.producer_ids import ProducerIdAllocator
from odradek.errors import ApiError, ConnectionLost, ErrorCode
from odradek.metadata.ports import ProducerIds


class Cluster:
    """Hands out blocks of ten; an answer waits until it is let go."""

    def __init__(self) -> None:
        self.blocks = 0
        self.error: Exception | None = None
        self.is_slow = False
        self.go = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def allocate(self) -> ProducerIds:
        self.blocks += 1
        first = (self.blocks - 1) * 10
        if self.is_slow:
            await self.go.wait()
        if self.error is not None:
            raise self.error
        return ProducerIds(first, first + 9)

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def sleep(self, delay_s: float, /) -> None:
        raise AssertionError("nothing waits here")

    def allocator(self) -> ProducerIdAllocator:
        return ProducerIdAllocator(self.allocate, tasks=self)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_ids_are_handed_out_one_by_one() -> None:
    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        assert [await ids.next_id() for _ in range(25)] == list(range(25))

    run(test())


def test_the_next_block_is_fetched_at_nine_tenths() -> None:
    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        for _ in range(8):
            await ids.next_id()
        assert (cluster.blocks, len(cluster.tasks)) == (1, 0)
        await ids.next_id()
        assert len(cluster.tasks) == 1
        await cluster.tasks[0]
        assert cluster.blocks == 2
        # The last id of the block asks for nothing more: there is a reserve.
        await ids.next_id()
        assert len(cluster.tasks) == 1

    run(test())


def test_who_runs_out_waits_for_the_fetch_under_way() -> None:
    """One block is enough for all who wait; none is fetched twice and thrown away."""

    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        for _ in range(8):
            await ids.next_id()
        cluster.is_slow = True
        waiting = [asyncio.ensure_future(ids.next_id()) for _ in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert cluster.blocks == 2
        cluster.go.set()
        assert await asyncio.gather(*waiting) == [8, 9, 10, 11, 12, 13]
        assert cluster.blocks == 2

    run(test())


def test_more_waiting_than_a_block_holds() -> None:
    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        got = await asyncio.gather(*(ids.next_id() for _ in range(35)))
        assert sorted(got) == list(range(35))

    run(test())


@pytest.mark.parametrize(
    "error", [ConnectionLost("/latest_producer_id_block"), ApiError(ErrorCode.NOT_CONTROLLER)]
)
def test_no_block_to_be_had(error: Exception) -> None:
    """Clients try again after COORDINATOR_LOAD_IN_PROGRESS."""

    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        cluster.error = error
        with pytest.raises(ApiError) as caught:
            await ids.next_id()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cluster.error = None
        assert await ids.next_id() == 10

    run(test())


def test_a_prefetch_that_fails_is_tried_again() -> None:
    async def test() -> None:
        cluster = Cluster()
        ids = cluster.allocator()
        for _ in range(8):
            await ids.next_id()
        cluster.error = ConnectionLost("/latest_producer_id_block")
        await ids.next_id()
        await cluster.tasks[-1]
        cluster.error = None
        assert await ids.next_id() == 9
        await cluster.tasks[-1]
        assert (len(cluster.tasks), cluster.blocks) == (2, 3)
        assert await ids.next_id() == 20

    run(test())
