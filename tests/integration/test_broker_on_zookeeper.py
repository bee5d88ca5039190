"""One broker whose metadata is in a real ZooKeeper: served, killed, refused."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.clock import SystemClock
from odradek.coordination.embedded import EmbeddedEngine
from odradek.coordination.store import CoordinationStore
from odradek.coordination.zookeeper.client import (
    ZooKeeperConfig,
    open_store,
    stream_opener,
)
from odradek.coordination.zookeeper.link import Credentials, LinkBroken, end_session
from odradek.coordination.zookeeper.saved_session import SESSION_FILE, SavedSession
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.errors import ConfigError, LogDirLockedError, NodeExists
from odradek.files import Disk
from tests.integration.test_broker_restart import create_topic, produce, read_all
from tests.support.odradek_broker import running_odradek
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperProcess, missing_zookeeper, running_zookeeper

_T = TypeVar("_T")

# Longer than any test: a former session that is not ended would be waited for, and be seen.
PATIENT = {"zookeeper.session.timeout.ms": "60000", "zookeeper.connection.timeout.ms": "30000"}


@pytest.fixture
def connect(zookeeper: ZooKeeperProcess) -> str:
    """A chroot of the test's own, which does not exist yet."""
    return f"{zookeeper.address}/{uuid4().hex}/kafka"


def in_zookeeper(connect: str, work: Callable[[CoordinationStore], Awaitable[_T]]) -> _T:
    """What some work on the nodes gives, in a session of its own."""

    async def main() -> _T:
        config = ZooKeeperConfig(ensemble=parse_connect_string(connect))
        async with open_store(config, clock=SystemClock(), random=Random(1)) as store:
            return await work(store)

    return asyncio.run(main())


def node(connect: str, path: str) -> Any:
    async def read(store: CoordinationStore) -> Any:
        data, _ = await store.get(path)
        return json.loads(data or b"null")

    return in_zookeeper(connect, read)


def controller_epoch(connect: str) -> int:
    async def read(store: CoordinationStore) -> int:
        data, _ = await store.get("/controller_epoch")
        return int(data or b"0")

    return in_zookeeper(connect, read)


def broker_epoch(connect: str) -> int | None:
    async def read(store: CoordinationStore) -> int | None:
        stat = await store.exists("/brokers/ids/0")
        return None if stat is None else stat.czxid

    return in_zookeeper(connect, read)


