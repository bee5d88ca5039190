"""The config feed: all once, then what notifications name."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.coordination import EmbeddedEngine, EmbeddedStore
from odradek.coordination.nodes import FeatureNode
from odradek.coordination.paths import FEATURE
from odradek.coordination.store import ANY_VERSION
from odradek.errors import ApiError, BadNodeData, ErrorCode
from odradek.metadata.changes import ConfigSet, QuotaSet, ScramRemoved, ScramSet
from odradek.metadata.delta import ClusterDelta
from odradek.metadata.image import ConfigResource, QuotaEntity, ScramCredential, ScramKey
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.config_feed import ENTITIES_PER_TURN, PURGE_AFTER_MS, ConfigFeed
from odradek.metadata_store.entity_writes import edit_of, write_entities, write_entity
from odradek.protocol.enums import ConfigResourceType
from odradek.testing import ManualClock

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
USER = QuotaEntity((("user", "u"),))
USER_CLIENT = QuotaEntity((("client-id", "c"), ("user", "u")))
KEY = ScramKey("u", 1)
CREDENTIAL = ScramCredential(b"a", b"b", b"c", 4096)


class Setup:
    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.store: EmbeddedStore = engine.connect()
        self.other: EmbeddedStore = engine.connect()
        self.clock = ManualClock()
        self._changed = asyncio.Event()
        self._changed.set()
        self.feed = ConfigFeed(self.store, clock=self.clock, on_change=self._changed.set)

    async def next(self) -> ClusterDelta:
        async with asyncio.timeout(60):
            while True:
                await self._changed.wait()
                self._changed.clear()
                delta = await self.feed.read()
                if delta is not None:
                    return delta


def run(tmp_path: Path, scenario: Callable[[Setup], Awaitable[None]]) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            setup = Setup(engine)
            await create_parents(setup.other)
            await scenario(setup)

    asyncio.run(main())


def test_everything_is_read_once_then_what_is_named(tmp_path: Path) -> None:
    """14 §15.4"""

    async def scenario(setup: Setup) -> None:
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "1"}))
        await write_entity(setup.other, QuotaSet(USER_CLIENT, {"producer_byte_rate": 9.0}))
        await write_entity(setup.other, ScramSet(KEY, CREDENTIAL))
        first = await setup.next()
        assert first.configs == {TOPIC: {"a": "1"}}
        assert first.quotas == {USER: {}, USER_CLIENT: {"producer_byte_rate": 9.0}}
        assert first.scram == {KEY: CREDENTIAL}
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "2"}))
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": None, "b": "3"}))
        # What the entity says when it is read counts, not the order of notices.
        assert (await setup.next()).configs == {TOPIC: {"b": "3"}}
        await write_entity(setup.other, ScramRemoved(KEY))
        assert (await setup.next()).scram == {KEY: None}

    run(tmp_path, scenario)


def test_many_entities_are_read_with_others_in_between(tmp_path: Path) -> None:
    """02 section 12: reading a thousand entities took 57 ms of one turn."""
    entities = [QuotaEntity((("user", f"u{number}"),)) for number in range(4 * ENTITIES_PER_TURN)]

    async def scenario(setup: Setup) -> None:
        edits = [edit_of(QuotaSet(entity, {"producer_byte_rate": 1})) for entity in entities]
        await write_entities(setup.other, edits)
        turns = 0

        async def bystander() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        watching = asyncio.create_task(bystander())
        delta = await setup.next()
        watching.cancel()
        assert len(delta.quotas) == len(entities)
        assert turns >= 4

    run(tmp_path, scenario)


@pytest.mark.parametrize("name", ["<default>", ".", "..", "%2E", "a/b", "*~ +%", "\0\n\u2028", "é"])
def test_a_name_is_that_of_one_entity_whatever_it_is(tmp_path: Path, name: str) -> None:
    """13 section 12.6: names are sanitised; the default has no name at all."""
    entities = [
        QuotaEntity((("user", name),)),
        QuotaEntity((("client-id", name),)),
        QuotaEntity((("client-id", name), ("user", name))),
        QuotaEntity((("client-id", None), ("user", name))),
        QuotaEntity((("client-id", name), ("user", None))),
    ]

    async def scenario(setup: Setup) -> None:
        for bound, entity in enumerate(entities, 1):
            await write_entity(setup.other, QuotaSet(entity, {"producer_byte_rate": bound}))
        delta = await setup.next()
        assert {key: value for key, value in delta.quotas.items() if value} == {
            entity: {"producer_byte_rate": bound} for bound, entity in enumerate(entities, 1)
        }

    run(tmp_path, scenario)


def test_a_name_too_long_for_the_store_is_the_requests_fault(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        entity = QuotaEntity((("user", "%" * 11_000),))
        with pytest.raises(ApiError) as refusal:
            await write_entity(setup.other, QuotaSet(entity, {"producer_byte_rate": 1.0}))
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        entity = QuotaEntity((("user", "u" * 31_000),))
        await write_entity(setup.other, QuotaSet(entity, {"producer_byte_rate": 1.0}))

    run(tmp_path, scenario)


def test_an_empty_store_gives_an_empty_delta(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        assert await setup.next() == ClusterDelta()

    run(tmp_path, scenario)


def test_configs_of_a_new_topic_are_read_on_demand(tmp_path: Path) -> None:
    """14:SM-6: no notification tells about them."""

    async def scenario(setup: Setup) -> None:
        assert await setup.feed.read_topic("t") == {}
        await setup.other.create("/config/topics/t", b'{"version":1,"config":{"x":"1"}}')
        assert await setup.feed.read_topic("t") == {"x": "1"}
        await setup.other.set("/config/topics/t", b"?", -1)
        with pytest.raises(BadNodeData):
            await setup.feed.read_topic("t")

    run(tmp_path, scenario)


def test_old_notifications_are_purged(tmp_path: Path) -> None:
    """03b §0.3"""

    async def scenario(setup: Setup) -> None:
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "1"}))
        await setup.next()
        setup.clock.advance(PURGE_AFTER_MS - 1)
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "2"}))
        await setup.next()
        assert len((await setup.other.children("/config/changes"))[0]) == 2
        setup.clock.advance(1)
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "3"}))
        assert (await setup.next()).configs == {TOPIC: {"a": "3"}}
        names, _ = await setup.other.children("/config/changes")
        assert names == ["config_change_0000000001", "config_change_0000000002"]

    run(tmp_path, scenario)


def test_a_replaced_session_reads_everything_anew(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        other = ConfigResource(ConfigResourceType.BROKER, "1")
        await write_entity(setup.other, ConfigSet(TOPIC, {"a": "1"}))
        await write_entity(setup.other, ConfigSet(other, {"b": "1"}))
        await setup.next()
        await setup.store.session.expire()
        await setup.other.delete("/config/topics/t", -1)
        assert (await setup.next()).configs == {TOPIC: {}, other: {"b": "1"}}

    run(tmp_path, scenario)


def test_bad_entities_keep_their_old_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.other.create("/config/clients/c", b'{"config":{"producer_byte_rate":"x"}}')
        await setup.other.create(
            "/config/changes/config_change_", b'{"version":1}', sequential=True
        )
        await setup.next()
        notice = b'{"version":2,"entity_path":"clients/c"}'
        await setup.other.create("/config/changes/config_change_", notice, sequential=True)
        await setup.other.create("/config/changes/config_change_", b"x", sequential=True)
        assert (await setup.next()).quotas == {}

    run(tmp_path, scenario)
    assert "keeps its old values" in caplog.text


def test_features_are_read_when_their_node_is_made_and_written(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        first = await setup.next()
        assert (first.features, first.features_epoch) == ({}, None)
        node = FeatureNode({"f": 2, "g": 1})
        await setup.other.create(FEATURE, node.encode())
        made = await setup.next()
        assert (made.features, made.features_epoch) == ({"f": 2, "g": 1}, 0)
        await setup.other.set(FEATURE, FeatureNode({"f": 3}).encode(), ANY_VERSION)
        written = await setup.next()
        assert (written.features, written.features_epoch) == ({"f": 3, "g": 0}, 1)
        await setup.other.set(FEATURE, b"{", ANY_VERSION)
        ignored = await setup.next()
        assert (ignored.features, ignored.features_epoch) == ({}, None)
        void = FeatureNode({"f": 3}, is_enabled=False)
        await setup.other.set(FEATURE, void.encode(), ANY_VERSION)
        assert (await setup.next()).features == {"f": 0}

    run(tmp_path, scenario)
