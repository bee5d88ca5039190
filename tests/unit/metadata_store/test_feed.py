"""The store's feed: control requests and configuration in one order (14 section 15.4)."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from odradek.coordination import EmbeddedEngine
from odradek.coordination.nodes import encode_config
from odradek.errors import ErrorCode
from odradek.metadata.changes import ConfigSet
from odradek.metadata.delta import ImageDelta, apply_delta
from odradek.metadata.image import ClusterImage, ConfigResource
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.entity_writes import write_entity
from odradek.metadata_store.feed import StoreFeed
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from odradek.testing import ManualClock

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
TOPIC_ID = uuid.UUID(int=7)


class Setup:
    """A feed over an embedded store, and another session that writes."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.other = engine.connect()
        self.broker_epoch = 1
        self.image = ClusterImage()
        self.feed = StoreFeed(
            engine.connect(),
            clock=ManualClock(),
            broker_epoch=lambda: self.broker_epoch,
            image=lambda: self.image,
        )
        self.items = self.feed.items()

    async def take(self) -> ImageDelta:
        """Publishes the next item and returns its delta."""
        async with asyncio.timeout(60):
            item = await anext(self.items)
        self.image = apply_delta(self.image, item.delta).image
        item.complete({})
        return item.delta

    def update(self, *, broker_epoch: int = 1) -> asyncio.Task[int]:
        async def send() -> int:
            request = UpdateMetadataRequest(
                controller_id=1, controller_epoch=5, broker_epoch=broker_epoch
            )
            return (await self.feed.handle(request)).error_code

        return asyncio.create_task(send())

    def lead(self) -> asyncio.Task[object]:
        """A LeaderAndIsr for the topic, whose delta fails: its results are not given."""

        async def send() -> object:
            state = LeaderAndIsrPartitionState(
                partition_index=0,
                controller_epoch=1,
                leader=1,
                leader_epoch=0,
                isr=[1],
                partition_epoch=0,
                replicas=[1],
            )
            return await self.feed.handle(
                LeaderAndIsrRequest(
                    controller_id=1,
                    controller_epoch=5,
                    broker_epoch=1,
                    topic_states=[
                        LeaderAndIsrTopicState(
                            topic_name="t", topic_id=TOPIC_ID.bytes, partition_states=[state]
                        )
                    ],
                )
            )

        return asyncio.create_task(send())

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def run(tmp_path: Path, scenario: Callable[[Setup], Awaitable[None]]) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            await create_parents(store)
            setup = Setup(engine)
            async with aclosing(setup.items):
                await scenario(setup)

    asyncio.run(main())


def test_requests_and_alterations_come_in_the_order_they_were_heard_of(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.take()
        first = setup.update()
        await setup.settle()
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "1"}))
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "2"}))
        second = setup.update()
        await setup.settle()

        deltas = [(await setup.take()).cluster for _ in range(3)]

        assert [bool(delta and delta.membership) for delta in deltas] == [True, False, True]
        # One delta for both alterations: what the entity says when it is read counts.
        assert deltas[1] is not None
        assert deltas[1].configs == {TOPIC: {"a": "2"}}
        assert [await first, await second] == [ErrorCode.NONE, ErrorCode.NONE]

    run(tmp_path, scenario)


def test_a_request_is_checked_when_its_turn_comes(tmp_path: Path) -> None:
    """15:KAFKA-7235: the broker has registered anew while the request waited."""

    async def scenario(setup: Setup) -> None:
        stale = setup.update(broker_epoch=1)
        fresh = setup.update(broker_epoch=2)
        await setup.settle()
        setup.broker_epoch = 2
        await setup.take()
        await setup.take()
        assert [await stale, await fresh] == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]

    run(tmp_path, scenario)


def test_an_alteration_that_waited_gives_the_overrides_of_the_topic_that_is_there_now(
    tmp_path: Path,
) -> None:
    """The creation of a topic is not notified: those of the one before it would stay for ever."""

    async def scenario(setup: Setup) -> None:
        await setup.take()
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "1"}))
        await setup.settle()
        # Deleted and created again, by a controller that no notification comes from.
        await setup.other.set("/config/topics/t", encode_config({"b": "2"}), 0)
        delta = await setup.take()
        assert delta.cluster is not None
        assert delta.cluster.configs == {TOPIC: {"b": "2"}}

    run(tmp_path, scenario)


def test_overrides_of_a_new_topic_are_those_of_the_moment_of_its_role(tmp_path: Path) -> None:
    """14:SM-6"""

    async def scenario(setup: Setup) -> None:
        leading = setup.lead()
        await setup.settle()
        await setup.take()
        await setup.other.create("/config/topics/t", encode_config({"cleanup.policy": "compact"}))
        async with asyncio.timeout(60):
            item = await anext(setup.items)
        assert item.delta.cluster is not None
        assert item.delta.cluster.configs == {TOPIC: {"cleanup.policy": "compact"}}
        assert item.delta.cluster.config_owners == {"t": TOPIC_ID}
        leading.cancel()

    run(tmp_path, scenario)


def test_settings_that_cannot_be_published_stop_the_publisher(tmp_path: Path) -> None:
    """They have no feeder that would feed them again."""

    async def scenario(setup: Setup) -> None:
        item = await anext(setup.items)
        with pytest.raises(ValueError, match="ours"):
            item.fail(ValueError("ours"))

    run(tmp_path, scenario)


def test_alterations_that_wait_are_read_together(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.take()
        for _ in range(3):
            setup.feed._configs_changed()  # A watch, and a session that is back.
        assert len(setup.feed._queue) == 1

    run(tmp_path, scenario)
