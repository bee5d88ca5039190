"""What a broker writes itself: registration, ISR, producer ids, configuration."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from odradek.coordination import EmbeddedEngine
from odradek.coordination.nodes import FeatureNode, PartitionStateNode, parse_config
from odradek.coordination.paths import FEATURE, ancestors, broker_path, partition_state_path
from odradek.coordination.store import ANY_VERSION, CoordinationStore
from odradek.errors import ApiError, ErrorCode, NodeExists
from odradek.metadata.changes import (
    AclRemoved,
    ConfigEdit,
    ConfigSet,
    FeatureSet,
    QuotaSet,
    ScramSet,
)
from odradek.metadata.delta import ClusterDelta, ImageDelta, apply_delta
from odradek.metadata.image import (
    ClusterImage,
    ConfigResource,
    QuotaEntity,
    ScramCredential,
    ScramKey,
)
from odradek.metadata.ports import IsrAltered, IsrConflict, IsrOutcomeUnknown, ProducerIds
from odradek.metadata_store.bootstrap import create_parents
from odradek.metadata_store.broker_port import StoreControllerPort
from odradek.metadata_store.config_nodes import entity_update, parse_entity
from odradek.model import LeaderAndIsr, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.inter_broker import INTER_BROKER_VERSIONS
from odradek.security.acls import AclBinding
from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from odradek.testing import ManualClock
from odradek.testing.store import FaultyStore
from tests.support.controllers import broker

T0 = TopicPartition("t", 0)
STATE = LeaderAndIsr(leader=0, leader_epoch=2, isr=(0, 1))


async def no_controller(_broker_id: int, _broker_epoch: int) -> frozenset[TopicPartition]:
    return frozenset({T0})


def port_of(
    store: CoordinationStore, broker_id: int = 0, *, registration_timeout_s: float = 60
) -> StoreControllerPort:
    return StoreControllerPort(
        store,
        broker_id,
        clock=ManualClock(),
        controlled_shutdown=no_controller,
        registration_timeout_s=registration_timeout_s,
    )


def run(tmp_path: Path, scenario: Callable[[EmbeddedEngine], Awaitable[None]]) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            await create_parents(store)
            path = partition_state_path(T0)
            for parent in ancestors(path)[2:]:
                await store.create(parent)
            await store.create(path, PartitionStateNode(STATE, 1).encode())
            await scenario(engine)

    asyncio.run(main())


def altered(isr: tuple[int, ...], version: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader=0, leader_epoch=2, isr=isr, partition_version=version)


def test_registration(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        first, second = engine.connect(), engine.connect()
        port = port_of(first)
        assert (port.broker_epoch, await port.register_again()) == (-1, -1)
        epoch = await port.register(broker(0))
        stat = await first.exists(broker_path(0))
        assert stat is not None
        assert (epoch, stat.ephemeral_owner) == (stat.czxid, first.session.id)
        with pytest.raises(NodeExists, match="stays registered"):
            await port_of(second, registration_timeout_s=0.02).register(broker(0))
        await first.session.close()
        assert await port_of(second).register(broker(0)) > epoch

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("protocol", "version"), [("2.4", 4), ("2.6", 4), ("2.7", 5), ("2.8", 5), ("3.9", 5)]
)
def test_a_registration_has_the_form_of_the_protocol_version(
    tmp_path: Path, protocol: str, version: int
) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        port = StoreControllerPort(
            store,
            0,
            clock=ManualClock(),
            controlled_shutdown=no_controller,
            nodes=INTER_BROKER_VERSIONS[protocol].nodes,
        )
        for announce in (port.register, port.update_registration):
            await announce(broker(0))
            node = json.loads((await store.get(broker_path(0)))[0] or b"")
            assert (node["version"], node.get("features")) == (
                version,
                {} if version == 5 else None,
            )

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_registration_whose_answer_is_lost(tmp_path: Path, is_applied: bool) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = FaultyStore(engine.connect())
        store.cut_next_write(applied=is_applied)
        epoch = await port_of(store).register(broker(0))
        stat = await store.exists(broker_path(0))
        assert stat is not None
        assert stat.czxid == epoch

    run(tmp_path, scenario)


def test_an_isr_is_altered_under_its_version(tmp_path: Path) -> None:
    """05:R33, at the store: the node holds our own write, or another ISR."""

    async def scenario(engine: EmbeddedEngine) -> None:
        port = port_of(engine.connect())
        assert await port.alter_isr(T0, altered((0,), 0), controller_epoch=1) == IsrAltered(1)
        # Somebody wrote exactly that: it was us, and the answer got lost.
        assert await port.alter_isr(T0, altered((0,), 0), controller_epoch=1) == IsrAltered(1)
        assert await port.alter_isr(T0, altered((0, 1), 0), controller_epoch=1) == IsrConflict()
        gone = TopicPartition("x", 0)
        assert await port.alter_isr(gone, altered((0,), 0), controller_epoch=1) == IsrConflict()

    run(tmp_path, scenario)


def test_an_isr_change_over_a_broken_link(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = FaultyStore(engine.connect())
        port = port_of(store)
        store.cut_next_write(applied=True)
        assert await port.alter_isr(T0, altered((0,), 0), controller_epoch=1) == IsrAltered(1)
        store.cut_next_write(applied=False)
        assert await port.alter_isr(T0, altered((0, 1), 1), controller_epoch=1) == IsrConflict()
        await store.session.close()
        unknown = await port.alter_isr(T0, altered((0, 1), 1), controller_epoch=1)
        assert unknown == IsrOutcomeUnknown()

    run(tmp_path, scenario)


def test_producer_ids_come_in_blocks(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = FaultyStore(engine.connect())
        first, second = port_of(store), port_of(engine.connect(), 1)
        assert await first.allocate_producer_ids() == ProducerIds(0, 999)
        assert await second.allocate_producer_ids() == ProducerIds(1000, 1999)
        data, _ = await store.get("/latest_producer_id_block")
        assert data == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
        store.cut_next_write(applied=True)  # A block nobody knows he has is never used.
        assert await first.allocate_producer_ids() == ProducerIds(3000, 3999)
        blocks = await asyncio.gather(*(second.allocate_producer_ids() for _ in range(5)))
        assert len(set(blocks)) == 5
        last = (
            b'{"version":1,"broker":1,"block_start":"9223372036854774808",'
            b'"block_end":"9223372036854775807"}'
        )
        await store.set("/latest_producer_id_block", last, -1)
        with pytest.raises(ApiError, match="used up"):
            await first.allocate_producer_ids()

    run(tmp_path, scenario)


def setting(resource: ConfigResource, key: str) -> ConfigEdit:
    return ConfigEdit(resource, lambda _stored: {key: "1"})


def appending(resource: ConfigResource, item: str) -> ConfigEdit:
    """Adds an item to a list that several hands write."""

    def decide(stored: Mapping[str, str]) -> dict[str, str | None]:
        items = stored.get("list", "").split(",") if stored.get("list") else []
        return {"list": ",".join(items if item in items else [*items, item])}

    return ConfigEdit(resource, decide)


def codes(outcomes: Sequence[ApiError | None]) -> list[ErrorCode]:
    return [ErrorCode.NONE if error is None else error.code for error in outcomes]


async def stored_config(store: CoordinationStore, entity: str) -> dict[str, str]:
    return parse_config((await store.get(f"/config/{entity}"))[0])


def test_no_acknowledged_change_is_lost_to_another_one(tmp_path: Path) -> None:
    """02 §12: requests at this broker and at another one append to one list at the same time."""

    async def scenario(engine: EmbeddedEngine) -> None:
        ports = [port_of(engine.connect()), port_of(engine.connect(), 1)]
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        items = [f"item{number}" for number in range(12)]
        outcomes = await asyncio.gather(
            *(
                ports[number % 2].alter_configs([appending(topic, item)])
                for number, item in enumerate(items)
            )
        )
        assert outcomes == [[None]] * 12
        config = await stored_config(engine.connect(), "topics/t")
        assert sorted(config["list"].split(",")) == sorted(items)

    run(tmp_path, scenario)


def test_many_entities_are_one_transaction(tmp_path: Path) -> None:
    """A user, its client, and a user that has no name for the store; each with its own outcome."""

    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        changes = [
            QuotaSet(QuotaEntity((("client-id", "c"), ("user", "u"))), {"producer_byte_rate": 1}),
            QuotaSet(QuotaEntity((("user", "u"),)), {"producer_byte_rate": 2}),
            *(
                QuotaSet(QuotaEntity((("user", f"u{number}"),)), {"producer_byte_rate": 3})
                for number in range(48)
            ),
        ]
        before = engine.last_zxid
        assert await port_of(store).alter_quotas(changes) == [None] * 50
        assert engine.last_zxid == before + 1
        assert await stored_config(store, "users/u/clients/c") == {"producer_byte_rate": "1"}
        assert await stored_config(store, "users/u") == {"producer_byte_rate": "2"}
        assert len((await store.children("/config/changes"))[0]) == 50

    run(tmp_path, scenario)


def test_an_edit_whose_answer_is_lost_counts_once(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = FaultyStore(engine.connect())
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        port = port_of(store)
        assert await port.alter_configs([appending(topic, "a")]) == [None]
        store.cut_next_write(applied=True)
        assert await port.alter_configs([appending(topic, "b")]) == [None]
        assert await stored_config(store, "topics/t") == {"list": "a,b"}

    run(tmp_path, scenario)


def test_a_refused_edit_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    def refuse(_stored: Mapping[str, str]) -> dict[str, str | None]:
        raise ApiError(ErrorCode.INVALID_CONFIG, "no")

    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        first, second = (ConfigResource(ConfigResourceType.TOPIC, name) for name in "ab")
        edits = [ConfigEdit(first, refuse), setting(second, "k")]
        outcomes = codes(await port_of(store).alter_configs(edits))
        assert outcomes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
        assert await store.exists("/config/topics/a") is None
        assert await stored_config(store, "topics/b") == {"k": "1"}

    run(tmp_path, scenario)


def test_what_the_store_refuses_fails_alone(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        large = ConfigEdit(
            ConfigResource(ConfigResourceType.TOPIC, "a"), lambda _stored: {"k": "x" * (1 << 20)}
        )
        small = setting(ConfigResource(ConfigResourceType.TOPIC, "b"), "k")
        outcomes = codes(await port_of(store).alter_configs([large, small]))
        assert outcomes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]

    run(tmp_path, scenario)


def test_configuration_and_notices(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        port = port_of(store)
        topic = ConfigResource(ConfigResourceType.TOPIC, "t")
        logger = ConfigResource(ConfigResourceType.BROKER_LOGGER, "0")
        assert codes(await port.alter_configs([setting(topic, "a"), setting(logger, "a")])) == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        quota = QuotaSet(QuotaEntity((("user", None),)), {"producer_byte_rate": 7.0})
        assert await port.alter_quotas([quota]) == [None]
        rule = AclRemoved(
            AclBinding(
                ResourceType.TOPIC,
                PatternType.LITERAL,
                "t",
                "User:u",
                "*",
                Operation.READ,
                Permission.ALLOW,
            )
        )
        assert await port.alter_acls([rule]) == [ErrorCode.SECURITY_DISABLED]
        assert len((await store.children("/config/changes"))[0]) == 2
        await store.create("/config/topics/bad", b"{")
        bad = setting(ConfigResource(ConfigResourceType.TOPIC, "bad"), "a")
        good = setting(topic, "b")
        assert codes(await port.alter_configs([bad, good])) == [
            ErrorCode.UNKNOWN_SERVER_ERROR,
            ErrorCode.NONE,
        ]
        await port.report_log_dir_failure()
        await port.notify_isr_changes([T0])
        await port.notify_isr_changes([])
        assert len((await store.children("/log_dir_event_notification"))[0]) == 1
        assert len((await store.children("/isr_change_notification"))[0]) == 1
        assert await port.controlled_shutdown(3) == {T0}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "stored", [b'{"config":{"k":"xyzzy"', b'["xyzzy"]', b'{"config":["xyzzy"]}']
)
def test_what_cannot_be_stored_shows_no_value(
    tmp_path: Path, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """13 section 14: a password in a change, or in the node it goes to, is in no log and answer."""

    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        await store.create("/config/brokers/1", stored)
        secrets = {"ssl.key.password": "xyzzy"}
        resource = ConfigResource(ConfigResourceType.BROKER, "1")
        edit = ConfigEdit(resource, partial(dict, secrets))
        [failure] = await port_of(store).alter_configs([edit])
        assert failure is not None
        assert failure.code is ErrorCode.UNKNOWN_SERVER_ERROR
        change = ConfigSet(resource, secrets)
        assert "xyzzy" not in f"{edit} {edit!r} {change} {change!r} {failure} {failure!r}"

    with caplog.at_level(logging.DEBUG):
        run(tmp_path, scenario)
    assert "xyzzy" not in caplog.text


def test_values_that_may_be_secret_are_in_no_repr() -> None:
    broker = ConfigResource(ConfigResourceType.BROKER, "1")
    credential = ScramCredential(b"xyzzy", b"xyzzy", b"xyzzy", 4096)
    key = ScramKey("u", 1)
    delta = ClusterDelta(configs={broker: {"ssl.key.password": "xyzzy"}}, scram={key: credential})
    image = apply_delta(ClusterImage(), ImageDelta(cluster=delta)).image
    assert image.configs
    assert image.scram
    assert "xyzzy" not in f"{delta} {image} {ScramSet(key, credential)} {credential}"
    update = entity_update(ConfigSet(broker, {"ssl.key.password": "xyzzy"}))
    parsed = parse_entity("brokers/1", {"ssl.key.password": "xyzzy"})
    assert update.values == parsed.configs
    assert "xyzzy" not in f"{update} {parsed}"


def test_features_are_raised_and_lowered_on_request(tmp_path: Path) -> None:
    async def scenario(engine: EmbeddedEngine) -> None:
        store = engine.connect()
        port = port_of(store)
        raised = FeatureSet("f", 2)
        [missing] = await port.alter_features([raised])
        assert missing is not None
        assert missing.code is ErrorCode.FEATURE_UPDATE_FAILED
        await store.create(FEATURE, FeatureNode({"g": 1}).encode())
        assert await port.alter_features([raised], is_checked_only=True) == [None]
        assert await port.alter_features([raised]) == [None]
        assert await levels(store) == {"g": 1, "f": 2}
        refused, kept = await port.alter_features([FeatureSet("f", 1), FeatureSet("g", 3)])
        assert (refused is not None and refused.code, kept) == (
            ErrorCode.INVALID_UPDATE_VERSION,
            None,
        )
        lowered = FeatureSet("f", 0, may_lower=True)
        assert await port.alter_features([lowered]) == [None]
        assert await levels(store) == {"g": 3}
        _, before = await store.get(FEATURE)
        assert await port.alter_features([FeatureSet("g", 3)]) == [None]
        assert (await store.get(FEATURE))[1] == before, "an equal node is not written again"
        await store.set(FEATURE, FeatureNode({}, is_enabled=False).encode(), ANY_VERSION)
        [void] = await port.alter_features([raised])
        assert void is not None
        assert void.code is ErrorCode.FEATURE_UPDATE_FAILED

    run(tmp_path, scenario)


async def levels(store: CoordinationStore) -> dict[str, int]:
    data, _ = await store.get(FEATURE)
    return dict(FeatureNode.parse(data).levels)
