"""What every metadata feed owes the publisher (14 section 15.1), run over each of them.

An engine joins by a source in ENGINES: its feed, and a way to have it bring a delta that stops the
replica of a numbered partition.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from odradek.coordination import CoordinationStore, EmbeddedEngine
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.delta import ImageDelta, LocalDelta, StoppedPartition
from odradek.metadata.image import ClusterImage
from odradek.metadata.ports import FeedItem, MetadataFeed
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.feed import StoreFeed
from odradek.model import TopicPartition
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.testing import ManualClock
from tests.support.feeds import OfferedFeed
from tests.support.zookeeper_sessions import fresh_store


class Source(Protocol):
    """A feed, and a feeder of it."""

    @property
    def feed(self) -> MetadataFeed: ...

    async def feed_stop(self, partition: int) -> ErrorCode:
        """Has the feed bring a stop of the partition; returns the result for it."""
        ...


class OfferedSource:
    def __init__(self) -> None:
        self.feed = OfferedFeed()

    async def feed_stop(self, partition: int) -> ErrorCode:
        tp = TopicPartition("t", partition)
        stop = StoppedPartition(tp=tp, leader_epoch=-2, deletes_log=False)
        local = LocalDelta(controller_id=1, controller_epoch=1, stopped=(stop,))
        try:
            return (await self.feed.offer(ImageDelta(local=local)))[tp]
        except ApiError as error:
            return error.code


class StoreSource:
    def __init__(self, feed: StoreFeed) -> None:
        self.feed = feed

    async def feed_stop(self, partition: int) -> ErrorCode:
        stop = StopReplicaPartitionState(
            partition_index=partition, leader_epoch=-2, delete_partition=False
        )
        response = await self.feed.handle(
            StopReplicaRequest(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=-1,
                topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[stop])],
            )
        )
        assert isinstance(response, StopReplicaResponse)
        if response.error_code != ErrorCode.NONE:
            return ErrorCode(response.error_code)
        [result] = response.partition_errors
        assert (result.topic_name, result.partition_index) == ("t", partition)
        return ErrorCode(result.error_code)


@asynccontextmanager
async def offered(_request: pytest.FixtureRequest) -> AsyncIterator[Source]:
    yield OfferedSource()


@asynccontextmanager
async def over_the_embedded_store(request: pytest.FixtureRequest) -> AsyncIterator[Source]:
    directory: Path = request.getfixturevalue("tmp_path")
    async with EmbeddedEngine(str(directory)) as engine:
        yield await over(engine.connect())


@asynccontextmanager
async def over_zookeeper(request: pytest.FixtureRequest) -> AsyncIterator[Source]:
    async with fresh_store(request.getfixturevalue("zookeeper")) as store:
        yield await over(store)


async def over(store: CoordinationStore) -> Source:
    await create_parents(store)
    return StoreSource(
        StoreFeed(store, clock=ManualClock(), broker_epoch=lambda: 1, image=ClusterImage)
    )


ENGINES = {
    "fake": offered,
    "store-embedded": over_the_embedded_store,
    "store-zookeeper": over_zookeeper,
}


@pytest.fixture(params=ENGINES)
def run(
    request: pytest.FixtureRequest,
) -> Callable[[Callable[[Source], Awaitable[None]]], None]:
    def run(scenario: Callable[[Source], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), ENGINES[request.param](request) as source:
                await scenario(source)

        asyncio.run(main())

    return run


Run = Callable[[Callable[[Source], Awaitable[None]]], None]


def begin(source: Source, partition: int) -> asyncio.Task[ErrorCode]:
    return asyncio.create_task(source.feed_stop(partition))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def take_settings(items: AsyncIterator[FeedItem]) -> None:
    """Takes the first item, which is settled already when anything else is asked for."""
    first = await anext(items)
    assert first.delta.local is None
    assert first.delta.cluster is not None
    first.complete({})


def partition_of(item: FeedItem) -> int:
    assert item.delta.local is not None
    [stop] = item.delta.local.stopped
    return stop.tp.partition


def complete(item: FeedItem, code: ErrorCode = ErrorCode.NONE) -> None:
    item.complete({TopicPartition("t", partition_of(item)): code})


def test_settings_come_first_then_deltas_in_the_order_of_their_feeding(run: Run) -> None:
    async def scenario(source: Source) -> None:
        feeders = [begin(source, number) for number in range(5)]
        await settle()
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            for number in range(5):
                item = await anext(items)
                assert partition_of(item) == number
                complete(item)
            assert await asyncio.gather(*feeders) == [ErrorCode.NONE] * 5

    run(scenario)


def test_a_feed_waits_for_its_feeders(run: Run) -> None:
    async def scenario(source: Source) -> None:
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            taking = asyncio.ensure_future(anext(items))
            await settle()
            assert not taking.done()
            feeder = begin(source, 7)
            item = await taking
            assert partition_of(item) == 7
            assert not feeder.done()
            complete(item)
            assert await feeder is ErrorCode.NONE

    run(scenario)


def test_each_feeder_gets_its_own_result(run: Run) -> None:
    codes = [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]

    async def scenario(source: Source) -> None:
        feeders = [begin(source, number) for number in range(len(codes))]
        await settle()
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            for code in codes:
                complete(await anext(items), code)
            assert await asyncio.gather(*feeders) == codes

    run(scenario)


def test_a_delta_that_is_refused_fails_for_its_feeder_alone(run: Run) -> None:
    async def scenario(source: Source) -> None:
        refused, obeyed = begin(source, 0), begin(source, 1)
        await settle()
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            (await anext(items)).fail(ApiError(ErrorCode.STALE_CONTROLLER_EPOCH, "older"))
            complete(await anext(items))
            assert await refused is ErrorCode.STALE_CONTROLLER_EPOCH
            assert await obeyed is ErrorCode.NONE

    run(scenario)


def test_what_waits_for_a_feeder_that_gave_up_is_never_brought(run: Run) -> None:
    async def scenario(source: Source) -> None:
        gone, there = begin(source, 0), begin(source, 1)
        await settle()
        gone.cancel()
        await asyncio.wait([gone])
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            item = await anext(items)
            assert partition_of(item) == 1
            complete(item)
            await there

    run(scenario)


@pytest.mark.parametrize("fails", [False, True], ids=["completed", "failed"])
def test_a_feeder_may_give_up_while_its_delta_is_published(run: Run, fails: bool) -> None:
    async def scenario(source: Source) -> None:
        feeder = begin(source, 0)
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            item = await anext(items)
            feeder.cancel()
            await asyncio.wait([feeder])
            if fails:
                item.fail(ApiError(ErrorCode.STALE_CONTROLLER_EPOCH, "older"))
            else:
                complete(item)
            after = begin(source, 1)
            complete(await anext(items))
            assert await after is ErrorCode.NONE

    run(scenario)


def test_closing_cancels_every_feeder_that_waits_and_those_that_come_later(run: Run) -> None:
    async def scenario(source: Source) -> None:
        begun, waiting = begin(source, 0), begin(source, 1)
        await settle()
        async with aclosing(source.feed.items()) as items:
            await take_settings(items)
            await anext(items)
        late = begin(source, 2)
        await asyncio.wait([begun, waiting, late])
        assert [feeder.cancelled() for feeder in (begun, waiting, late)] == [True, True, True]

    run(scenario)