async def end_session_from_outside(connect: str, credentials: Credentials) -> None:
    (server,) = parse_connect_string(connect).servers
    while True:
        # The broker comes back, and takes the session from our connection, until it has ended.
        with contextlib.suppress(LinkBroken):
            await end_session(stream_opener(None), server, credentials, timeout_ms=10_000)
            return


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def broker_of(connect: str, data: Path, **settings: str) -> Broker:
    given = {
        "zookeeper.connect": connect,
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **PATIENT,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return Broker(load_broker_settings(None, given, {}))


async def refused(broker: Broker) -> Exception:
    try:
        await broker.start()
    except (ConfigError, NodeExists, LogDirLockedError) as error:
        return error
    await broker.stop()
    raise AssertionError("the broker started")


@pytest.mark.slow
def test_a_killed_broker_is_back_at_once_with_all_that_it_acknowledged(
    connect: str, tmp_path: Path
) -> None:
    """15:KAFKA-7165: the node of the former life is not taken for that of another broker."""
    settings = {"zookeeper.connect": connect, "broker.id": "0", **PATIENT}
    values = [b"%d" % number for number in range(300)]
    with running_odradek(tmp_path, settings) as broker:
        create_topic(broker.bootstrap, "kept", {"cleanup.policy": "compact,delete"})
        acknowledged = produce(broker.bootstrap, "kept", values)
        broker.kill()
    first = node(connect, "/brokers/ids/0")
    assert (tmp_path / "logs" / SESSION_FILE).stat().st_mode & 0o777 == 0o600
    with running_odradek(tmp_path, settings) as broker:
        assert "of a former life" in broker.log()
        acknowledged |= produce(broker.bootstrap, "kept", values)
        assert len(acknowledged) == 600
        assert read_all(broker.bootstrap, "kept", 600) == acknowledged
        second = node(connect, "/brokers/ids/0")
        page = broker.metrics()
    assert second["version"] == 5
    assert second["endpoints"] != first["endpoints"]
    assert controller_epoch(connect) == 2
    assert node(connect, "/brokers/topics/kept/partitions/0/state")["isr"] == [0]
    assert node(connect, "/config/topics/kept")["config"] == {"cleanup.policy": "compact,delete"}
    assert 'kafka_server_sessionexpirelistener_sessionstate{state="CONNECTED"} 1' in page
    assert "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms" in page
    # The stop in order ended its session: nothing is left, neither here nor there.
    assert not (tmp_path / "logs" / SESSION_FILE).exists()

    async def live(store: CoordinationStore) -> list[str]:
        return (await store.children("/brokers/ids"))[0]

    assert in_zookeeper(connect, live) == []


@pytest.mark.slow
def test_a_broker_whose_session_expired_registers_again(connect: str, tmp_path: Path) -> None:
    """03b:ST-7: the new registration has a larger epoch; 08:K-18: then it serves again."""
    settings = {"zookeeper.connect": connect, "broker.id": "0", **PATIENT}
    with running_odradek(tmp_path, settings) as broker:
        create_topic(broker.bootstrap, "before")
        produce(broker.bootstrap, "before", [b"1"])
        old_epoch = broker_epoch(connect)
        credentials = SavedSession(str(broker.log_dir), Disk()).load()
        assert credentials is not None
        asyncio.run(end_session_from_outside(connect, credentials))
        eventually(lambda: (broker_epoch(connect) or 0) > (old_epoch or 0))
        eventually(lambda: controller_epoch(connect) == 2)
        create_topic(broker.bootstrap, "after")
        for topic in ("before", "after"):
            assert produce(broker.bootstrap, topic, [b"2"])
        assert len(read_all(broker.bootstrap, "before", 2)) == 2
        assert re.search(r"(?im)^\w*zookeeperexpires\w* 1(\.0)?$", broker.metrics())
        assert SavedSession(str(broker.log_dir), Disk()).load() != credentials


@pytest.mark.slow
def test_a_broker_serves_while_zookeeper_is_gone(tmp_path: Path) -> None:
    """08:K-18: with the link only SUSPENDED it goes on; what needs the store works afterwards."""
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)
    with running_zookeeper() as server:
        settings = {"zookeeper.connect": server.address, "broker.id": "0", **PATIENT}
        with running_odradek(tmp_path, settings) as broker:
            create_topic(broker.bootstrap, "kept")
            acknowledged = produce(broker.bootstrap, "kept", [b"1"])
            epoch = broker_epoch(server.address)
            server.kill()
            eventually(lambda: "is suspended" in broker.log())
            acknowledged |= produce(broker.bootstrap, "kept", [b"2"])
            assert read_all(broker.bootstrap, "kept", 2) == acknowledged
            server.start()
            server.wait_until_serving()
            create_topic(broker.bootstrap, "later")
            assert produce(broker.bootstrap, "later", [b"3"])
            assert broker_epoch(server.address) == epoch


async def dump(store: CoordinationStore) -> dict[str, tuple[str, int]]:
    """Data and version of every node, without what differs between two clusters."""
    found: dict[str, tuple[str, int]] = {}
    waiting = ["/"]
    while waiting:
        path = waiting.pop()
        data, stat = await store.get(path)
        names, _ = await store.children(path)
        waiting += [f"{path.rstrip('/')}/{name}" for name in names]
        text = "null" if data is None else data.decode()
        masked = re.sub(r'"(topic_id|id|timestamp)":"[^"]*"', r'"\1":"…"', text)
        found[path] = (masked, stat.version)
    return found


@pytest.mark.slow
def test_both_engines_hold_the_same_nodes(connect: str, tmp_path: Path) -> None:
    """14:SM-7: one script of admin events."""

    def administer(bootstrap: str) -> None:
        create_topic(bootstrap, "kept", {"cleanup.policy": "compact"})
        create_topic(bootstrap, "gone")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics(["gone"])["gone"].result(60)
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        for kind, name in ((ResourceType.TOPIC, "kept"), (ResourceType.BROKER, "0")):
            if kind is ResourceType.BROKER:
                entry = ConfigEntry(
                    "log.retention.ms", "5000", incremental_operation=AlterConfigOpType.SET
                )
            resource = ConfigResource(kind, name, incremental_configs=[entry])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(60)
        admin.create_partitions([NewPartitions("kept", 5)])["kept"].result(60)
        eventually(lambda: "gone" not in admin.list_topics(timeout=60).topics)

    with running_odradek(tmp_path / "z", {"zookeeper.connect": connect, "broker.id": "0"}) as one:
        administer(one.bootstrap)
    with running_odradek(tmp_path / "e", {"broker.id": "0"}) as other:
        administer(other.bootstrap)

    async def embedded() -> dict[str, tuple[str, int]]:
        async with EmbeddedEngine(str(tmp_path / "e" / "logs")) as engine:
            return await dump(engine.connect())

    expected = asyncio.run(embedded())
    assert in_zookeeper(connect, dump) == expected
    assert "/brokers/topics/kept/partitions/4/state" in expected
    assert "/brokers/topics/gone" not in expected


