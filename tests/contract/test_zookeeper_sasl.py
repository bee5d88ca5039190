"""Logins by DIGEST-MD5 to a real ZooKeeper server, and the access lists that rest on them."""

import asyncio
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.clock import SystemClock
from odradek.coordination.store import ANY_VERSION, SessionState
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.saved_session import SavedSession
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.coordination.zookeeper.store import ZooKeeperStore
from odradek.coordination.zookeeper.wire import OpCode, ReplyHeader
from odradek.errors import ConfigError, ConnectionLost, StoreError
from odradek.files import Disk
from odradek.security.digest_md5 import Login
from tests.support.apache_kafka import find_kafka
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperProcess, missing_zookeeper, running_zookeeper
from tests.support.zookeeper_proxy import ZooKeeperProxy

pytestmark = pytest.mark.slow

# Marks and letters that have to be quoted, and that one byte cannot hold.
PASSWORD = 'se"cr\\et, ü日='
KAFKA = Login("kafka", PASSWORD)
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_GET_ACL = 6
_START_TIMEOUT_S = 90


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def client_file(folder: Path, login: Login = KAFKA) -> Path:
    path = folder / "client.jaas"
    path.write_text(
        f"Client {{ {MODULE} required username={quoted(login.username)}"
        f" password={quoted(login.password)}; }};"
    )
    return path


def write_server_file(path: Path, password: str = PASSWORD) -> None:
    path.write_text(
        f"Server {{ {MODULE} required user_kafka={quoted(password)} user_other={quoted('x')}; }};"
    )


