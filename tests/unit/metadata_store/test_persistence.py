"""Commits to a store: guards, conflicts, fences, and links that break."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.controller import NewTopic
from odradek.coordination import EmbeddedEngine
from odradek.coordination.nodes import ControllerNode, encode_partitions
from odradek.coordination.paths import (
    INITIAL_PATHS,
    delete_topic_path,
    partition_state_path,
    topic_path,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore
from odradek.errors import ApiError, BadNodeData, ControllerMoved, ErrorCode
from odradek.metadata.changes import (
    AclAdded,
    AssignmentChanged,
    Atomic,
    Change,
    ConfigSet,
    FeatureSet,
    PartitionChanged,
    PartitionsAdded,
    QuotaSet,
    ScramRemoved,
    ScramSet,
    TopicCreated,
    TopicDeletionCancelled,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.image import ConfigResource, QuotaEntity, ScramCredential, ScramKey
from odradek.metadata.ports import Fence, Hint, HintKind, LeadershipLost, LeadershipWon
from odradek.metadata_store.bootstrap import claim_cluster_id, create_parents, write_features
from odradek.metadata_store.config_nodes import entity_update, parse_entity
from odradek.metadata_store.persistence import StorePersistence
from odradek.metadata_store.writes import StoreWriter, read_partition, read_topic
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.inter_broker import INTER_BROKER_VERSIONS, NEWEST_NODE_FORMS
from odradek.security.acls import AclBinding
from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from odradek.testing import ManualClock
from odradek.testing.store import FaultyStore
from tests.support.controllers import Member, running_cluster, tree

T0 = TopicPartition("t", 0)
ID = uuid.UUID(int=5)
FENCE = Fence(0)


def created(name: str = "t", **configs: str) -> TopicCreated:
    return TopicCreated(
        topic=name, topic_id=ID, assignment={0: ReplicaAssignment((0,))}, configs=configs
    )


def state(
    tp: TopicPartition = T0, *, version: int | None = None, leader: int = 0
) -> PartitionChanged:
    return PartitionChanged(
        tp=tp,
        topic_id=ID,
        state=LeaderAndIsr(leader=leader, leader_epoch=1, isr=(0,), partition_version=version or 0),
        controller_epoch=1,
        is_first=version is None,
    )


def run(tmp_path: Path, scenario: Callable[[CoordinationStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            await create_parents(store)
            await store.create("/controller_epoch", b"1")
            await scenario(store)

    asyncio.run(main())


async def commit_one(writer: StoreWriter, change: Change) -> str:
    """What became of a change."""
    outcome = await writer.commit([change], FENCE)
    if outcome.committed:
        return f"version {outcome.committed[0].version}"
    if outcome.conflicts:
        return "conflict"
    return f"failed: {outcome.failed[0].error}"


def test_the_life_of_a_topic_in_commits(tmp_path: Path) -> None:
    """14 §15.2, row by row."""

    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        assert await commit_one(writer, created()) == "version 0"
        assert await commit_one(writer, created()) == "conflict"
        assert await commit_one(writer, state()) == "version 0"
        assert await commit_one(writer, state()) == "conflict"
        assert await commit_one(writer, state(version=0)) == "version 1"
        assert await commit_one(writer, state(version=0)) == "conflict"
        two = {p: ReplicaAssignment((0,)) for p in (0, 1)}
        added = PartitionsAdded(
            topic="t", topic_id=ID, assignment=two, added=frozenset({1}), version=0
        )
        assert await commit_one(writer, added) == "version 1"
        assert await commit_one(writer, added) == "conflict"
        moved = AssignmentChanged(topic="t", topic_id=ID, assignment=two, version=1)
        assert await commit_one(writer, moved) == "version 2"
        record = await read_topic(store, "t")
        assert record is not None
        assert (record.topic_id, sorted(record.assignment), record.version) == (ID, [0, 1], 2)
        for _ in range(2):  # That it is marked, or not, is fine.
            assert await commit_one(writer, TopicDeletionRequested("t")) == "version 0"
        for _ in range(2):
            assert await commit_one(writer, TopicDeletionCancelled("t")) == "version 0"
        await commit_one(writer, TopicDeletionRequested("t"))
        for _ in range(2):
            assert await commit_one(writer, TopicRemoved("t", ID)) == "version 0"
        assert [path for path in await tree(store) if path.endswith("/t")] == []
        # A state without its topic cannot be made.
        assert (await commit_one(writer, state())).startswith("failed")

    run(tmp_path, scenario)


def test_parents_may_be_there_from_an_earlier_controller(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        await commit_one(writer, created())
        await store.create("/brokers/topics/t/partitions")
        await store.create("/brokers/topics/t/partitions/0")
        assert await commit_one(writer, state()) == "version 0"

    run(tmp_path, scenario)


def test_a_group_is_written_as_one(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        both = Atomic((created("a"), created("b")))
        await commit_one(writer, created("b"))
        assert await commit_one(writer, both) == "conflict"
        assert await store.exists(topic_path("a")) is None
        await commit_one(writer, TopicRemoved("b", ID))
        assert await commit_one(writer, both) == "version 0"
        assert await store.exists(topic_path("a")) is not None

    run(tmp_path, scenario)


def test_a_failed_fence_deposes(tmp_path: Path) -> None:
    """03b:I7: what was written before stands."""

    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        await writer.commit([created("a")], FENCE)
        await store.set("/controller_epoch", b"2", ANY_VERSION)
        changes: list[Change] = [
            created("b"),
            state(TopicPartition("a", 0)),
            TopicRemoved("a", ID),
            TopicDeletionRequested("a"),
            ConfigSet(ConfigResource(ConfigResourceType.TOPIC, "a"), {"x": "1"}),
        ]
        for change in changes:
            with pytest.raises(ControllerMoved):
                await writer.commit([change], FENCE)
        assert (await store.children("/brokers/topics"))[0] == ["a"]
        await store.session.close()
        with pytest.raises(ControllerMoved):
            await writer.commit([created("c")], Fence(1))
        with pytest.raises(ControllerMoved):
            await writer.commit([state(TopicPartition("a", 0))], Fence(1))

    run(tmp_path, scenario)


def test_three_changes_one_conflict(tmp_path: Path) -> None:
    """14:SM-4: each has its own outcome, and the conflict brings what is stored."""

    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        topics = ["a", "b", "c"]
        await writer.commit([created(t) for t in topics], FENCE)
        partitions = [TopicPartition(t, 0) for t in topics]
        await writer.commit([state(tp) for tp in partitions], FENCE)
        await writer.commit([state(partitions[1], version=0, leader=-1)], FENCE)
        outcome = await writer.commit([state(tp, version=0) for tp in partitions], FENCE)
        changed = [c.change.tp for c in outcome.committed if isinstance(c.change, PartitionChanged)]
        assert changed == [partitions[0], partitions[2]]
        [conflict] = outcome.conflicts
        assert conflict.found == await read_partition(store, partitions[1])
        assert conflict.found is not None

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize(
    ("prepared", "change"),
    [
        pytest.param([], created(), id="topic"),
        pytest.param([created(), state()], state(version=0), id="state"),
        pytest.param(
            [created()],
            AssignmentChanged(
                topic="t", topic_id=ID, assignment={0: ReplicaAssignment((1,))}, version=0
            ),
            id="assignment",
        ),
        pytest.param([created()], TopicDeletionRequested("t"), id="mark"),
    ],
)
def test_a_broken_link_is_read_back(
    tmp_path: Path, is_applied: bool, prepared: list[Change], change: Change
) -> None:
    """14:SM-5: applied: committed, once; not applied: a conflict, never called committed."""

    async def scenario(plain: CoordinationStore) -> None:
        await StoreWriter(plain).commit(prepared[:1], FENCE)
        await StoreWriter(plain).commit(prepared[1:], FENCE)
        store = FaultyStore(plain)
        store.cut_next_write(applied=is_applied)
        outcome = await StoreWriter(store).commit([change], FENCE)
        assert len(outcome.committed) == is_applied
        assert len(outcome.conflicts) == (not is_applied)
        # Once more: what was not applied is done now.
        if not is_applied:
            assert (await StoreWriter(store).commit([change], FENCE)).committed

    run(tmp_path, scenario)


def test_a_first_state_whose_link_broke(tmp_path: Path) -> None:
    """14:SM-5"""

    async def scenario(plain: CoordinationStore) -> None:
        await StoreWriter(plain).commit([created()], FENCE)
        await plain.create("/brokers/topics/t/partitions")
        store = FaultyStore(plain)
        store.cut_next_write(applied=False)
        [conflict] = (await StoreWriter(store).commit([state()], FENCE)).conflicts
        assert conflict.found is None
        store.cut_next_write(applied=True)
        [committed] = (await StoreWriter(store).commit([state()], FENCE)).committed
        assert committed.version == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_nothing_is_announced_before_it_is_known(tmp_path: Path, is_applied: bool) -> None:
    """14:SM-5, as the whole controller shows it."""

    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            store = FaultyStore(cluster.engine.connect())
            member = Member(cluster, 0, store)
            cluster.members.append(member)
            await member.start()
            await cluster.settle()
            cluster.recorder(0).take()
            store.cut_next_write(applied=is_applied)
            [result] = await member.controller.create_topics([NewTopic(name="t")])
            assert result.error is ErrorCode.NONE
            await cluster.settle()
            assert cluster.recorder(0).names() == ["LeaderAndIsr", "UpdateMetadata"]
            record = await read_topic(store, "t")
            assert record is not None
            assert (record.topic_id, record.version) == (result.topic_id, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_applied", [True, False])
def test_notifications_survive_a_link_that_breaks_while_they_are_deleted(
    tmp_path: Path, is_applied: bool
) -> None:
    async def scenario(plain: CoordinationStore) -> None:
        store = FaultyStore(plain)
        persistence = StorePersistence(store, 0, clock=ManualClock())
        events = persistence.events()
        await anext(events)
        data = encode_partitions([T0])
        await plain.create("/isr_change_notification/isr_change_", data, sequential=True)
        store.cut_next_write(applied=is_applied)
        hint = Hint(HintKind.ISR_CHANGES)
        assert (await persistence.load(hint)).isr_changes == {T0}
        # It was deleted, at the second attempt if not at the first.
        assert (await persistence.load(hint)).isr_changes == frozenset()

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_election_whose_answer_is_lost(tmp_path: Path, is_applied: bool) -> None:
    """03b §3.4: the node that carries our session is ours."""

    async def scenario(plain: CoordinationStore) -> None:
        store = FaultyStore(plain)
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        persistence = StorePersistence(store, 0, clock=ManualClock(), sleep=sleep)
        store.cut_next_write(applied=is_applied)
        events = persistence.events()
        won = await anext(events)
        assert won == LeadershipWon(2, Fence(1))
        await plain.delete("/controller", ANY_VERSION)
        assert await anext(events) == LeadershipLost()
        assert await anext(events) == LeadershipWon(3, Fence(2))
        await persistence.resign(Fence(2))
        assert await anext(events) == LeadershipLost()
        assert await anext(events) == LeadershipWon(4, Fence(3))
        assert len(waits) == 1  # Having resigned, it lets others go first.
        with pytest.raises(ControllerMoved):
            await StoreWriter(store).commit([created()], Fence(2))

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_loading", [False, True], ids=["commit", "load"])
def test_an_epoch_that_another_program_wrote_is_followed_by_an_election(
    tmp_path: Path, is_loading: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The node of the controller is its own still: without that no broker could lead."""

    async def scenario(store: CoordinationStore) -> None:
        persistence = StorePersistence(store, 0, clock=ManualClock())
        events = persistence.events()
        won = await anext(events)
        assert won == LeadershipWon(2, Fence(1))
        await store.set("/controller_epoch", b"2", ANY_VERSION)
        write = persistence.load() if is_loading else persistence.commit([created()], Fence(1))
        with pytest.raises(ControllerMoved):
            await write
        assert await anext(events) == LeadershipLost()
        assert await anext(events) == LeadershipWon(3, Fence(3))
        await persistence.commit([created()], Fence(3))
        # A late refusal of the former epoch deposes nobody.
        with pytest.raises(ControllerMoved):
            await persistence.commit([created()], Fence(1))
        await store.delete("/controller", ANY_VERSION)
        assert await anext(events) == LeadershipLost()

    run(tmp_path, scenario)
    assert caplog.text.count("/controller_epoch was changed by another program") == 1