def test_an_id_is_drawn_and_kept(connect: str, tmp_path: Path) -> None:
    async def main() -> list[int]:
        ids: list[int] = []
        for name in ("a", "b", "a"):
            broker = broker_of(connect, tmp_path / name)
            await broker.start()
            ids.append(broker.broker_id)
            assert broker.settings.node.id == broker.broker_id
            await broker.stop()
        return ids

    assert asyncio.run(main()) == [1001, 1002, 1001]
    assert "broker.id=1001" in (tmp_path / "a" / "meta.properties").read_text()


def test_an_upgrade_of_the_protocol_version(connect: str, tmp_path: Path) -> None:
    """11 section 11: nodes have the form of the oldest release until the operator raises it."""

    async def main(version: str) -> tuple[Any, Any]:
        broker = broker_of(connect, tmp_path, broker_id="0", inter_broker_protocol_version=version)
        await broker.start()
        try:
            config = ZooKeeperConfig(ensemble=parse_connect_string(connect))
            async with open_store(config, clock=SystemClock(), random=Random(1)) as store:
                nodes = [await store.get(path) for path in ("/brokers/ids/0", "/feature")]
        finally:
            await broker.stop()
        registration, features = (json.loads(data or b"null") for data, _ in nodes)
        return (registration["version"], registration.get("features")), features

    old, first, new = (asyncio.run(main(version)) for version in ("2.6", "2.8", "3.9"))
    assert old == ((4, None), {"version": 1, "status": 0, "features": {}})
    assert first == ((5, {}), {"version": 1, "status": 1, "features": {}})
    assert new == ((5, {}), {"version": 2, "status": 1, "features": {}})


def test_a_taken_id_is_refused(connect: str, tmp_path: Path) -> None:
    async def main() -> Exception:
        first = broker_of(connect, tmp_path / "a", broker_id="3")
        await first.start()
        try:
            # It waits as long as its own session would last: shorter ones are for tests.
            second = broker_of(
                connect, tmp_path / "b", broker_id="3", zookeeper_session_timeout_ms="200"
            )
            return await refused(second)
        finally:
            await first.stop()

    assert "another broker with id 3 stays registered; give each" in str(asyncio.run(main()))


def test_another_cluster_is_refused(connect: str, tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        broker = broker_of(connect, tmp_path, broker_id="0")
        await broker.start()
        await broker.stop()
        fresh = await refused(broker_of(f"{connect}/typo", tmp_path, broker_id="0"))
        other = broker_of(f"{connect}/other", tmp_path / "other", broker_id="0")
        await other.start()
        await other.stop()
        return str(fresh), str(
            await refused(broker_of(f"{connect}/other", tmp_path, broker_id="0"))
        )

    fresh, other = asyncio.run(main())
    assert "INCONSISTENT_CLUSTER_ID" in fresh
    assert "ZooKeeper has no cluster; correct servers and path" in fresh
    assert "ZooKeeper has cluster.id=" in other

    async def names(store: CoordinationStore) -> list[str]:
        return (await store.children("/"))[0]

    assert "cluster" not in in_zookeeper(f"{connect}/typo", names)


def test_no_zookeeper_is_refused_with_the_servers(tmp_path: Path) -> None:
    dead = f"127.0.0.1:{free_port()},localhost:{free_port()}"
    broker = broker_of(dead, tmp_path, zookeeper_connection_timeout_ms="300")
    error = asyncio.run(refused(broker))

    assert isinstance(error, ConfigError)
    assert (error.key, error.value) == ("zookeeper.connect", dead)
    assert "no server gave a session within zookeeper.connection.timeout.ms = 300" in error.why
    assert "refused" in error.why


def test_a_directory_in_use_is_refused(connect: str, tmp_path: Path) -> None:
    async def main() -> Exception:
        first = broker_of(connect, tmp_path, broker_id="0")
        await first.start()
        try:
            return await refused(broker_of(connect, tmp_path, broker_id="0"))
        finally:
            await first.stop()

    assert isinstance(asyncio.run(main()), LogDirLockedError)