def server_with_login(folder: Path, **settings: object) -> Generator[ZooKeeperProcess, None, None]:
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)
    path = folder / "server.jaas"
    write_server_file(path)
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with running_zookeeper(
        {"authProvider.sasl": provider, **settings},
        f"-Djava.security.auth.login.config={path}",
        "-Dfile.encoding=UTF-8",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Lets clients log in."""
    yield from server_with_login(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Serves only clients that have logged in."""
    folder = tmp_path_factory.mktemp("strict")
    yield from server_with_login(folder, sessionRequireClientSASLAuth="true")


@asynccontextmanager
async def store_on(
    address: str,
    login: Login | None,
    *,
    has_acl: bool = False,
    directory: Path | None = None,
) -> AsyncIterator[ZooKeeperStore]:
    config = ZooKeeperConfig(
        ensemble=parse_connect_string(address),
        session_timeout_ms=30_000,
        connection_timeout_ms=60_000,
        has_acl=has_acl,
        login=login,
    )
    saved = None if directory is None else SavedSession(str(directory), Disk())
    async with open_store(config, clock=SystemClock(), random=Random(1), saved=saved) as store:
        yield store


async def access_list(store: ZooKeeperStore, path: str) -> set[tuple[str, str, int]]:
    """Scheme, id and permissions of each entry."""

    def complete(header: ReplyHeader, record: bytes) -> set[tuple[str, str, int]]:
        assert header.error == 0, (path, header)
        position = 4
        found = set()
        for _ in range(struct.unpack_from(">i", record)[0]):
            (permissions,) = struct.unpack_from(">i", record, position)
            texts = []
            position += 4
            for _ in range(2):
                (length,) = struct.unpack_from(">i", record, position)
                texts.append(record[position + 4 : position + 4 + length].decode())
                position += 4 + length
            found.add((texts[0], texts[1], permissions))
        return found

    encoded = path.encode()
    body = struct.pack(">i", len(encoded)) + encoded
    code: OpCode = _GET_ACL  # type: ignore[assignment]
    return await store.session.call(code, body, complete, is_write=False)


async def access_lists(store: ZooKeeperStore, top: str) -> dict[str, set[tuple[str, str, int]]]:
    """Those of a node and all below it, by their paths below the node."""
    found: dict[str, set[tuple[str, str, int]]] = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        names, _ = await store.children(path)
        waiting += [f"{path}/{name}" for name in names]
        found[path.removeprefix(top) or "/"] = await access_list(store, path)
    return found


def test_a_broker_that_logs_in_owns_its_nodes(server: ZooKeeperProcess) -> None:
    """13 section 11."""

    async def main() -> None:
        address = f"{server.address}/{uuid4().hex}"
        async with (
            store_on(address, KAFKA, has_acl=True) as owner,
            store_on(address, Login("other", "x")) as other,
            store_on(address, None) as stranger,
        ):
            for path in ("/config", "/config/users", "/config/topics"):
                await owner.create(path, b"1")
            for client in (other, stranger):
                assert (await client.get("/config/topics"))[0] == b"1"
                for refused in (
                    client.set("/config/topics", b"3", ANY_VERSION),
                    client.get("/config/users"),
                ):
                    with pytest.raises(StoreError, match="access list does not allow it"):
                        await refused
            async with store_on(address, KAFKA) as fellow:
                await fellow.set("/config/topics", b"2", 0)

    asyncio.run(main())


@pytest.mark.parametrize("login", [Login("kafka", "wrong"), Login("stranger", "wrong")])
@pytest.mark.parametrize("kind", ["server", "strict"])
def test_a_wrong_login_is_refused(
    kind: str, login: Login, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    process: ZooKeeperProcess = request.getfixturevalue(kind)
    given = {
        "zookeeper.connect": f"{process.address}/{uuid4().hex}",
        "log.dirs": str(tmp_path / "logs"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "0",
        "zookeeper.connection.timeout.ms": "60000",
        "java.security.auth.login.config": str(client_file(tmp_path, login)),
    }
    with pytest.raises(ConfigError) as refusal:
        asyncio.run(Broker(load_broker_settings(None, given, {})).start())
    assert f"refused the login of user '{login.username}'" in refusal.value.why
    assert "correct username and password in the file of java.security" in refusal.value.why
    assert login.password not in str(refusal.value)


def test_a_server_without_sasl_is_named(zookeeper: ZooKeeperProcess) -> None:
    async def main() -> None:
        async with store_on(zookeeper.address, KAFKA):
            pass

    with pytest.raises(ConfigError, match="has no SASL; give it a JAAS file"):
        asyncio.run(main())


@pytest.mark.parametrize("chroot", ["", "/absent"])
def test_a_login_that_is_demanded_and_absent(strict: ZooKeeperProcess, chroot: str) -> None:
    async def main() -> None:
        async with store_on(strict.address + chroot, None):
            pass

    with pytest.raises(ConfigError, match="only clients that log in by SASL; give the broker"):
        asyncio.run(main())


def test_every_link_is_logged_in_on(strict: ZooKeeperProcess, tmp_path: Path) -> None:
    """A server forgets the login with the connection, and this one would not serve without."""

    async def main() -> None:
        async with ZooKeeperProxy(strict.port) as proxy:
            address = f"{proxy.address}/{uuid4().hex}"
            async with store_on(address, KAFKA, has_acl=True, directory=tmp_path) as store:
                states: list[SessionState] = []
                store.session.on_state(states.append)
                session_id = store.session.id
                await store.create("/x", b"1", ephemeral=True)
                proxy.cut()
                stat = await store.exists("/x")
                assert stat is not None
                assert (stat.ephemeral_owner, store.session.id) == (session_id, session_id)
                await store.set("/x", b"2", 0)
                assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
                assert proxy.connections == 2
                # The next life ends the session of this one, for which it has to log in, too.
                proxy.close()
                direct = address.replace(proxy.address, strict.address)
                async with store_on(direct, KAFKA, directory=tmp_path) as next_life:
                    assert await next_life.exists("/x") is None

    asyncio.run(main())


def test_a_login_that_is_refused_later_is_tried_until_it_is_taken(tmp_path: Path) -> None:
    """15:KAFKA-13461: the session is only suspended, and goes on once the servers are mended."""
    servers = server_with_login(tmp_path)
    server = next(servers)

    async def main() -> None:
        async with store_on(f"{server.address}/x", KAFKA) as store:
            await store.create("/e", b"1", ephemeral=True)
            session_id = store.session.id
            store.session.failures.clear()
            for password in ("another", PASSWORD):
                write_server_file(tmp_path / "server.jaas", password)
                await asyncio.to_thread(server.restart)
                if password == PASSWORD:
                    continue
                async with asyncio.timeout(60):
                    while not store.session.is_login_refused:  # noqa: ASYNC110 - has no event
                        await asyncio.sleep(0.01)
                assert store.session.state is SessionState.SUSPENDED
                [why] = store.session.failures.values()
                assert "refused the login of user 'kafka'" in why
                with pytest.raises(ConnectionLost):
                    await store.set("/e", b"2", 0)
            assert (await store.get("/e"))[0] == b"1"
            await store.set("/e", b"2", 0)
            assert store.session.id == session_id

    try:
        asyncio.run(main())
    finally:
        servers.close()


def kafka_settings(connect: str, folder: Path) -> dict[str, str]:
    return {
        "zookeeper.connect": connect,
        "zookeeper.set.acl": "true",
        "log.dirs": str(folder / "logs"),
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "broker.id": "1",
        "offsets.topic.replication.factor": "1",
    }


@pytest.mark.kafka
def test_the_access_lists_are_those_of_kafka(server: ZooKeeperProcess, tmp_path: Path) -> None:
    kafka = find_kafka("3.9.1")
    if kafka is None:
        pytest.skip("no Apache Kafka 3.9.1: make kafka")
    path, chroot = client_file(tmp_path), f"/{uuid4().hex}"
    theirs = kafka_settings(f"{server.address}{chroot}/theirs", tmp_path / "theirs")
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in theirs.items()))
    command = kafka.command("kafka.Kafka", str(properties), log_level="info")
    command[1:1] = [f"-Djava.security.auth.login.config={path}"]
    log = tmp_path / "kafka.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        end = time.monotonic() + _START_TIMEOUT_S
        while "started (kafka.server.KafkaServer)" not in (text := log.read_text()):
            if "[KafkaServer id=1] started" in text:
                break
            assert process.poll() is None, text[-4000:]
            assert time.monotonic() < end, text[-4000:]
            time.sleep(0.1)

        async def main() -> None:
            given = kafka_settings(f"{server.address}{chroot}/ours", tmp_path / "ours")
            java = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={path}"}
            broker = Broker(load_broker_settings(None, given, java))
            await broker.start()
            try:
                async with store_on(server.address, KAFKA) as store:
                    ours = await access_lists(store, f"{chroot}/ours")
                    expected = await access_lists(store, f"{chroot}/theirs")
            finally:
                await broker.stop()
            everyone, owner = ("world", "anyone", 1), ("sasl", "kafka", 31)
            assert ours["/brokers/ids/1"] == ours["/controller"] == {owner, everyone}
            assert ours["/config/users"] == ours["/config/brokers"] == {owner}
            assert ours["/consumers"] == {("world", "anyone", 31)}
            shared = ours.keys() & expected.keys()
            assert {each: ours[each] for each in shared} == {
                each: expected[each] for each in shared
            }
            assert {"/", "/feature", "/cluster/id", "/admin/delete_topics"} <= shared
            assert ours.keys() - expected.keys() == set()

        asyncio.run(main())
    finally:
        process.kill()
        process.wait()