def test_a_controller_that_another_one_replaced_leaves_its_node_alone(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        persistence = StorePersistence(store, 0, clock=ManualClock())
        events = persistence.events()
        await anext(events)
        other = ControllerNode(7, 0).encode()
        await store.delete("/controller", ANY_VERSION)
        await store.create("/controller", other)
        await store.set("/controller_epoch", b"3", ANY_VERSION)
        with pytest.raises(ControllerMoved):
            await persistence.commit([created()], Fence(1))
        assert await anext(events) == LeadershipLost()
        assert (await store.get("/controller"))[0] == other

    run(tmp_path, scenario)


def test_a_controller_node_that_cannot_be_read_is_followed_by_an_election(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        persistence = StorePersistence(store, 0, clock=ManualClock())
        events = persistence.events()
        await anext(events)
        await store.set("/controller", b"{", ANY_VERSION)
        assert await anext(events) == LeadershipLost()
        assert await anext(events) == LeadershipWon(3, Fence(2))

    run(tmp_path, scenario)


def test_a_node_of_ours_that_elects_nobody_is_taken_away(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        persistence = StorePersistence(store, 0, clock=ManualClock())
        await store.create("/controller", ControllerNode(0, 0).encode(), ephemeral=True)
        assert await persistence._find_out(9) is None  # The epoch is not the one it was made for.
        assert await store.exists("/controller") is None
        assert await anext(persistence.events()) == LeadershipWon(2, Fence(1))

    run(tmp_path, scenario)


def test_only_a_controller_loads(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        persistence = StorePersistence(store, 0, clock=ManualClock())
        with pytest.raises(ControllerMoved):
            await persistence.load()
        await persistence.resign(FENCE)  # Nothing to give up: said, not raised.

    run(tmp_path, scenario)


def test_damaged_nodes_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            store = cluster.engine.connect()
            await store.create(topic_path("bad"), b"{")
            await store.create("/brokers/ids/7", b"[]", ephemeral=True)
            await store.create("/admin/reassign_partitions", b"x")
            await store.create("/admin/preferred_replica_election", b"x")
            await StoreWriter(store).commit([created("t")], Fence(ANY_VERSION))
            await store.create("/brokers/topics/t/partitions")
            await store.create("/brokers/topics/t/partitions/0")
            await store.create(partition_state_path(T0), b"?")
            await store.create("/feature", b'{"version":9}')
            member = await cluster.add(0)
            await store.create("/isr_change_notification/isr_change_", b"x", sequential=True)
            await store.create("/log_dir_event_notification/log_dir_event_", b"", sequential=True)
            await cluster.settle()
            context = member.controller.context
            assert (context.all_topics, context.live_broker_ids) == ({"t"}, {0})
            assert (await store.children("/isr_change_notification"))[0] == []

    asyncio.run(scenario())
    for path in (
        "/brokers/topics/bad",
        "/brokers/topics/t/partitions/0/state",
        "/brokers/ids/7",
        "/admin/reassign_partitions",
        "/admin/preferred_replica_election",
        "/feature",
        "/isr_change_notification/isr_change_0000000000",
        "/log_dir_event_notification/log_dir_event_0000000000",
    ):
        assert caplog.text.count(f"{path} is ignored: ") == 1, path


def test_start_of_a_store(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        nodes = await tree(store)
        assert all(nodes[path] is None for path in INITIAL_PATHS)
        assert await claim_cluster_id(store, lambda: "first") == "first"
        assert await claim_cluster_id(store, lambda: "second") == "first"
        await create_parents(store)

    run(tmp_path, scenario)


OLD = b'{"version":1,"status":0,"features":{}}'
FIRST = b'{"version":1,"status":1,"features":{}}'
NEW = b'{"version":2,"status":1,"features":{}}'
NEW_CLUSTER = b'{"version":2,"status":1,"features":{"transaction.version":{"max_version_level":2}}}'
FIRST_LEVEL = (
    b'{"version":1,"status":1,"features":{"f":{"max_version_level":3,"min_version_level":3}}}'
)
NEW_LEVEL = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
VOID_LEVEL = (
    b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
)


@pytest.mark.parametrize(
    ("protocol", "found", "expected"),
    [
        ("2.4", None, OLD),
        ("2.6", None, OLD),
        ("2.7", None, FIRST),
        ("3.2", None, FIRST),
        # A new cluster begins with the newest levels.
        ("3.3", None, NEW_CLUSTER),
        ("3.9", None, NEW_CLUSTER),
        # The operator raises the protocol's version, and later lowers it again.
        ("2.7", OLD, FIRST),
        ("3.9", OLD, NEW),
        ("3.9", FIRST, NEW),
        ("2.8", NEW, FIRST),
        ("2.6", NEW, OLD),
        # Levels are kept as long as they count.
        ("3.9", FIRST_LEVEL, NEW_LEVEL),
        ("2.8", NEW_LEVEL, FIRST_LEVEL),
        ("2.6", NEW_LEVEL, OLD),
        ("2.7", VOID_LEVEL, FIRST),
        ("2.6", VOID_LEVEL, OLD),
    ],
)
def test_features_are_written_as_the_protocol_version_has_them(
    tmp_path: Path, protocol: str, found: bytes | None, expected: bytes
) -> None:
    async def scenario(store: CoordinationStore) -> None:
        if found is not None:
            await store.create("/feature", found)
        forms = INTER_BROKER_VERSIONS[protocol].nodes
        await write_features(store, FENCE, forms)
        written, stat = await store.get("/feature")
        await write_features(store, FENCE, forms)
        assert (written, stat.version) == (expected, 0 if found is None else 1)
        assert await store.get("/feature") == (written, stat), "an equal node is not written again"

    run(tmp_path, scenario)


def test_a_cluster_with_topics_is_not_new(tmp_path: Path) -> None:
    """Its administrator raises the levels, when all of its clients can follow."""

    async def scenario(store: CoordinationStore) -> None:
        await StoreWriter(store).commit([created("t")], FENCE)
        await write_features(store, FENCE, NEWEST_NODE_FORMS)
        assert (await store.get("/feature"))[0] == NEW

    run(tmp_path, scenario)


# Configuration nodes

CREDENTIAL = ScramCredential(b"salt", b"stored", b"server", 4096)


@pytest.mark.parametrize(
    ("change", "entity", "stored"),
    [
        (
            ConfigSet(ConfigResource(ConfigResourceType.TOPIC, "t"), {"a": "1", "b": None}),
            "topics/t",
            {"a": "1"},
        ),
        (
            ConfigSet(ConfigResource(ConfigResourceType.BROKER, ""), {"a": "1"}),
            "brokers/<default>",
            {"a": "1"},
        ),
        (
            ConfigSet(ConfigResource(ConfigResourceType.BROKER, "3"), {"a": "1"}),
            "brokers/3",
            {"a": "1"},
        ),
        (
            ConfigSet(ConfigResource(ConfigResourceType.CLIENT_METRICS, "m x"), {"a": "1"}),
            "client-metrics/m%20x",
            {"a": "1"},
        ),
        (
            QuotaSet(QuotaEntity((("client-id", "c*"),)), {"producer_byte_rate": 1024.0}),
            "clients/c%2A",
            {"producer_byte_rate": "1024"},
        ),
        (
            QuotaSet(
                QuotaEntity((("client-id", None), ("user", "u"))), {"request_percentage": 0.5}
            ),
            "users/u/clients/<default>",
            {"request_percentage": "0.5"},
        ),
        (
            QuotaSet(QuotaEntity((("ip", "10.0.0.1"),)), {"connection_creation_rate": 5}),
            "ips/10.0.0.1",
            {"connection_creation_rate": "5"},
        ),
        (
            ScramSet(ScramKey("u", 1), CREDENTIAL),
            "users/u",
            {
                "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,"
                "iterations=4096"
            },
        ),
    ],
)
def test_configuration_is_stored_notified_and_read(
    tmp_path: Path,
    change: ConfigSet | QuotaSet | ScramSet,
    entity: str,
    stored: dict[str, str],
) -> None:
    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        assert await commit_one(writer, change) == "version 0"
        assert await commit_one(writer, change) == "version 0"
        names, _ = await store.children("/config/changes")
        assert len(names) == 2
        data, _ = await store.get(f"/config/changes/{names[0]}")
        assert data == f'{{"version":2,"entity_path":"{entity}"}}'.encode()
        assert await store.exists(f"/config/{entity}") is not None

    run(tmp_path, scenario)
    assert entity_update(change).entity == entity
    parsed = parse_entity(entity, stored)
    match change:
        case ConfigSet(resource=resource):
            assert (parsed.resource, parsed.configs) == (resource, stored)
        case QuotaSet(entity=quota_entity, values=values):
            assert (parsed.quota_entity, parsed.quotas) == (quota_entity, values)
        case ScramSet(key=key, credential=credential):
            assert parsed.scram == {key: credential}


def test_keys_of_others_survive(tmp_path: Path) -> None:
    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        user = QuotaEntity((("user", "u"),))
        await commit_one(writer, ScramSet(ScramKey("u", 2), CREDENTIAL))
        await commit_one(writer, QuotaSet(user, {"producer_byte_rate": 5}))
        await commit_one(writer, ScramRemoved(ScramKey("u", 2)))
        data, _ = await store.get("/config/users/u")
        assert data == b'{"version":1,"config":{"producer_byte_rate":"5"}}'

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("entity", "config"),
    [
        ("queues/q", {}),
        ("topics", {}),
        ("users/u/clients", {}),
        ("clients/c", {"producer_byte_rate": "fast"}),
        ("clients/c", {"producer_byte_rate": "nan"}),
        ("users/u", {"SCRAM-SHA-256": "salt=AA=="}),
        ("users/u", {"SCRAM-SHA-256": "salt=!,stored_key=AA==,server_key=AA==,iterations=1"}),
    ],
)
def test_bad_configuration_nodes(entity: str, config: dict[str, str]) -> None:
    with pytest.raises(BadNodeData):
        parse_entity(entity, config)


@pytest.mark.parametrize(
    "config",
    [
        {"SCRAM-SHA-256": "salt=xyzzy"},
        {"SCRAM-SHA-256": "salt=AA==,stored_key=xyzzy!,server_key=AA==,iterations=1"},
        {"SCRAM-SHA-1024": "stored_key=xyzzy"},  # Of a mechanism that is not known here.
    ],
)
def test_credentials_that_cannot_be_read_are_not_shown(config: dict[str, str]) -> None:
    with pytest.raises(BadNodeData) as caught:
        parse_entity("users/u", config)
    assert "xyzzy" not in f"{caught.value} {caught.value!r}"
    assert caught.value.__cause__ is None


def test_what_has_no_node_is_refused(tmp_path: Path) -> None:
    refused: list[ConfigSet | QuotaSet] = [
        ConfigSet(ConfigResource(ConfigResourceType.BROKER_LOGGER, "0"), {"a": "INFO"}),
        QuotaSet(QuotaEntity((("ip", "1.1.1.1"), ("user", "u"))), {}),
        QuotaSet(QuotaEntity(()), {}),
    ]
    for change in refused:
        with pytest.raises(ApiError):
            entity_update(change)

    async def scenario(store: CoordinationStore) -> None:
        writer = StoreWriter(store)
        rule = AclAdded(
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
        assert (await commit_one(writer, rule)).startswith("failed")
        assert (await commit_one(writer, FeatureSet("f", 1))).startswith("failed")
        assert (await commit_one(writer, Atomic((TopicRemoved("t", ID),)))).startswith("failed")

    run(tmp_path, scenario)


def test_marks_are_children_of_the_deletion_node() -> None:
    assert delete_topic_path("test-topic") == "/admin/delete_topics/test-topic"


class _WatchedStore:
    """Counts the transactions that begin between two turns of the loop."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self._begun = 0
        self.most = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def multi(self, *arguments: Any, **options: Any) -> object:
        self._begun += 1
        self.most = max(self.most, self._begun)
        return await self._store.multi(*arguments, **options)

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._begun = 0


def test_many_writes_begin_in_many_turns(tmp_path: Path) -> None:
    """02 section 12: the partitions of a large topic are not all rendered in one turn."""
    count = 400

    async def scenario(store: CoordinationStore) -> None:
        watched = _WatchedStore(store)
        writer = StoreWriter(watched)  # type: ignore[arg-type]  # by its methods
        assignment = {number: ReplicaAssignment((0,)) for number in range(count)}
        topic = TopicCreated(topic="t", topic_id=ID, assignment=assignment, configs={})
        assert await commit_one(writer, topic) == "version 0"
        counting = asyncio.create_task(watched.count_turns())
        outcome = await writer.commit(
            [state(TopicPartition("t", number)) for number in range(count)], FENCE
        )
        counting.cancel()
        assert len(outcome.committed) == count
        assert 1 < watched.most <= 20
        assert [each.change for each in outcome.committed] == [
            state(TopicPartition("t", number)) for number in range(count)
        ]

    run(tmp_path, scenario)
